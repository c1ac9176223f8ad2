#include "plan.h"

#define MIB (1024.0 * 1024.0)

static void print_units(const rf_plan *p, FILE *out)
{
    static const char *const titles[RF_N_AXES] = {
        [RF_AXIS_HEADS] = "heads",        [RF_AXIS_KEY_HEADS] = "key heads",     [RF_AXIS_FFN] = "ffn",
        [RF_AXIS_VOCAB] = "vocab",        [RF_AXIS_EMBD] = "embd",               [RF_AXIS_DRAFT_HEADS] = "draft heads",
        [RF_AXIS_DRAFT_FFN] = "draft ffn", [RF_AXIS_DRAFT_VOCAB] = "draft vocab",
    };

    for (int r = 0; r < rf_plan_spec_of(p)->n_ranks; r++) {
        rf_shard shard;

        rf_plan_shard(p, r, &shard);
        fprintf(out, "rank %d:", r);
        if (shard.split == RF_SPLIT_LAYER)
            fprintf(out, " layers %zu-%zu (%zu)%s", shard.first_layer, shard.first_layer + shard.n_layers, shard.n_layers,
                    shard.tail ? ", output and drafters" : "");
        for (int a = 0; shard.split != RF_SPLIT_LAYER && a < RF_N_AXES; a++) {
            rf_range units = rf_shard_units(&shard, (rf_axis_id)a);

            if (shard.axis[a].n_units)
                fprintf(out, " %s %zu-%zu/%zu", titles[a], units.first, units.first + units.count, shard.axis[a].n_units);
        }
        fprintf(out, "\n");
    }
}

static int print_memory(const rf_plan *p, const rf_ops *ops, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes,
                        size_t max_collect, size_t available, FILE *out, rf_error *err)
{
    fprintf(out, "\nmemory per rank in MiB, %zu positions, %zu sequences\n", sizes->n_ctx, sizes->n_slots);
    fprintf(out, "%5s %11s %11s %11s %11s %11s %11s %11s\n", "rank", "weights", "kv caches", "states", "scratch", "exchange", "program",
            "total");
    for (int r = 0; r < rf_plan_spec_of(p)->n_ranks; r++) {
        rf_plan_bytes b;

        if (rf_plan_memory(p, r, ops, sizes, drafter_sizes, max_collect, &b, err) != 0)
            return -1;
        fprintf(out, "%5d %11.1f %11.1f %11.1f %11.1f %11.1f %11.1f %11.1f%s\n", r, (double)b.weights / MIB, (double)b.caches / MIB,
                (double)b.states / MIB, (double)b.scratch / MIB, (double)b.exchange / MIB, (double)b.program / MIB, (double)b.total / MIB,
                !available ? "" : b.total <= available ? "  fits" : "  does not fit");
    }
    if (available) {
        size_t largest = 0;

        if (rf_plan_fit(p, ops, sizes, drafter_sizes, max_collect, available, &largest, err) != 0)
            return -1;
        fprintf(out, "available to a rank here: %.1f MiB; largest context that fits: %zu\n", (double)available / MIB, largest);
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

int rf_plan_print(const rf_plan *p, const rf_ops *ops, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes, size_t max_collect,
                  size_t available, FILE *out, rf_error *err)
{
    static const char *const splits[] = {[RF_SPLIT_NONE] = "none", [RF_SPLIT_LAYER] = "layer", [RF_SPLIT_TENSOR] = "tensor"};
    const rf_plan_spec *s = rf_plan_spec_of(p);

    fprintf(out, "plan: %d rank%s, split %s, drafter %s\n", s->n_ranks, s->n_ranks == 1 ? "" : "s", splits[s->split],
            s->drafter ? s->drafter->v2 ? "DFlash2" : "DFlash" : s->with_mtp ? "MTP" : "none");
    print_units(p, out);
    if (print_memory(p, ops, sizes, drafter_sizes, max_collect, available, out, err) != 0)
        return -1;
    return print_account(p, out, err);
}
