#include "utf8.h"

/* Length that a lead byte announces (0: not a lead byte), and the range of the byte after it. */
typedef struct {
    size_t length;
    unsigned char low, high;
} lead;

static lead lead_of(unsigned char c)
{
    if (c < 0x80)
        return (lead){1, 0, 0};
    if (c < 0xC2 || c > 0xF4)
        return (lead){0, 0, 0};
    if (c < 0xE0)
        return (lead){2, 0x80, 0xBF};
    if (c < 0xF0)
        return (lead){3, c == 0xE0 ? 0xA0 : 0x80, c == 0xED ? 0x9F : 0xBF};
    return (lead){4, c == 0xF0 ? 0x90 : 0x80, c == 0xF4 ? 0x8F : 0xBF};
}

/* Bytes of s that agree with its lead byte, at most as many as it announces. */
static size_t agreeing(const unsigned char *s, size_t n, lead l)
{
    size_t i = 1;

    if (l.length > 1 && n > 1 && (s[1] < l.low || s[1] > l.high))
        return 1;
    while (i < l.length && i < n && (s[i] & 0xC0) == 0x80)
        i++;
    return i;
}

size_t rf_utf8_length(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    lead l;

    if (n == 0)
        return 0;
    l = lead_of(u[0]);
    return l.length && agreeing(u, n, l) == l.length ? l.length : 0;
}

size_t rf_utf8_unfinished(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;

    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = u[n - back];
        lead l = lead_of(c);

        if ((c & 0xC0) == 0x80)
            continue;
        return l.length > back && agreeing(u + n - back, back, l) == back ? back : 0;
    }
    return 0;
}

uint32_t rf_utf8_decode(const char *s, size_t length)
{
    static const unsigned char lead_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code = (unsigned char)s[0] & lead_bits[length];

    for (size_t i = 1; i < length; i++)
        code = code << 6 | ((unsigned char)s[i] & 0x3Fu);
    return code;
}
