/* What the tokenizer is made of: UTF-8, the byte table, the hash index, special tokens, splitting, merging. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "byte_table.h"
#include "check.h"
#include "hash_index.h"
#include "pretokenizer.h"
#include "special_tokens.h"
#include "utf8.h"
#include "vocabulary.h"

/* ---- UTF-8: against the encoder written here, for every code point. */

static size_t write_utf8(uint32_t code, char out[4])
{
    static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    for (size_t i = length; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(marks[length] | code);
    return length;
}

static void every_code_point(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x110000; code++) {
        char bytes[4];
        size_t length = write_utf8(code, bytes);
        bool surrogate = code >= 0xD800 && code < 0xE000;

        if (rf_utf8_length(bytes, 4) != (surrogate ? 0 : length) ||
            (!surrogate && rf_utf8_decode(bytes, length) != code))
            fail_msg("U+%04X", code);
        for (size_t cut = 1; cut < length && !surrogate; cut++) {
            assert_int_equal(rf_utf8_length(bytes, cut), 0);
            assert_int_equal(rf_utf8_unfinished(bytes, cut), cut);
        }
        assert_int_equal(rf_utf8_unfinished(bytes, length), 0);
    }
}

/* Every string of up to three bytes: unfinished exactly if some byte can make its end a longer well-formed sequence. */
static void every_short_string(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 256 * 256; n++) {
        char s[4] = {(char)(n >> 8), (char)n};
        bool finishable = false;

        for (int b = 0x80; b < 0xC0 && !finishable; b++)
            for (int c = 0x80; c < 0xC0 && !finishable; c++) {
                s[2] = (char)b;
                s[3] = (char)c;
                finishable = rf_utf8_length(s, 4) > 2;
            }
        assert_int_equal(rf_utf8_unfinished(s, 2) == 2, finishable);
        if (!finishable)
            assert_int_equal(rf_utf8_unfinished(s, 2), (unsigned char)s[1] >= 0xC2 && (unsigned char)s[1] <= 0xF4);
    }
    assert_int_equal(rf_utf8_length("\xF4\x90\x80\x80", 4), 0); /* U+110000 */
    assert_int_equal(rf_utf8_length("\xF5\x80\x80\x80", 4), 0);
    assert_int_equal(rf_utf8_length("", 0), 0);
    assert_int_equal(rf_utf8_unfinished("", 0), 0);
    assert_int_equal(rf_utf8_unfinished("\x80\x80\x80\x80", 4), 0);
}

static void byte_table(void **state)
{
    rf_byte_table table;
    char out[8];
    bool seen[256] = {false};

    (void)state;
    rf_byte_table_init(&table);
    for (int code = 0; code < RF_BYTE_TABLE_CODES; code++)
        if (table.byte_of[code] >= 0) {
            assert_false(seen[table.byte_of[code]]);
            seen[table.byte_of[code]] = true;
            assert_true(code > ' ' && code != 0x7F && code != 0xAD);
        }
    for (int byte = 0; byte < 256; byte++)
        assert_true(seen[byte]);
    /* The table's well-known entries: space is U+0120, newline U+010A, tab U+0109; the last one, soft hyphen, U+0143.
     */
    assert_int_equal(rf_byte_table_decode(&table, text_of("\xC4\xA0\xC4\x8A\xC4\x89\xC5\x83~"), out), 5);
    assert_memory_equal(out, " \n\t\xAD~", 5);
    assert_int_equal(rf_byte_table_decode(&table, text_of(" "), out), -1);
    assert_int_equal(rf_byte_table_decode(&table, text_of("\xC5\x84"), out), -1);
    assert_int_equal(rf_byte_table_decode(&table, text_of("\xF0\x9F\x98\x80"), out), -1);
    assert_int_equal(rf_byte_table_decode(&table, text_of("a\xC4"), out), -1);
    assert_int_equal(rf_byte_table_decode(&table, text_of(""), out), 0);
}

