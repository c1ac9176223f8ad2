#include "byte_table.h"

#include <stdbool.h>

#include "utf8.h"

static bool stands_for_itself(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

void rf_byte_table_init(rf_byte_table *table)
{
    int16_t next = 256;

    for (size_t code = 0; code < RF_BYTE_TABLE_CODES; code++)
        table->byte_of[code] = -1;
    for (int16_t byte = 0; byte < 256; byte++)
        table->byte_of[stands_for_itself(byte) ? byte : next++] = byte;
}

ptrdiff_t rf_byte_table_decode(const rf_byte_table *table, rf_text written, char *out)
{
    ptrdiff_t count = 0;

    for (size_t at = 0; at < written.length;) {
        size_t length = rf_utf8_length(written.data + at, written.length - at);
        uint32_t code = length ? rf_utf8_decode(written.data + at, length) : RF_BYTE_TABLE_CODES;

        if (code >= RF_BYTE_TABLE_CODES || table->byte_of[code] < 0)
            return -1;
        out[count++] = (char)table->byte_of[code];
        at += length;
    }
    return count;
}
