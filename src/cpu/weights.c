/* Packing: the shard of a file's matrix goes into the layout the kernels stream, each block by the thread that will use
 * it. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../quant.h"
#include "cpu_internal.h"

#define MAPPED_AT_ONCE ((size_t)1 << 20) /* bytes of the file */
#define WANTS_F32 1u
#define WANTS_Q8 2u

typedef struct {
    const rf_weight_spec *spec;
    const rf_format *format;
    size_t *rows;          /* [n_rows] row of the file */
    size_t file_row_bytes;
} source;

static size_t packed_bytes(uint32_t type, size_t n_rows, size_t n_cols)
{
    const rf_format *f = rf_format_find(type);
    size_t blocks = (n_rows + OUT_LANES - 1) / OUT_LANES;

    return blocks * OUT_LANES * (n_cols / f->block * f->bytes);
}

static size_t weight_bytes(const rf_weight_spec *s)
{
    return cpu_alloc_bytes(packed_bytes(s->type, rf_shard_rows(s), rf_shard_cols(s)));
}

/* The columns of the shard of one file row, as stored: in place, or gathered into `space`. */
static const unsigned char *gather_columns(const source *from, size_t row, unsigned char *space)
{
    const rf_weight_spec *s = from->spec;
    const unsigned char *in = (const unsigned char *)s->data + row * from->file_row_bytes;
    unsigned char *out = space;

    if (!s->n_col_runs)
        return in;
    for (size_t i = 0; i < s->n_col_runs; i++) {
        size_t bytes = s->col_runs[i].count / from->format->block * from->format->bytes;

        memcpy(out, in + s->col_runs[i].first / from->format->block * from->format->bytes, bytes);
        out += bytes;
    }
    return space;
}

/* Bytes become q + 128; four columns of a row stay together. */
static void pack_q8_row(rf_weight *w, size_t block, size_t lane, const unsigned char *row)
{
    size_t n_kb = w->n_cols / Q8_BLOCK;
    unsigned char *tile = w->data + block * n_kb * Q8_TILE_BYTES + lane * 4;
    unsigned char *scales = w->data + w->n_blocks * n_kb * Q8_TILE_BYTES + (block * n_kb * OUT_LANES + lane) * 2;

    for (size_t kb = 0; kb < n_kb; kb++, row += 2 + Q8_BLOCK, tile += Q8_TILE_BYTES) {
        memcpy(scales + kb * OUT_LANES * 2, row, 2);
        for (size_t group = 0; group < Q8_BLOCK / 4; group++) {
            uint32_t four;

            memcpy(&four, row + 2 + group * 4, sizeof four);
            four ^= 0x80808080u;
            memcpy(tile + group * 4 * OUT_LANES, &four, sizeof four);
        }
    }
}

static void pack_float_row(rf_weight *w, size_t block, size_t lane, size_t size, const unsigned char *row)
{
    unsigned char *out = w->data + block * w->n_cols * OUT_LANES * size;

    for (size_t k = 0; k < w->n_cols; k++)
        memcpy(out + (k * OUT_LANES + lane) * size, row + k * size, size);
}

static void pack_block(rf_weight *w, const source *from, size_t block, unsigned char *space)
{
    for (size_t lane = 0; lane < OUT_LANES && block * OUT_LANES + lane < w->n_rows; lane++) {
        const unsigned char *row = gather_columns(from, from->rows[block * OUT_LANES + lane], space);

        if (w->type == RF_TYPE_Q8_0)
            pack_q8_row(w, block, lane, row);
        else
            pack_float_row(w, block, lane, from->format->bytes, row);
    }
}

static size_t *list_rows(const rf_weight_spec *s, size_t n_rows)
{
    size_t *rows = malloc((n_rows + 1) * sizeof *rows), n = 0;

    if (!rows)
        return NULL;
    for (size_t i = 0; i < s->n_row_runs; i++)
        for (size_t r = 0; r < s->row_runs[i].count; r++)
            rows[n++] = s->row_runs[i].first + r;
    for (; n < n_rows; n++) /* no runs: all rows */
        rows[n] = n;
    return rows;
}

typedef struct {
    rf_weight *w;
    const source *from;
    atomic_bool *failed;
} pack_work;

/* Whole rows of the file are mapped a piece at a time, which is faster than page by page when they are touched. Where
 * the system cannot, touching does it. */
static void map_rows(const pack_work *k, size_t first, size_t end)
{
#ifdef MADV_POPULATE_READ
    const source *from = k->from;
    size_t row = from->rows[first * OUT_LANES], last = end * OUT_LANES < k->w->n_rows ? end * OUT_LANES : k->w->n_rows;
    uintptr_t at = (uintptr_t)from->spec->data + row * from->file_row_bytes, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    size_t rows = from->rows[last - 1] + 1 - row;

    if (!from->spec->n_col_runs && rows == last - first * OUT_LANES) /* in one piece */
        madvise((void *)(at / page * page), rows * from->file_row_bytes + at % page, MADV_POPULATE_READ);
#else
    (void)k;
    (void)first;
    (void)end;
#endif
}

