/* Packing: the shard of a file's matrix goes to the device row by row. A block type is a row of the table below (how a
 * row of blocks is laid out) and a format in matmul.cu (how a kernel reads it). */
#include "gpu_internal.h"

namespace RT_SPACE {

#define WANTS_F32 1u
#define WANTS_Q8 2u
#define PIECE_BYTES ((size_t)1 << 20) /* of packed rows that are put together before they are sent */
#define MAX_LEVELS 64                 /* of a tree of units */

/* Where a row goes: `first` takes first_bytes(n_cols) of every row, `second` (scales), behind all of them, the rest. */
typedef struct {
    uint32_t type;
    unsigned wants;
    size_t (*first_bytes)(size_t n_cols);
    size_t (*second_bytes)(size_t n_cols);
    void (*pack)(const unsigned char *row, size_t n_cols, unsigned char *first, unsigned char *second);
} packing;

static size_t none(size_t)
{
    return 0;
}

static size_t one_each(size_t n_cols)
{
    return n_cols;
}

static size_t two_each(size_t n_cols)
{
    return 2 * n_cols;
}

static size_t four_each(size_t n_cols)
{
    return 4 * n_cols;
}

static size_t q8_scales(size_t n_cols)
{
    return n_cols / Q8_BLOCK * 2;
}

static void pack_two(const unsigned char *row, size_t n_cols, unsigned char *first, unsigned char *)
{
    memcpy(first, row, 2 * n_cols);
}

static void pack_four(const unsigned char *row, size_t n_cols, unsigned char *first, unsigned char *)
{
    memcpy(first, row, 4 * n_cols);
}

static void pack_q8(const unsigned char *row, size_t n_cols, unsigned char *first, unsigned char *second)
{
    for (size_t kb = 0; kb < n_cols / Q8_BLOCK; kb++, row += 2 + Q8_BLOCK) {
        memcpy(second + 2 * kb, row, 2);
        memcpy(first + Q8_BLOCK * kb, row + 2, Q8_BLOCK);
    }
}

static const packing packings[] = {
    {RF_TYPE_F32, WANTS_F32, four_each, none, pack_four},
    {RF_TYPE_F16, WANTS_F32, two_each, none, pack_two},
    {RF_TYPE_BF16, WANTS_F32, two_each, none, pack_two},
    {RF_TYPE_Q8_0, WANTS_Q8, one_each, q8_scales, pack_q8},
};

static const packing *find(uint32_t type)
{
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++)
        if (packings[i].type == type)
            return &packings[i];
    return NULL;
}

/* ---- sizes */

static size_t packed_bytes(uint32_t type, size_t n_rows, size_t n_cols)
{
    const packing *p = find(type);

    return rf_size_product(n_rows, p->first_bytes(n_cols) + p->second_bytes(n_cols));
}

static size_t plan_words(const rf_weight_spec *s)
{
    return s->n_units ? 3 * s->n_units + s->n_nodes + MAX_LEVELS : 0;
}

static size_t weight_bytes(const rf_weight_spec *s)
{
    size_t data = gpu_alloc_bytes(packed_bytes(s->type, rf_shard_rows(s), rf_shard_cols(s)));

    return s->n_units ? rf_size_sum(data, gpu_alloc_bytes(plan_words(s) * sizeof(uint32_t))) : data;
}

/* ---- rows */

typedef struct {
    const rf_weight_spec *spec;
    const rf_format *format;
    const packing *pack;
    size_t file_row_bytes;
    size_t run, in_run;         /* the next row: in which run, and where in it */
    unsigned char *row;         /* the shard's columns of one file row */
    unsigned char *first, *second; /* packed rows of a piece */
} source;

