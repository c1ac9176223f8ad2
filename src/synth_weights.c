#include "config.h"

#include "synth_weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "half.h"

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define PROBE_BLOCKS 2048 /* measured to learn the spread of a type's random blocks */
#define MAX_TYPE 64
#define NO_FIELD (-1)

/* Where the scales of a block stand; everything else in it may be random bits. As ggml lays the types out. */
typedef struct {
    uint32_t type;
    int scale, minimum; /* byte offsets of f16 fields; NO_FIELD: none */
} block_layout;

static const block_layout layouts[] = {
    {2, 0, NO_FIELD},  /* Q4_0 */
    {3, 0, 2},         /* Q4_1 */
    {6, 0, NO_FIELD},  /* Q5_0 */
    {7, 0, 2},         /* Q5_1 */
    {RF_TYPE_Q8_0, 0, NO_FIELD},
    {10, 80, 82},      /* Q2_K */
    {11, 108, NO_FIELD}, /* Q3_K */
    {12, 0, 2},        /* Q4_K */
    {13, 0, 2},        /* Q5_K */
    {14, 208, NO_FIELD}, /* Q6_K */
    {20, 0, NO_FIELD}, /* IQ4_NL */
    {23, 0, NO_FIELD}, /* IQ4_XS */
};

static const block_layout *layout_of(uint32_t type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].type == type)
            return &layouts[i];
    return NULL;
}

static int usable(const rf_format *f)
{
    return f && f->unpack &&
           (f->type == RF_TYPE_F32 || f->type == RF_TYPE_F16 || f->type == RF_TYPE_BF16 || layout_of(f->type));
}

const rf_format *rf_synth_format(const char *flag, const char *name, rf_error *err)
{
    char names[240] = "";

    for (uint32_t type = 0; type < MAX_TYPE; type++) {
        const rf_format *f = rf_format_find(type);
        size_t used = strlen(names);

        if (!usable(f))
            continue;
        if (strcmp(f->name, name) == 0)
            return f;
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", f->name);
    }
    rf_fail(err, RF_ERR_USAGE, "%s %.40s: expected one of %s", flag, name, names);
    return NULL;
}

/* The finaliser of SplitMix64. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Number i of the stream of a key. */
static uint64_t word(uint64_t key, uint64_t i)
{
    return mix(key + (i + 1) * GOLDEN);
}

/* Uniform in [0, 1). */
static double unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

static void put_half(unsigned char *at, double value)
{
    uint16_t h = rf_f32_to_f16((float)value);

    memcpy(at, &h, sizeof h);
}

/* One block: random bits, then its scale, a quarter more or less from block to block (a scale read from the wrong block
 * must show), and the minimum that goes with it. */
static void make_block(const rf_synth_source *s, const block_layout *l, size_t index, unsigned char *out)
{
    size_t bytes = s->format->bytes, words = bytes / 8 + 2;
    uint64_t base = (uint64_t)index * words;
    double scale;

    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t bits = word(s->key, base + at / 8);

        memcpy(out + at, &bits, bytes - at < 8 ? bytes - at : 8);
    }
    if (s->format->type == RF_TYPE_Q8_0) /* quantisers never write -128 */
        for (size_t i = 2; i < bytes; i++)
            out[i] = out[i] == 0x80 ? 0 : out[i];
    scale = s->scale * (0.75 + 0.5 * unit(word(s->key, base + words - 1)));
    put_half(out + l->scale, scale);
    if (l->minimum != NO_FIELD)
        put_half(out + l->minimum, scale * s->min_ratio);
}

/* Mean and standard deviation of the weights of the first blocks, as the source stands; with `only_minimum` of what
 * minimum fields of 1 alone contribute. */
static void probe(const rf_synth_source *s, const block_layout *l, int only_minimum, double *mean, double *spread)
{
    unsigned char bytes[512];
    float weights[256];
    double sum = 0, squares = 0, n = (double)(PROBE_BLOCKS * s->format->block);

    for (size_t b = 0; b < PROBE_BLOCKS; b++) {
        make_block(s, l, b, bytes);
        if (only_minimum) {
            put_half(bytes + l->scale, 0);
            put_half(bytes + l->minimum, 1);
        }
        s->format->unpack(bytes, weights, s->format->block);
        for (size_t i = 0; i < s->format->block; i++) {
            sum += weights[i];
            squares += (double)weights[i] * weights[i];
        }
    }
    *mean = sum / n;
    *spread = sqrt(squares / n - *mean * *mean);
}

/* The probe runs over a key of its own: a type's scale is the same for all tensors. */
static void set_scale(rf_synth_source *s, const block_layout *l, double spread)
{
    rf_synth_source unscaled = {.format = s->format, .key = s->format->type, .scale = 1};
    double mean, minimum_mean, measured;

    probe(&unscaled, l, 0, &mean, &measured);
    if (l->minimum != NO_FIELD) {
        probe(&unscaled, l, 1, &minimum_mean, &measured);
        unscaled.min_ratio = -mean / minimum_mean;
        probe(&unscaled, l, 0, &mean, &measured);
    }
    s->min_ratio = unscaled.min_ratio;
    s->scale = spread / measured;
}

void rf_synth_source_init(rf_synth_source *s, const rf_format *format, uint64_t seed, const char *name,
                          rf_synth_range range)
{
    const block_layout *l = layout_of(format->type);
    uint64_t hash = UINT64_C(0xCBF29CE484222325); /* FNV-1a */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001B3);
    *s = (rf_synth_source){
        .format = format,
        .key = mix(hash ^ mix(seed + GOLDEN)),
        .center = range.center,
        .half_width = range.spread * sqrt(3.0), /* of a uniform draw with that deviation */
    };
    if (l)
        set_scale(s, l, range.spread);
}

static void make_numbers(const rf_synth_source *s, size_t first, size_t n, unsigned char *out)
{
    for (size_t i = 0; i < n; i++) {
        float value = (float)(s->center + s->half_width * (2 * unit(word(s->key, first + i)) - 1));
        uint16_t half = s->format->type == RF_TYPE_F16 ? rf_f32_to_f16(value) : rf_f32_to_bf16(value);

        if (s->format->type == RF_TYPE_F32)
            memcpy(out + 4 * i, &value, 4);
        else
            memcpy(out + 2 * i, &half, 2);
    }
}

void rf_synth_blocks(const rf_synth_source *s, size_t first, size_t n, unsigned char *out)
{
    const block_layout *l = layout_of(s->format->type);

    if (!l) {
        make_numbers(s, first, n, out);
        return;
    }
    for (size_t b = 0; b < n; b++)
        make_block(s, l, first + b, out + b * s->format->bytes);
}