/* The same blocks as in the matmul: a thread's own weights are in memory that it touched first. */
static void pack_part(const void *work, size_t first, size_t end)
{
    const pack_work *k = work;
    unsigned char *space = malloc(k->from->file_row_bytes + 1);
    size_t blocks = MAPPED_AT_ONCE / (OUT_LANES * k->from->file_row_bytes) + 1;

    if (!space) {
        atomic_store(k->failed, true);
        return;
    }
    for (; first < end; first += blocks) {
        size_t to = end - first < blocks ? end : first + blocks;

        map_rows(k, first, to);
        for (size_t block = first; block < to; block++)
            pack_block(k->w, k->from, block, space);
    }
    free(space);
}

static int pack(rf_weight *w, const rf_weight_spec *s, rf_error *err)
{
    source from = {s, rf_format_find(s->type), list_rows(s, w->n_rows), 0};
    atomic_bool failed = false;
    pack_work work = {w, &from, &failed};

    from.file_row_bytes = s->n_cols / from.format->block * from.format->bytes;
    if (!from.rows)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for packing %s", s->name);
    cpu_team_each(&w->cpu->team, w->n_blocks, pack_part, &work);
    free(from.rows);
    return failed ? rf_fail(err, RF_ERR_MEMORY, "no memory for packing %s", s->name) : 0;
}

/* A weight without units is one. */
static int copy_units(rf_weight *w, const rf_weight_spec *s, rf_error *err)
{
    w->n_units = s->n_units ? s->n_units : 1;
    w->n_nodes = s->n_nodes;
    w->unit_end = malloc(w->n_units * sizeof *w->unit_end);
    w->nodes = malloc((s->n_nodes + 1) * sizeof *w->nodes);
    if (!w->unit_end || !w->nodes)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for %s", s->name);
    if (s->n_units)
        memcpy(w->unit_end, s->unit_end, s->n_units * sizeof *w->unit_end);
    else
        w->unit_end[0] = w->n_cols;
    if (s->n_nodes)
        memcpy(w->nodes, s->nodes, s->n_nodes * sizeof *w->nodes);
    return 0;
}

static void weight_destroy(rf_weight *w)
{
    if (!w)
        return;
    cpu_free(w->cpu, w->data, w->bytes);
    free(w->unit_end);
    free(w->nodes);
    free(w);
}

static rf_weight *weight_create(rf_backend *b, const rf_weight_spec *s, rf_error *err)
{
    rf_weight *w = calloc(1, sizeof *w);

    if (!w) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for %s", s->name);
        return NULL;
    }
    w->cpu = cpu_of(b);
    w->type = s->type;
    w->n_rows = rf_shard_rows(s);
    w->n_cols = rf_shard_cols(s);
    w->n_blocks = (w->n_rows + OUT_LANES - 1) / OUT_LANES;
    w->bytes = packed_bytes(s->type, w->n_rows, w->n_cols);
    w->data = cpu_alloc(w->cpu, w->bytes, s->name, err);
    if (w->data && copy_units(w, s, err) == 0 && pack(w, s, err) == 0)
        return w;
    weight_destroy(w);
    return NULL;
}

static unsigned weight_wants(const rf_weight *w)
{
    return w->type == RF_TYPE_Q8_0 ? WANTS_Q8 : WANTS_F32;
}

static size_t act_bytes(size_t max_rows, size_t max_cols)
{
    size_t blocks = rf_act_blocks(max_rows, max_cols);

    size_t numbers = cpu_alloc_bytes(rf_size_product(blocks, sizeof(float))); /* scales; as many offsets */

    return rf_size_sum(cpu_alloc_bytes(rf_size_product(blocks, Q8_BLOCK)), rf_size_sum(numbers, numbers));
}

static void act_destroy(rf_act *act)
{
    size_t blocks;

    if (!act)
        return;
    blocks = rf_act_blocks(act->max_rows, act->max_cols);
    cpu_free(act->cpu, act->q, blocks * Q8_BLOCK);
    cpu_free(act->cpu, act->d, blocks * sizeof *act->d);
    cpu_free(act->cpu, act->offset, blocks * sizeof *act->offset);
    free(act);
}

static rf_act *act_create(rf_backend *b, size_t max_rows, size_t max_cols, rf_error *err)
{
    rf_act *act = calloc(1, sizeof *act);
    size_t blocks = rf_act_blocks(max_rows, max_cols);

    if (!act) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for activations");
        return NULL;
    }
    act->cpu = cpu_of(b);
    act->max_rows = max_rows;
    act->max_cols = max_cols;
    act->q = cpu_alloc(act->cpu, rf_size_product(blocks, Q8_BLOCK), "activations", err);
    act->d = cpu_alloc(act->cpu, rf_size_product(blocks, sizeof *act->d), "activations", err);
    act->offset = cpu_alloc(act->cpu, rf_size_product(blocks, sizeof *act->offset), "activations", err);
    if (act->q && act->d && act->offset)
        return act;
    act_destroy(act);
    return NULL;
}

void cpu_weight_ops(rf_ops *ops)
{
    ops->weight_bytes = weight_bytes;
    ops->weight_create = weight_create;
    ops->weight_destroy = weight_destroy;
    ops->weight_wants = weight_wants;
    ops->act_bytes = act_bytes;
    ops->act_create = act_create;
    ops->act_destroy = act_destroy;
}