/* Copies the columns of the shard of the next file row, as stored. */
static void next_row(source *from)
{
    const rf_weight_spec *s = from->spec;
    size_t number = s->n_row_runs ? s->row_runs[from->run].first + from->in_run : from->in_run;
    const unsigned char *in = static_cast<const unsigned char *>(s->data) + number * from->file_row_bytes;
    unsigned char *out = from->row;

    if (!s->n_col_runs)
        memcpy(out, in, from->file_row_bytes);
    for (size_t i = 0; i < s->n_col_runs; i++) {
        size_t bytes = s->col_runs[i].count / from->format->block * from->format->bytes;

        memcpy(out, in + s->col_runs[i].first / from->format->block * from->format->bytes, bytes);
        out += bytes;
    }
    from->in_run++;
    while (s->n_row_runs && from->run + 1 < s->n_row_runs && from->in_run >= s->row_runs[from->run].count) {
        from->run++;
        from->in_run = 0;
    }
}

static void send_rows(rf_weight *w, source *from, size_t n_piece)
{
    size_t first = from->pack->first_bytes(w->n_cols), second = from->pack->second_bytes(w->n_cols);

    for (size_t at = 0; at < w->n_rows; at += n_piece) {
        size_t n = w->n_rows - at < n_piece ? w->n_rows - at : n_piece;

        for (size_t i = 0; i < n; i++) {
            next_row(from);
            from->pack->pack(from->row, w->n_cols, from->first + i * first, from->second + i * second);
        }
        gpu_upload(w->gpu, w->data + at * first, from->first, n * first);
        if (second)
            gpu_upload(w->gpu, w->data + w->n_rows * first + at * second, from->second, n * second);
    }
}

static int pack(rf_weight *w, const rf_weight_spec *s, rf_error *err)
{
    source from = {};
    size_t row_bytes, n_piece;

    from.spec = s;
    from.format = rf_format_find(s->type);
    from.pack = find(s->type);
    from.file_row_bytes = s->n_cols / from.format->block * from.format->bytes;
    while (s->n_row_runs && from.run + 1 < s->n_row_runs && s->row_runs[from.run].count == 0)
        from.run++;
    row_bytes = from.pack->first_bytes(w->n_cols) + from.pack->second_bytes(w->n_cols);
    n_piece = row_bytes && row_bytes < PIECE_BYTES ? PIECE_BYTES / row_bytes : 1;
    from.row = static_cast<unsigned char *>(malloc(from.file_row_bytes + 1));
    from.first = static_cast<unsigned char *>(malloc(n_piece * row_bytes + 1));
    if (from.row && from.first) {
        from.second = from.first + n_piece * from.pack->first_bytes(w->n_cols);
        send_rows(w, &from, n_piece);
    }
    free(from.row);
    free(from.first);
    return from.row && from.first ? 0 : rf_fail(err, RF_ERR_MEMORY, "no memory for packing %s", s->name);
}

/* ---- units and the trees over them */

typedef struct {
    uint32_t level, to, from;
} addition;

/* Additions of the tree over local units [first, first + count); returns its level. */
static uint32_t list_additions(size_t first, size_t count, addition *list, size_t *n)
{
    size_t left = count > 1 ? rf_tree_split(count) : 0;
    uint32_t a, b;

    if (count == 1)
        return 0;
    a = list_additions(first, left, list, n);
    b = list_additions(first + left, count - left, list, n);
    a = (a > b ? a : b) + 1;
    list[(*n)++] = addition{a, (uint32_t)first, (uint32_t)(first + left)};
    return a;
}

static void fill_plan(rf_weight *w, const rf_weight_spec *s, const addition *list, uint32_t *plan)
{
    uint32_t *node_unit = plan + w->n_units, *level_end = node_unit + w->n_nodes, *adds = level_end + w->n_levels;
    uint32_t n = 0;

    for (size_t u = 0; u < w->n_units; u++)
        plan[u] = (uint32_t)s->unit_end[u];
    for (size_t j = 0; j < w->n_nodes; j++)
        node_unit[j] = (uint32_t)s->nodes[j].first;
    for (uint32_t level = 1; level <= w->n_levels; level++) {
        for (size_t i = 0; i < w->n_adds; i++)
            if (list[i].level == level) {
                adds[2 * n] = list[i].to;
                adds[2 * n + 1] = list[i].from;
                n++;
            }
        level_end[level - 1] = n;
    }
}

