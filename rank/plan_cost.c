#include "plan_cost.h"

#include <stdlib.h>
#include <string.h>

#include "../models/slice.h"

/* What one rank does in a segment. */
typedef struct {
    double weights;  /* bytes, as stored in the file */
    double elements; /* of the matrices: products of a row */
    double cache;    /* bytes a position */
    double states;   /* bytes of DeltaNet states */
    size_t nodes;    /* of the sum at the end; 0: none */
} piece;

typedef struct {
    piece *rank;     /* [n_ranks], a view into the model's */
    size_t window;   /* positions of the cache that are read at most; 0: all */
} segment;

typedef enum {
    TAIL_HEAD,
    TAIL_EH_PROJ,
    TAIL_MTP_HEAD,
    TAIL_FC,
    TAIL_INJECT, /* keys and values of the taps */
    TAIL_SELECTOR,
    TAIL_DRAFT_HEAD,
    N_TAIL
} tail_segment;

struct rf_cost_model {
    const rf_plan *plan;
    int n_ranks;
    bool by_layers;
    size_t n_embd, n_layer, n_draft_layer;
    size_t n_segments;
    /* Sublayers of layer i are 2i and 2i + 1: trunk, then the MTP block, then the drafter; then the tail's. */
    segment *segments;
    piece *pieces; /* [n_segments][n_ranks] */
};

/* ---- Exchanges */

double rf_cost_sum(const rf_machine *m, int n_ranks, size_t nodes, double bytes)
{
    double others = n_ranks - 1, sent = (double)nodes * bytes;

    if (n_ranks == 1)
        return 0;
    if (sent <= (double)RF_TWO_SHOT_BYTES)
        return m->latency + others * sent / m->link;
    return 2 * m->latency + others / n_ranks * (sent + bytes) / m->link;
}

double rf_cost_allgather(const rf_machine *m, int n_ranks, double bytes)
{
    return n_ranks == 1 ? 0 : m->latency + (n_ranks - 1) * (bytes / n_ranks) / m->link;
}

double rf_cost_control(const rf_machine *m, int n_ranks)
{
    double hops = 0;

    for (int reached = 1; reached < n_ranks; reached *= 2)
        hops++;
    return hops * m->latency;
}

/* ---- Segments */

static segment *trunk(const rf_cost_model *c, size_t layer, bool ffn)
{
    return &c->segments[2 * layer + ffn];
}

static segment *mtp(const rf_cost_model *c, bool ffn)
{
    return trunk(c, c->n_layer, ffn);
}

static segment *draft(const rf_cost_model *c, size_t layer, bool ffn)
{
    return trunk(c, c->n_layer + 1 + layer, ffn);
}

static segment *tail(const rf_cost_model *c, tail_segment which)
{
    return trunk(c, c->n_layer + 1 + c->n_draft_layer, false) + which;
}

static const struct {
    const char *part;
    tail_segment segment;
} tails[] = {
    {"nextn.eh_proj", TAIL_EH_PROJ}, {"nextn.enorm", TAIL_EH_PROJ},      {"nextn.hnorm", TAIL_EH_PROJ},
    {"nextn.", TAIL_MTP_HEAD},       {"fc.weight", TAIL_FC},             {"enc.output_norm", TAIL_FC},
    {"hidden_norm", TAIL_FC},        {"selector_hidden", TAIL_SELECTOR},
};

/* The segment that a tensor belongs to. */
static segment *place(const rf_cost_model *c, const rf_tensor_want *want, bool of_drafter)
{
    bool ffn = strstr(want->name, "ffn_") || strstr(want->name, "post_attention_norm");

    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (strstr(want->name, tails[i].part))
            return tail(c, tails[i].segment);
    if (strncmp(want->name, "blk.", 4) != 0)
        return tail(c, of_drafter ? TAIL_DRAFT_HEAD : TAIL_HEAD);
    if (of_drafter)
        return draft(c, want->layer, ffn);
    return want->part == RF_PART_TAIL ? mtp(c, ffn) : trunk(c, want->layer, ffn);
}

static void add(piece *to, double bytes, double elements, size_t nodes)
{
    to->weights += bytes;
    to->elements += elements;
    to->nodes = nodes > to->nodes ? nodes : to->nodes;
}

