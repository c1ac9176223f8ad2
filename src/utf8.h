/* Well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef RF_UTF8_H
#define RF_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed sequence that s starts with (1 to 4), or 0 if there is none within n bytes. */
size_t rf_utf8_length(const char *s, size_t n);
/* How many bytes at the end of s are the start of a sequence that more bytes could complete (0 to 3). */
size_t rf_utf8_unfinished(const char *s, size_t n);
/* The code point of a well-formed sequence of `length` bytes. */
uint32_t rf_utf8_decode(const char *s, size_t length);

#endif