static int make_plan(rf_weight *w, const rf_weight_spec *s, rf_error *err)
{
    addition *list;
    uint32_t *plan;

    w->n_units = s->n_units;
    w->n_nodes = s->n_nodes;
    w->plan_words = plan_words(s);
    if (!s->n_units)
        return 0;
    list = static_cast<addition *>(calloc(s->n_units, sizeof *list));
    plan = static_cast<uint32_t *>(calloc(w->plan_words, sizeof *plan));
    w->plan = static_cast<uint32_t *>(gpu_alloc(w->gpu, w->plan_words * sizeof *plan, s->name, err));
    if (list && plan && w->plan) {
        for (size_t j = 0; j < s->n_nodes; j++) {
            uint32_t level = list_additions(s->nodes[j].first, s->nodes[j].count, list, &w->n_adds);

            w->n_levels = level > w->n_levels ? level : w->n_levels;
        }
        fill_plan(w, s, list, plan);
        gpu_upload(w->gpu, w->plan, plan, w->plan_words * sizeof *plan);
    }
    free(list);
    free(plan);
    return list && plan && w->plan ? 0 : rf_fail(err, RF_ERR_MEMORY, "no memory for %s", s->name);
}

static void weight_destroy(rf_weight *w)
{
    if (!w)
        return;
    gpu_free(w->gpu, w->data, w->bytes);
    gpu_free(w->gpu, w->plan, w->plan_words * sizeof *w->plan);
    free(w);
}

static rf_weight *weight_create(rf_backend *b, const rf_weight_spec *s, rf_error *err)
{
    rf_weight *w = static_cast<rf_weight *>(calloc(1, sizeof *w));

    if (!w) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for %s", s->name);
        return NULL;
    }
    w->gpu = gpu_of(b);
    w->type = s->type;
    w->n_rows = rf_shard_rows(s);
    w->n_cols = rf_shard_cols(s);
    w->bytes = packed_bytes(s->type, w->n_rows, w->n_cols);
    w->data = static_cast<unsigned char *>(gpu_alloc(w->gpu, w->bytes, s->name, err));
    if (w->data && make_plan(w, s, err) == 0 && pack(w, s, err) == 0)
        return w;
    weight_destroy(w);
    return NULL;
}

static unsigned weight_wants(const rf_weight *w)
{
    return find(w->type)->wants;
}

/* ---- activations */

static size_t act_bytes(size_t max_rows, size_t max_cols)
{
    size_t blocks = rf_act_blocks(max_rows, max_cols);

    return rf_size_sum(gpu_alloc_bytes(rf_size_product(blocks, Q8_BLOCK)),
                       gpu_alloc_bytes(rf_size_product(blocks, sizeof(float))));
}

static void act_destroy(rf_act *act)
{
    size_t blocks;

    if (!act)
        return;
    blocks = rf_act_blocks(act->max_rows, act->max_cols);
    gpu_free(act->gpu, act->q, blocks * Q8_BLOCK);
    gpu_free(act->gpu, act->d, blocks * sizeof *act->d);
    free(act);
}

static rf_act *act_create(rf_backend *b, size_t max_rows, size_t max_cols, rf_error *err)
{
    rf_act *act = static_cast<rf_act *>(calloc(1, sizeof *act));
    size_t blocks = rf_act_blocks(max_rows, max_cols);

    if (!act) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for activations");
        return NULL;
    }
    act->gpu = gpu_of(b);
    act->max_rows = max_rows;
    act->max_cols = max_cols;
    act->q = static_cast<int8_t *>(gpu_alloc(act->gpu, rf_size_product(blocks, Q8_BLOCK), "activations", err));
    act->d = static_cast<float *>(gpu_alloc(act->gpu, rf_size_product(blocks, sizeof *act->d), "activations", err));
    if (act->q && act->d)
        return act;
    act_destroy(act);
    return NULL;
}

void weight_ops(rf_ops *ops)
{
    ops->weight_bytes = weight_bytes;
    ops->weight_create = weight_create;
    ops->weight_destroy = weight_destroy;
    ops->weight_wants = weight_wants;
    ops->act_bytes = act_bytes;
    ops->act_create = act_create;
    ops->act_destroy = act_destroy;
}

} /* namespace */
