#include "plan_cost.h"

static void print_step(FILE *out, const char *step, size_t depth, size_t rows, double tokens, rf_cost c)
{
    fprintf(out, "%-24s %9zu %6zu %14.4f %11.1f %9.1f %9.1f %9.1f\n", step, depth, rows, 1e3 * c.seconds,
            tokens / c.seconds, 100 * c.reading / c.seconds, 100 * c.multiplying / c.seconds,
            100 * c.exchange / c.seconds);
}

static void print_steps(const rf_plan_spec *s, const rf_cost_model *c, const rf_cost_wishes *w, size_t n_ctx, FILE *out)
{
    const rf_machine *m = &w->machine;
    bool drafts = w->drafts && (s->drafter || s->with_mtp);
    size_t deep = n_ctx > w->drafts + 1 ? n_ctx - w->drafts - 1 : 0;
    rf_cost decode = rf_cost_decode(c, m, 0), round;

    fprintf(out, "%-24s %9s %6s %14s %11s %9s %9s %9s\n", "step", "depth", "rows", "ms", "tokens/s", "reading %",
            "products %", "exchange %");
    print_step(out, "prefill", 0, RF_COST_PROMPT, RF_COST_PROMPT, rf_cost_prefill(c, m, 0, RF_COST_PROMPT, w->chunk));
    print_step(out, "decode", 0, 1, 1, decode);
    print_step(out, "decode, context full", deep, 1, 1, rf_cost_decode(c, m, deep));
    if (!drafts)
        return;
    round = rf_cost_round(c, m, 0, w->drafts);
    print_step(out, "verify", 0, w->drafts + 1, (double)w->drafts + 1, rf_cost_verify(c, m, 0, w->drafts + 1));
    print_step(out, "round, all accepted", 0, w->drafts + 1, (double)w->drafts + 1, round);
    print_step(out, "the same, context full", deep, w->drafts + 1, (double)w->drafts + 1,
               rf_cost_round(c, m, deep, w->drafts));
    fprintf(out, "a round is %.3f decode steps: %s drafts pay above that many tokens a round\n",
            round.seconds / decode.seconds, s->drafter ? s->drafter->v2 ? "DFlash2" : "DFlash" : "MTP");
}

int rf_plan_print_cost(const rf_plan *p, const rf_model_sizes *sizes, const rf_model_sizes *drafter_sizes,
                       const rf_cost_wishes *w, FILE *out, rf_error *err)
{
    const rf_machine *m = &w->machine;
    rf_cost_model *c = rf_cost_model_create(p, sizes, drafter_sizes, err);

    if (!c)
        return -1;
    fprintf(out, "\npredicted times: a rank reads %.4g GB/s and does %.4g G int8 products/s, of which kernels get "
                 "%.3g %% and %.3g %%;\nthe smallest sum over ranks takes %.4g us, a link moves %.4g GB/s\n(%s)\n",
            m->read * 1e-9, m->products * 1e-9, 100 * m->read_reached, 100 * m->products_reached, m->latency * 1e6,
            m->link * 1e-9, w->source);
    print_steps(rf_plan_spec_of(p), c, w, sizes->n_ctx, out);
    rf_cost_model_destroy(c);
    return 0;
}