static int add_tensor(rf_cost_model *c, const rf_tensor_want *want, const rf_tensor *t, bool of_drafter, rf_error *err)
{
    segment *s = place(c, want, of_drafter);
    bool injects = of_drafter && (strstr(want->name, "attn_k.") || strstr(want->name, "attn_v."));

    for (int r = 0; r < c->n_ranks; r++) {
        rf_shard shard;
        rf_slice slice = {0};
        double elements, bytes;

        rf_plan_shard(c->plan, r, &shard);
        if (!rf_slice_held(want, &shard))
            continue;
        if (rf_slice_make(want, &shard, &slice, err) != 0)
            return -1;
        elements = (double)slice.n_rows * (double)slice.n_cols;
        bytes = elements / (double)t->format->block * (double)t->format->bytes;
        add(&s->rank[r], bytes, want->vector ? 0 : elements, slice.n_nodes);
        if (injects)
            add(&tail(c, TAIL_INJECT)->rank[r], bytes, elements, 0);
        rf_slice_free(&slice);
    }
    return 0;
}

static int add_file(rf_cost_model *c, const rf_gguf *file, rf_tensor_want *wants, size_t n, bool of_drafter,
                    rf_error *err)
{
    int failed = wants ? 0 : -1;

    for (size_t i = 0; !failed && i < n; i++) {
        const rf_tensor *t = rf_gguf_find(file, wants[i].name);

        if (t)
            failed = add_tensor(c, &wants[i], t, of_drafter, err);
    }
    free(wants);
    return failed;
}

/* ---- Caches and states */

static double position_bytes(const rf_shard *shard, rf_axis_id axis, size_t n_head, size_t n_head_kv, size_t head_dim,
                             const rf_model_sizes *sizes)
{
    rf_range heads = rf_shard_units(shard, axis);
    size_t both = rf_format_find(sizes->type_k)->bytes + rf_format_find(sizes->type_v)->bytes;

    return heads.count ? (double)(rf_kv_heads(heads, n_head, n_head_kv).count * head_dim * both) : 0;
}

static void add_caches(rf_cost_model *c, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes)
{
    const rf_plan_spec *spec = rf_plan_spec_of(c->plan);
    const rf_qwen35_params *p = spec->target;
    const rf_dflash_params *d = spec->drafter;
    double state = (double)(p->n_value_heads / p->n_key_heads * p->state_size * p->state_size) * sizeof(float);

    for (int r = 0; r < c->n_ranks; r++) {
        rf_shard shard;
        double position;

        rf_plan_shard(c->plan, r, &shard);
        position = position_bytes(&shard, RF_AXIS_HEADS, p->n_head, p->n_head_kv, p->head_dim, sizes);
        for (size_t i = shard.first_layer; i < shard.first_layer + shard.n_layers; i++)
            if (p->full_attention[i])
                trunk(c, i, false)->rank[r].cache = position;
            else
                trunk(c, i, false)->rank[r].states = state * (double)rf_shard_units(&shard, RF_AXIS_KEY_HEADS).count;
        if (!shard.tail)
            continue;
        if (spec->with_mtp)
            mtp(c, false)->rank[r].cache = position;
        for (size_t i = 0; i < c->n_draft_layer; i++) {
            draft(c, i, false)->rank[r].cache =
                position_bytes(&shard, RF_AXIS_DRAFT_HEADS, d->n_head, d->n_head_kv, d->head_dim, drafter_sizes);
            draft(c, i, false)->window = d->window[i];
        }
    }
}

/* A drafter or MTP head without an output matrix of its own uses the target's. */
static void share_head(rf_cost_model *c, tail_segment with)
{
    for (int r = 0; r < c->n_ranks; r++) {
        const piece *head = &tail(c, TAIL_HEAD)->rank[r];

        add(&tail(c, with)->rank[r], head->weights, head->elements, 0);
    }
}

static int count(rf_cost_model *c, rf_error *err)
{
    const rf_plan_spec *s = rf_plan_spec_of(c->plan);
    size_t n;
    rf_tensor_want *wants = rf_qwen35_tensors(s->target, s->with_mtp, &n, err);

    if (add_file(c, s->target_file, wants, n, false, err) != 0)
        return -1;
    if (!s->target->mtp_own_head)
        share_head(c, TAIL_MTP_HEAD);
    if (!s->drafter)
        return 0;
    wants = rf_dflash_tensors(s->drafter, &n, err);
    if (add_file(c, s->drafter_file, wants, n, true, err) != 0)
        return -1;
    if (!s->drafter->own_output)
        share_head(c, TAIL_DRAFT_HEAD);
    return 0;
}

