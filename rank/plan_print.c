#include "../models/slice.h"
#include "plan.h"

#define MIB (1024.0 * 1024.0)

typedef struct {
    const char *title;
    rf_axis_id axis;
    bool kv; /* the KV heads that the query heads of the axis read */
} column;

static const column columns[] = {
    {"heads", RF_AXIS_HEADS, false},
    {"kv heads", RF_AXIS_HEADS, true},
    {"key heads", RF_AXIS_KEY_HEADS, false},
    {"ffn", RF_AXIS_FFN, false},
    {"vocab", RF_AXIS_VOCAB, false},
    {"embd", RF_AXIS_EMBD, false},
    {"draft heads", RF_AXIS_DRAFT_HEADS, false},
    {"draft kv", RF_AXIS_DRAFT_HEADS, true},
    {"draft ffn", RF_AXIS_DRAFT_FFN, false},
    {"draft vocab", RF_AXIS_DRAFT_VOCAB, false},
};
#define N_COLUMNS (sizeof columns / sizeof *columns)

static size_t n_kv_heads(const rf_plan *p, rf_axis_id axis)
{
    const rf_plan_spec *s = rf_plan_spec_of(p);

    return axis == RF_AXIS_HEADS ? s->target->n_head_kv : s->drafter->n_head_kv;
}

/* "first-end", with a * where a lower rank holds the first KV head too. */
static void print_range(const rf_plan *p, const rf_shard *shard, const column *c, FILE *out)
{
    rf_range units = rf_shard_units(shard, c->axis);
    size_t n_heads = shard->axis[c->axis].n_units;
    bool again = false;
    char text[64];

    if (c->kv) {
        again = units.first % (n_heads / n_kv_heads(p, c->axis)) != 0;
        units = rf_kv_heads(units, n_heads, n_kv_heads(p, c->axis));
    }
    snprintf(text, sizeof text, "%zu-%zu%s", units.first, units.first + units.count, again ? "*" : "");
    fprintf(out, " %11s", text);
}

static void print_units(const rf_plan *p, FILE *out)
{
    const rf_plan_spec *s = rf_plan_spec_of(p);
    rf_shard shard;

    rf_plan_shard(p, 0, &shard);
    fprintf(out, "\nunits of each rank, first-end (the end is the next rank's); *: the first KV head is held by a "
                 "lower rank, too\n rank");
    for (size_t i = 0; i < N_COLUMNS; i++)
        if (shard.axis[columns[i].axis].n_units)
            fprintf(out, " %11s", columns[i].title);
    for (int r = 0; r < s->n_ranks; r++) {
        rf_plan_shard(p, r, &shard);
        fprintf(out, "\n%5d", r);
        for (size_t i = 0; i < N_COLUMNS; i++)
            if (shard.axis[columns[i].axis].n_units)
                print_range(p, &shard, &columns[i], out);
    }
    fprintf(out, "\n   of");
    for (size_t i = 0; i < N_COLUMNS; i++)
        if (shard.axis[columns[i].axis].n_units)
            fprintf(out, " %11zu",
                    columns[i].kv ? n_kv_heads(p, columns[i].axis) : shard.axis[columns[i].axis].n_units);
    fprintf(out, "\n");
}

static void print_layers(const rf_plan *p, FILE *out)
{
    fprintf(out, "\nlayers of each rank, first-end (the end is the next rank's)\n rank      layers       count\n");
    for (int r = 0; r < rf_plan_spec_of(p)->n_ranks; r++) {
        rf_shard shard;
        char text[64];

        rf_plan_shard(p, r, &shard);
        snprintf(text, sizeof text, "%zu-%zu", shard.first_layer, shard.first_layer + shard.n_layers);
        fprintf(out, "%5d %11s %11zu%s\n", r, text, shard.n_layers, shard.tail ? "  output and drafters" : "");
    }
}

static int print_memory(const rf_plan *p, const rf_ops *ops, const rf_model_sizes *sizes,
                        const rf_model_sizes *drafter_sizes, size_t max_collect, size_t available, FILE *out,
                        rf_error *err)
{
    fprintf(out, "\nmemory per rank in MiB, %zu positions, %zu sequences\n", sizes->n_ctx, sizes->n_slots);
    fprintf(out, "%5s %11s %11s %11s %11s %11s %11s %11s\n", "rank", "weights", "kv caches", "states", "scratch",
            "exchange", "program", "total");
    for (int r = 0; r < rf_plan_spec_of(p)->n_ranks; r++) {
        rf_plan_bytes b;

        if (rf_plan_memory(p, r, ops, sizes, drafter_sizes, max_collect, &b, err) != 0)
            return -1;
        fprintf(out, "%5d %11.1f %11.1f %11.1f %11.1f %11.1f %11.1f %11.1f%s\n", r, (double)b.weights / MIB,
                (double)b.caches / MIB, (double)b.states / MIB, (double)b.scratch / MIB, (double)b.exchange / MIB,
                (double)b.program / MIB, (double)b.total / MIB,
                !available             ? ""
                : b.total <= available ? "  fits"
                                       : "  does not fit");
    }
    if (available) {
        size_t trained = rf_plan_spec_of(p)->target->n_ctx_train, largest = 0;
        rf_model_sizes longest = *sizes;

        longest.n_ctx = trained;
        if (rf_plan_fit(p, ops, &longest, drafter_sizes, max_collect, available, &largest, err) != 0)
            return -1;
        fprintf(out, "available to a rank here: %.1f MiB; largest context that fits: %zu (trained for %zu)\n",
                (double)available / MIB, largest, trained);
    }
    return 0;
}

static int print_account(const rf_plan *p, FILE *out, rf_error *err)
{
    rf_plan_account a;
    size_t sharded = 0;
    int n_ranks = rf_plan_spec_of(p)->n_ranks;

    if (rf_plan_account_make(p, &a, err) != 0)
        return -1;
    fprintf(out, "\nbytes as stored in the files\n");
    for (int r = 0; r < n_ranks; r++) {
        fprintf(out, "rank %d: sharded %zu, replicated %zu\n", r, a.sharded[r], a.replicated[r]);
        sharded += a.sharded[r];
    }
    fprintf(out, "KV heads held twice: %zu\n", a.repeated);
    fprintf(out, "read through the map: %zu\nnot loaded: %zu\nheader and padding: %zu\n", a.mapped, a.unused, a.header);
    fprintf(out, "sum (sharded once + one copy of the replicated + mapped + not loaded + header): %zu of %zu\n",
            sharded - a.repeated + a.replicated_once + a.mapped + a.unused + a.header, a.file_size);
    rf_plan_account_free(&a);
    return 0;
}

int rf_plan_print(const rf_plan *p, const rf_ops *ops, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes,
                  size_t max_collect, size_t available, FILE *out, rf_error *err)
{
    static const char *const splits[] = {
        [RF_SPLIT_NONE] = "none", [RF_SPLIT_LAYER] = "layer", [RF_SPLIT_TENSOR] = "tensor"};
    const rf_plan_spec *s = rf_plan_spec_of(p);

    fprintf(out, "plan: %d rank%s, split %s, drafter %s\n", s->n_ranks, s->n_ranks == 1 ? "" : "s", splits[s->split],
            s->drafter ? s->drafter->v2 ? "DFlash2" : "DFlash" : s->with_mtp ? "MTP" : "none");
    if (s->split == RF_SPLIT_LAYER)
        print_layers(p, out);
    else
        print_units(p, out);
    if (print_memory(p, ops, sizes, drafter_sizes, max_collect, available, out, err) != 0)
        return -1;
    return print_account(p, out, err);
}