static void hash_index(void **state)
{
    rf_hash_index index;
    const int32_t n = 10000;

    (void)state;
    assert_int_equal(rf_hash_index_init(&index, (size_t)n), 0);
    for (int32_t i = 0; i < n; i++)
        rf_hash_index_add(&index, rf_hash_index_hash(&index, &i, sizeof i), i);
    for (int32_t i = 0; i < 2 * n; i++) {
        uint64_t hash = rf_hash_index_hash(&index, &i, sizeof i);
        size_t cursor = rf_hash_index_start(&index, hash);
        int32_t found = -1;

        for (int32_t k; found < 0 && (k = rf_hash_index_next(&index, hash, &cursor)) >= 0;)
            found = k == i ? k : -1;
        assert_int_equal(found, i < n ? i : -1);
    }
    assert_true(rf_hash_index_hash(&index, "ab", 2) != rf_hash_index_hash(&index, "ab\0", 3));
    rf_hash_index_free(&index);
}

static void special_tokens(void **state)
{
    static const char *const words[] = {"<a>", "<ab>", "<a>b", "b", "", "<a>", "\xFF\xFE"};
    rf_special_tokens set = {0};
    size_t length;

    (void)state;
    assert_int_equal(rf_special_tokens_match(&set, text_of("<a>"), &length), -1);
    for (int32_t i = 0; i < 7; i++)
        assert_int_equal(rf_special_tokens_add(&set, text_of(words[i]), i), 0);
    rf_special_tokens_sort(&set);
    assert_int_equal(set.count, 5);
    assert_int_equal(rf_special_tokens_match(&set, text_of("<a>x"), &length), 0);
    assert_int_equal(length, 3);
    assert_int_equal(rf_special_tokens_match(&set, text_of("<a>bc"), &length), 2);
    assert_int_equal(length, 4);
    assert_int_equal(rf_special_tokens_match(&set, text_of("<ab>"), &length), 1);
    assert_int_equal(rf_special_tokens_match(&set, text_of("<ab"), &length), -1);
    assert_int_equal(rf_special_tokens_match(&set, text_of("x<a>"), &length), -1);
    assert_int_equal(rf_special_tokens_match(&set, text_of(""), &length), -1);
    assert_int_equal(rf_special_tokens_match(&set, text_of("\xFF\xFE"), &length), 6);
    assert_true(set.starts['<'] && set.starts['b'] && set.starts[0xFF] && !set.starts['a']);
    rf_special_tokens_free(&set);
}

static void printable(void **state)
{
    char out[12];

    (void)state;
    assert_string_equal(rf_text_printable(text_of("plain"), out, sizeof out), "plain");
    assert_string_equal(rf_text_printable((rf_text){"a\0\n\x1B\xFF", 5}, out, sizeof out), "a????");
    assert_string_equal(rf_text_printable(text_of("12345678901"), out, sizeof out), "12345678901");
    assert_string_equal(rf_text_printable(text_of("123456789012"), out, sizeof out), "12345678...");
    assert_string_equal(rf_text_printable((rf_text){NULL, 0}, out, sizeof out), "");
}

/* ---- Splitting */

static void pieces(const char *rule, uint32_t limit, const char *text, const char *const *expected)
{
    rf_error err = {0};
    rf_pretokenizer *p = rf_pretokenizer_create(text_of(rule), limit, &err);
    rf_text whole = text_of(text);
    size_t at = 0;

    assert_non_null(p);
    for (; *expected; expected++) {
        size_t end = at < whole.length ? rf_pretokenizer_next(p, whole, at) : at;

        if (end - at != strlen(*expected) || memcmp(text + at, *expected, end - at) != 0)
            fail_msg("\"%.*s\" instead of \"%s\"", (int)(end - at), text + at, *expected);
        at = end;
    }
    assert_int_equal(at, whole.length);
    rf_pretokenizer_destroy(p);
}

#define PIECES(rule, text, ...) pieces(rule, 0, text, (const char *const[]){__VA_ARGS__, NULL})