rf_cost_model *rf_cost_model_create(const rf_plan *p, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes,
                                    rf_error *err)
{
    const rf_plan_spec *s = rf_plan_spec_of(p);
    rf_cost_model *c = calloc(1, sizeof *c);

    if (!c) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for the cost model");
        return NULL;
    }
    c->plan = p;
    c->n_ranks = s->n_ranks;
    c->by_layers = s->split == RF_SPLIT_LAYER;
    c->n_embd = s->target->n_embd;
    c->n_layer = s->target->n_layer;
    c->n_draft_layer = s->drafter ? s->drafter->n_layer : 0;
    c->n_segments = 2 * (c->n_layer + 1 + c->n_draft_layer) + N_TAIL;
    c->segments = calloc(c->n_segments, sizeof *c->segments);
    c->pieces = calloc(c->n_segments * (size_t)c->n_ranks, sizeof *c->pieces);
    if (!c->segments || !c->pieces) {
        rf_cost_model_destroy(c);
        rf_fail(err, RF_ERR_MEMORY, "no memory for the cost model");
        return NULL;
    }
    for (size_t i = 0; i < c->n_segments; i++)
        c->segments[i].rank = c->pieces + i * (size_t)c->n_ranks;
    add_caches(c, sizes, drafter_sizes);
    if (count(c, err) == 0)
        return c;
    rf_cost_model_destroy(c);
    return NULL;
}

void rf_cost_model_destroy(rf_cost_model *c)
{
    if (!c)
        return;
    free(c->segments);
    free(c->pieces);
    free(c);
}

/* ---- Steps */

static void exchange(rf_cost *sum, double seconds)
{
    sum->exchange += seconds;
    sum->seconds += seconds;
}

/* A segment of `rows` rows, after depth positions; states are moved `passes` times. In tensor mode its sum follows. */
static void run(const rf_cost_model *c, const rf_machine *m, const segment *s, size_t rows, size_t depth, double passes,
                rf_cost *sum)
{
    double longest = 0, seen = (double)(s->window && s->window < depth ? s->window : depth);
    bool by_products = false;
    size_t nodes = 0;

    for (int r = 0; r < c->n_ranks; r++) {
        const piece *p = &s->rank[r];
        double bytes = p->weights + p->cache * (seen + (double)rows) + passes * p->states;
        double reading = bytes / (m->read * m->read_reached);
        double multiplying = (double)rows * p->elements / (m->products * m->products_reached);

        nodes = p->nodes > nodes ? p->nodes : nodes;
        if (reading > longest || multiplying > longest) {
            by_products = multiplying > reading;
            longest = by_products ? multiplying : reading;
        }
    }
    *(by_products ? &sum->multiplying : &sum->reading) += longest;
    sum->seconds += longest;
    if (nodes && !c->by_layers)
        exchange(sum, rf_cost_sum(m, c->n_ranks, nodes, (double)(rows * c->n_embd) * sizeof(float)));
}

/* Layer mode: x, and the taps captured so far, go from rank to rank. */
static void hand_over(const rf_cost_model *c, const rf_machine *m, size_t rows, rf_cost *sum)
{
    const rf_plan_spec *s = rf_plan_spec_of(c->plan);

    for (int r = 0; c->by_layers && r + 1 < c->n_ranks; r++) {
        size_t vectors = 1;
        rf_shard shard;

        rf_plan_shard(c->plan, r, &shard);
        for (size_t i = 0; s->drafter && i < s->drafter->n_taps; i++)
            vectors += s->drafter->taps[i] < shard.first_layer + shard.n_layers;
        exchange(sum, m->latency + (double)(vectors * rows * c->n_embd) * sizeof(float) / m->link);
    }
}

static void run_trunk(const rf_cost_model *c, const rf_machine *m, size_t rows, size_t depth, double passes,
                      rf_cost *sum)
{
    for (size_t i = 0; i < 2 * c->n_layer; i++)
        run(c, m, &c->segments[i], rows, depth, passes, sum);
    hand_over(c, m, rows, sum);
}

static void gather_columns(const rf_cost_model *c, const rf_machine *m, size_t rows, rf_cost *sum)
{
    if (!c->by_layers)
        exchange(sum, rf_cost_allgather(m, c->n_ranks, (double)(rows * c->n_embd) * sizeof(float)));
}

