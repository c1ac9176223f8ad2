/* GPT-2's table: every byte is written as one printable code point, so that a vocabulary can be stored as text.
 * Bytes 33..126, 161..172 and 174..255 stand for themselves; the other 68, ascending, are U+0100, U+0101, ...
 * (bytes_to_unicode() of the GPT-2 release's encoder.py). */
#ifndef RF_BYTE_TABLE_H
#define RF_BYTE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "text.h"

#define RF_BYTE_TABLE_CODES 324 /* every code point of the table is below this */

typedef struct {
    int16_t byte_of[RF_BYTE_TABLE_CODES]; /* -1: not in the table */
} rf_byte_table;

void rf_byte_table_init(rf_byte_table *table);
/* Writes the bytes that `written` stands for to out (never more than written.length). Returns how many, or -1 if a code
 * point is not in the table or the UTF-8 is not well formed. */
ptrdiff_t rf_byte_table_decode(const rf_byte_table *table, rf_text written, char *out);

#endif