static void splitting(void **state)
{
    (void)state;
    PIECES("qwen2", "I'm HE'LL 'tis", "I", "'m", " HE", "'LL", " '", "tis");
    PIECES("qwen2", "a1234 b", "a", "1", "2", "3", "4", " b");
    PIECES("qwen2", "  x   \n\n y  ", " ", " x", "   \n\n", " y", "  ");
    PIECES("qwen2", "a!?\n\nb", "a", "!?\n\n", "b");
    PIECES("qwen2", "e\xCC\x81t", "e", "\xCC\x81t");
    PIECES("qwen35", "e\xCC\x81t", "e\xCC\x81t");
    PIECES("qwen35", "!\xCC\x81", "!\xCC\x81");
    /* With Unicode properties: a no-break space, a line separator and an em space are spaces, a fullwidth digit is a
     * number. */
    PIECES("qwen35", "a\xC2\xA0\xE2\x80\xA8\xE2\x80\x83 b\xEF\xBC\x91", "a", "\xC2\xA0\xE2\x80\xA8\xE2\x80\x83", " b",
           "\xEF\xBC\x91");
}

/* A limit that no match can keep: every piece is a character, and all of the text is there. */
static void splitting_past_the_limit(void **state)
{
    static const char *const characters[] = {" ", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "a", "b", NULL};

    (void)state;
    pieces("qwen35", 1,
           " \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"
           "ab",
           characters);
}

/* ---- Merging: against the definition, applied literally (n passes over n symbols). */

static size_t merge_literally(const rf_merge *merges, size_t n_merges, int32_t *ids, size_t n)
{
    for (size_t rank = 0; rank < n_merges; rank++)
        for (size_t i = 0; i + 1 < n; i++)
            if (ids[i] == merges[rank].left && ids[i + 1] == merges[rank].right) {
                ids[i] = merges[rank].result;
                memmove(ids + i + 1, ids + i + 2, (n - i - 2) * sizeof *ids);
                n--;
                rank = (size_t)-1; /* a merge may make a better pair possible: look from the best rank again */
                break;
            }
    return n;
}

static void merging_as_defined(void **state)
{
    enum { ALPHABET = 3, MERGES = 40, LENGTH = 60 };
    int32_t byte_token[256];
    unsigned seed = 3;

    (void)state;
    for (int32_t i = 0; i < 256; i++)
        byte_token[i] = i;
    for (int round = 0; round < 300; round++) {
        rf_merge *merges = malloc(MERGES * sizeof *merges);
        rf_merge kept[MERGES];
        rf_bpe *b;

        assert_non_null(merges);
        for (int32_t i = 0; i < MERGES; i++) { /* of bytes and of earlier results; some pairs come twice */
            int32_t parts[2];

            for (int k = 0; k < 2; k++) {
                seed = seed * 1664525u + 1013904223u;
                parts[k] = (int32_t)((seed >> 8) % (unsigned)(ALPHABET + i));
                parts[k] = parts[k] < ALPHABET ? parts[k] : 256 + parts[k] - ALPHABET;
            }
            merges[i] = kept[i] = (rf_merge){parts[0], parts[1], 256 + i};
        }
        b = rf_bpe_create(merges, MERGES);
        assert_non_null(b);
        for (size_t n = 1; n <= LENGTH; n++) {
            char text[LENGTH];
            int32_t ids[LENGTH];
            rf_tokens out = {0};
            size_t count;

            for (size_t i = 0; i < n; i++) {
                seed = seed * 1664525u + 1013904223u;
                text[i] = (char)(ids[i] = (int32_t)((seed >> 8) % ALPHABET));
            }
            count = merge_literally(kept, MERGES, ids, n);
            assert_int_equal(rf_bpe_encode(b, byte_token, (rf_text){text, n}, &out), 0);
            assert_int_equal(out.count, count);
            assert_memory_equal(out.id, ids, count * sizeof *ids);
            rf_tokens_free(&out);
        }
        rf_bpe_destroy(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point),   cmocka_unit_test(every_short_string),
        cmocka_unit_test(byte_table),         cmocka_unit_test(hash_index),
        cmocka_unit_test(special_tokens),     cmocka_unit_test(printable),
        cmocka_unit_test(splitting),          cmocka_unit_test(splitting_past_the_limit),
        cmocka_unit_test(merging_as_defined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