/* The MTP block over rows, and logits of head_rows of them. */
static void run_mtp(const rf_cost_model *c, const rf_machine *m, size_t rows, size_t head_rows, size_t depth,
                    rf_cost *sum)
{
    run(c, m, tail(c, TAIL_EH_PROJ), rows, 0, 0, sum);
    gather_columns(c, m, rows, sum);
    run(c, m, mtp(c, false), rows, depth, 0, sum);
    run(c, m, mtp(c, true), rows, depth, 0, sum);
    if (head_rows)
        run(c, m, tail(c, TAIL_MTP_HEAD), head_rows, 0, 0, sum);
}

static void inject(const rf_cost_model *c, const rf_machine *m, size_t rows, rf_cost *sum)
{
    run(c, m, tail(c, TAIL_FC), rows, 0, 0, sum);
    gather_columns(c, m, rows, sum);
    run(c, m, tail(c, TAIL_INJECT), rows, 0, 0, sum);
}

static void control(const rf_cost_model *c, const rf_machine *m, size_t n, rf_cost *sum)
{
    exchange(sum, (double)n * rf_cost_control(m, c->n_ranks));
}

rf_cost rf_cost_prefill(const rf_cost_model *c, const rf_machine *m, size_t depth, size_t n, size_t chunk)
{
    const rf_plan_spec *s = rf_plan_spec_of(c->plan);
    rf_cost sum = {0};

    for (size_t at = 0; at < n; at += chunk) {
        size_t rows = n - at < chunk ? n - at : chunk;

        run_trunk(c, m, rows, depth + at, 2, &sum);
        if (s->drafter)
            inject(c, m, rows, &sum);
        if (s->with_mtp)
            run_mtp(c, m, rows, 0, depth + at, &sum);
        control(c, m, 1, &sum);
    }
    run(c, m, tail(c, TAIL_HEAD), 1, 0, 0, &sum);
    control(c, m, 1, &sum);
    return sum;
}

rf_cost rf_cost_verify(const rf_cost_model *c, const rf_machine *m, size_t depth, size_t rows)
{
    rf_cost sum = {0};

    run_trunk(c, m, rows, depth, 1, &sum);
    run(c, m, tail(c, TAIL_HEAD), rows, 0, 0, &sum);
    control(c, m, 2, &sum);
    return sum;
}

/* The states are written by the next pass that reads them anyway. */
static void commit(const rf_cost_model *c, const rf_machine *m, rf_cost *sum)
{
    for (size_t i = 0; i < c->n_layer; i++) {
        double longest = 0;

        for (int r = 0; r < c->n_ranks; r++) {
            double states = trunk(c, i, false)->rank[r].states;

            longest = states > longest ? states : longest;
        }
        sum->reading += longest / (m->read * m->read_reached);
        sum->seconds += longest / (m->read * m->read_reached);
    }
}

rf_cost rf_cost_decode(const rf_cost_model *c, const rf_machine *m, size_t depth)
{
    rf_cost sum = rf_cost_verify(c, m, depth, 1);

    commit(c, m, &sum);
    return sum;
}

static void draft_block(const rf_cost_model *c, const rf_machine *m, size_t depth, size_t drafts, rf_cost *sum)
{
    for (size_t i = 0; i < c->n_draft_layer; i++) {
        run(c, m, draft(c, i, false), drafts + 1, depth, 0, sum);
        run(c, m, draft(c, i, true), drafts + 1, depth, 0, sum);
    }
    run(c, m, tail(c, TAIL_SELECTOR), drafts, 0, 0, sum);
    run(c, m, tail(c, TAIL_DRAFT_HEAD), drafts, 0, 0, sum);
    control(c, m, 2, sum);
}

rf_cost rf_cost_round(const rf_cost_model *c, const rf_machine *m, size_t depth, size_t drafts)
{
    const rf_plan_spec *s = rf_plan_spec_of(c->plan);
    rf_cost sum = rf_cost_verify(c, m, depth, drafts + 1);

    commit(c, m, &sum);
    if (s->drafter) {
        draft_block(c, m, depth, drafts, &sum);
        inject(c, m, drafts + 1, &sum);
    } else if (s->with_mtp) { /* the commit's last row gives the first draft */
        run_mtp(c, m, drafts + 1, 1, depth, &sum);
        for (size_t i = 1; i < drafts; i++)
            run_mtp(c, m, 1, 1, depth, &sum);
        control(c, m, 2 * drafts, &sum);
    }
    return sum;
}
