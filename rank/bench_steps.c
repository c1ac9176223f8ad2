/* Figures of the engine: prefill, decode, verify, commit, draft, round.
 *
 * Noise: every turn goes over all figures once, a burst of the read loop before and after each, of about the same
 * length, so that a figure and its limit saw the same machine; the best of each is kept. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "clock.h"
#include "leader.h"

#define VISIT_SECONDS       0.03 /* a figure's steps of one turn take about so long */
#define QUICK_VISIT_SECONDS 0.01
#define BURST_MOST          1e9 /* bytes */
#define VISIT_MOST          32  /* steps */
#define WARM_UP             2   /* steps that are not counted, a turn, where a turn has more */

const char *bench_kind_name(bench_kind kind)
{
    static const char *const names[BENCH_N_KINDS] =
        {[BENCH_PREFILL] = "prefill",     [BENCH_DECODE] = "decode",     [BENCH_VERIFY] = "verify",
         [BENCH_COMMIT] = "commit",       [BENCH_DRAFT] = "draft",       [BENCH_ROUND] = "round",
         [BENCH_ATTENTION] = "attention", [BENCH_GENERATE] = "generate", [BENCH_LOAD] = "load",
         [BENCH_ALLREDUCE] = "allreduce"};

    return names[kind];
}

/* ---- one figure's times */

bench_figure *bench_add(bench *b, bench_kind kind)
{
    bench_figure *f = &b->figures[b->n_figures++];

    *f = (bench_figure){.kind = kind, .drafter = RF_DRAFTER_NONE};
    return f;
}

void bench_time(bench_figure *f, double seconds)
{
    if (f->n_times < BENCH_TIMES)
        f->times[f->n_times++] = seconds;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void bench_finish(bench_figure *f)
{
    size_t n = f->n_times;

    if (!n)
        return;
    qsort(f->times, n, sizeof *f->times, compare);
    f->best = f->times[0];
    f->median = (f->times[(n - 1) / 2] + f->times[n / 2]) / 2;
    f->spread = (f->times[(n - 1) * 9 / 10] - f->times[(n - 1) / 10]) / f->median;
}

/* ---- steps; the leader's */

static const int32_t no_tokens[RF_MAX_BLOCK]; /* any tokens will do */

static rf_command *begin(rf_leader *l, rf_command_kind kind)
{
    rf_command_begin(&l->command, kind);
    l->command.head.collect = (rf_collect){1, 0, 0};
    return &l->command;
}

static double send(rf_leader *l)
{
    double start = rf_seconds();

    rf_leader_send(l);
    return rf_seconds() - start;
}

static double verify(rf_leader *l, size_t depth, size_t rows, size_t n_commit)
{
    rf_command_seq *s = rf_command_add(begin(l, RF_CMD_VERIFY), 0, (int64_t)depth, no_tokens, rows);

    s->n_commit = (int32_t)n_commit;
    return send(l);
}

static void reset(rf_leader *l)
{
    rf_command_add(begin(l, RF_CMD_RESET), 0, 0, NULL, 0);
    rf_leader_send(l);
}

static double prefill(rf_leader *l, rf_drafter drafter, const int32_t *tokens, size_t n, size_t chunk)
{
    double seconds = 0;

    reset(l);
    for (size_t at = 0; at < n; at += chunk) {
        size_t count = n - at < chunk ? n - at : chunk;
        rf_command_seq *s = rf_command_add(begin(l, RF_CMD_PREFILL), 0, (int64_t)at, tokens + at, count);

        s->drafter = (int32_t)drafter;
        s->wants_row = at + count == n;
        seconds += send(l);
    }
    return seconds;
}

/* A round's command: commits, and drafts n_draft tokens (DFlash) or the first of them (MTP). */
static double draft_and_commit(rf_leader *l, rf_drafter drafter, size_t depth, size_t n_commit, size_t n_draft)
{
    rf_command_seq *s = rf_command_add(begin(l, RF_CMD_ROUND), 0, (int64_t)depth, no_tokens, n_commit ? n_commit : 1);

    s->drafter = (int32_t)drafter;
    s->n_commit = (int32_t)n_commit;
    s->n_draft = (int32_t)n_draft;
    return send(l);
}

static double draft(rf_leader *l, rf_drafter drafter, size_t depth, size_t n)
{
    double seconds = draft_and_commit(l, drafter, depth, 0, n);

    for (size_t i = 1; drafter == RF_DRAFTER_MTP && i < n; i++) {
        rf_command_seq *s = rf_command_add(begin(l, RF_CMD_MTP_NEXT), 0, (int64_t)(depth + i), no_tokens, 1);

        s->drafter = RF_DRAFTER_MTP;
        s->n_draft = 1;
        seconds += send(l);
    }
    return seconds;
}

static rf_stop go_on(void *context, int32_t token, int64_t position, uint64_t hash)
{
    (void)context;
    (void)token;
    (void)position;
    (void)hash;
    return RF_STOP_NONE;
}

static rf_sequence new_sequence(const bench_figure *f)
{
    return (rf_sequence){.drafter = f->drafter,
                         .n_max = f->rows,
                         .n_predict = -1,
                         .on_token = go_on,
                         .simulated = true,
                         .simulated_accepts = f->accepted,
                         .n = (int64_t)f->depth,
                         .has_anchor = true};
}

static double round_step(rf_leader *l, rf_sequence *s)
{
    rf_error err;
    double start = rf_seconds();

    if (rf_round_run(l, &s, 1, &err) != 0)
        rf_world_abort(err.code, err.text);
    return rf_seconds() - start;
}

/* ---- a turn of one figure */

typedef struct {
    bench *b;
    bench_figure *f;
    size_t steps;    /* 0: find out how many (and what weights a step uses) */
    int32_t *tokens; /* of the longest prompt */
    rf_sequence sequence;
} visit;

static double step(visit *v)
{
    rf_job *job = &v->b->job;
    rf_leader *l = job->leader;
    bench_figure *f = v->f;

    switch (f->kind) {
    case BENCH_PREFILL: return prefill(l, f->drafter, v->tokens, f->rows, (size_t)job->options->batch);
    case BENCH_DECODE: return verify(l, f->depth, 1, 1);
    case BENCH_VERIFY: return verify(l, f->depth, f->rows, 0);
    case BENCH_COMMIT: return draft_and_commit(l, f->drafter, f->depth, f->rows, 0);
    case BENCH_DRAFT: return draft(l, f->drafter, f->depth, f->rows);
    default: return round_step(l, &v->sequence);
    }
}

/* What must have happened before the first step of a turn: pending rows, a sequence. */
static void prepare(visit *v)
{
    const bench_figure *f = v->f;

    if (f->kind != BENCH_PREFILL)
        verify(v->b->job.leader, f->depth, f->kind == BENCH_COMMIT ? f->rows : 1, 0);
    v->sequence = new_sequence(f);
}

/* The first time: the weights that a step uses, and how many steps a turn has. Of a verify they are those of one row.
 */
static void first_visit(visit *v)
{
    bench_figure *f = v->f;
    rf_leader *l = v->b->job.leader;
    double seconds, before, visit_seconds = v->b->options->quick ? QUICK_VISIT_SECONDS : VISIT_SECONDS;

    step(v); /* pages are touched, the drafter's sequence is under way */
    before = (double)rf_leader_weight_bytes_read(l);
    seconds = step(v);
    f->weights = (double)rf_leader_weight_bytes_read(l) - before;
    v->steps = seconds > 0 && seconds < visit_seconds ? (size_t)(visit_seconds / seconds) : 1;
    if (v->steps > VISIT_MOST)
        v->steps = VISIT_MOST;
    f->burst = seconds * v->b->limits.read;
    if (f->burst > BURST_MOST)
        f->burst = BURST_MOST;
}

static int lead_visit(rf_job *job, void *context)
{
    visit *v = context;
    size_t skip;

    prepare(v);
    if (!v->steps)
        first_visit(v);
    skip = v->steps > 2 * WARM_UP || v->f->kind == BENCH_ROUND ? WARM_UP : 0;
    for (size_t i = 0; i < v->steps + skip; i++) {
        double seconds = step(v);

        if (i >= skip)
            bench_time(v->f, seconds);
    }
    rf_leader_quit(job->leader, 0);
    return 0;
}

void bench_phase(rf_job *job, int (*lead)(rf_job *job, void *context), void *context)
{
    rf_job_run(job, lead, context);
}

/* ---- the schedule */

size_t bench_n_drafts(const rf_job *job, rf_drafter drafter)
{
    size_t most = drafter == RF_DRAFTER_DFLASH ? job->files.drafter.block_size - 1 : 3, wanted = most;

    if (job->options->spec_n_max > 0)
        wanted = (size_t)job->options->spec_n_max;
    if (drafter == RF_DRAFTER_DFLASH && wanted > most)
        wanted = most;
    return wanted < RF_MAX_BLOCK ? wanted : RF_MAX_BLOCK - 1;
}

static void add(bench *b, bench_kind kind, rf_drafter drafter, size_t depth, size_t rows, size_t accepted)
{
    bench_figure *f = bench_add(b, kind);

    f->drafter = drafter;
    f->depth = depth;
    f->rows = rows;
    f->accepted = accepted;
}

static void add_drafter(bench *b, rf_drafter drafter)
{
    const bench_options *o = b->options;
    size_t n = bench_n_drafts(&b->job, drafter);

    add(b, BENCH_PREFILL, drafter, 0, o->prefill.value[o->prefill.n - 1], 0);
    for (size_t d = 0; d < o->depths.n; d++) {
        size_t depth = o->depths.value[d];

        add(b, BENCH_DRAFT, drafter, depth, n, 0);
        add(b, BENCH_COMMIT, drafter, depth, n + 1, 0);
        for (size_t k = 0; k < o->accept.n; k++)
            if (o->accept.value[k] <= n)
                add(b, BENCH_ROUND, drafter, depth, n, o->accept.value[k]);
        if (!o->accept_given) {
            add(b, BENCH_ROUND, drafter, depth, n, 0);
            add(b, BENCH_ROUND, drafter, depth, n, n);
        }
    }
}

static void add_figures(bench *b)
{
    const bench_options *o = b->options;

    for (size_t i = 0; i < o->prefill.n; i++)
        add(b, BENCH_PREFILL, RF_DRAFTER_NONE, 0, o->prefill.value[i], 0);
    for (size_t d = 0; d < o->depths.n; d++) {
        add(b, BENCH_DECODE, RF_DRAFTER_NONE, o->depths.value[d], 1, 0);
        for (size_t r = 0; r < o->rows.n; r++)
            add(b, BENCH_VERIFY, RF_DRAFTER_NONE, o->depths.value[d], o->rows.value[r], 0);
        add(b, BENCH_COMMIT, RF_DRAFTER_NONE, o->depths.value[d], 1, 0);
    }
    if (b->job.files.with_mtp)
        add_drafter(b, RF_DRAFTER_MTP);
    if (b->job.files.has_drafter)
        add_drafter(b, RF_DRAFTER_DFLASH);
}

static int fill_caches(bench *b, rf_error *err)
{
    const bench_list *d = &b->options->depths;
    rf_error mine = {RF_OK, ""};
    int64_t n = (int64_t)d->value[d->n - 1];

    if (rf_qwen35_fill(rf_engine_target(b->job.engine), 0, n, &mine) == 0 && b->job.files.has_drafter)
        rf_dflash_fill(rf_engine_drafter(b->job.engine), 0, n, &mine);
    return rf_world_agree(&mine, err);
}

/* ---- limits */

static double prompt_cache(const bench *b, const bench_figure *f)
{
    double positions = 0, chunk = b->job.options->batch;

    for (double at = 0; at < (double)f->rows; at += chunk)
        positions += at + chunk < (double)f->rows ? at + chunk : (double)f->rows;
    return positions;
}

static const bench_figure *find(const bench *b, bench_kind kind, size_t depth, size_t rows)
{
    for (size_t i = 0; i < b->n_figures; i++)
        if (b->figures[i].kind == kind && b->figures[i].depth == depth && b->figures[i].rows == rows)
            return &b->figures[i];
    return NULL;
}

/* Bytes and products a step must have; docs/performance.md lists them. */
static void work_of(const bench *b, bench_figure *f)
{
    const bench_work *w = &b->work;
    const bench_figure *one = find(b, BENCH_DECODE, b->options->depths.value[0], 1);
    double row = one->weights, depth = (double)f->depth, rows = (double)f->rows, chunks,
           draft_cache =
               f->drafter == RF_DRAFTER_MTP ? w->mtp_kv * (depth + rows / 2) * rows : bench_draft_cache(w, f->depth);

    switch (f->kind) {
    case BENCH_PREFILL:
        chunks = (double)((f->rows + (size_t)b->job.options->batch - 1) / (size_t)b->job.options->batch);
        f->tokens = rows;
        f->bytes = chunks * (row + 2 * w->states) + prompt_cache(b, f) * w->kv;
        f->products = rows * w->body + w->head;
        break;
    case BENCH_DECODE:
        f->tokens = 1;
        f->bytes = row + 2 * w->states + (depth + 2) * w->kv;
        f->products = w->body + w->head;
        break;
    case BENCH_VERIFY:
        f->tokens = rows;
        f->bytes = row + w->states + (depth + rows) * w->kv;
        f->products = rows * (w->body + w->head);
        break;
    case BENCH_COMMIT: /* a backend may leave the work to the next step: no limit of its own */ f->tokens = rows; break;
    case BENCH_DRAFT:
        f->tokens = rows;
        f->bytes = f->weights + draft_cache;
        break;
    case BENCH_ROUND:
        f->tokens = (double)f->accepted + 1;
        f->bytes = f->weights + 2 * w->states + (depth + rows + 1) * w->kv + draft_cache;
        f->products = (rows + 1) * (w->body + w->head);
        break;
    default: break;
    }
}

static void ratio_of(const bench *b, bench_figure *f)
{
    const bench_figure *to = NULL;

    if (f->kind == BENCH_VERIFY) {
        to = find(b, BENCH_VERIFY, f->depth, 1);
        f->ratio_to = "1 row";
    } else if (f->kind == BENCH_ROUND || f->kind == BENCH_DRAFT || f->kind == BENCH_COMMIT) {
        to = find(b, BENCH_DECODE, f->depth, 1);
        f->ratio_to = "decode";
    }
    if (to && to->best > 0)
        f->ratio = f->best / to->best;
    else
        f->ratio_to = NULL;
}

static void judge(bench *b, bench_figure *f)
{
    double by_memory, by_products;

    bench_finish(f);
    work_of(b, f);
    if (f->read <= 0 || b->limits.int8 <= 0 || f->best <= 0)
        return;
    if (f->bytes <= 0)
        return;
    by_memory = f->bytes / f->read;
    by_products = f->products / b->limits.int8;
    f->memory_bound = by_memory >= by_products;
    f->percent = 100 * (f->memory_bound ? by_memory : by_products) / f->best;
}

/* ---- where a step's time goes */

typedef struct {
    visit v;
    bench_breakdown *out;
} timed_visit;

static int lead_timed(rf_job *job, void *context)
{
    timed_visit *t = context;
    size_t n = t->v.steps;
    double seconds = 0;

    prepare(&t->v);
    step(&t->v);
    rf_op_timers_start(job->timers);
    for (size_t i = 0; i < n; i++)
        seconds += step(&t->v);
    for (int op = 0; op < RF_N_TIMED; op++) {
        t->out->op[op] = rf_op_timers_seconds(job->timers, (rf_timed_op)op) / (double)n;
        t->out->calls[op] = (double)rf_op_timers_calls(job->timers, (rf_timed_op)op) / (double)n;
    }
    rf_op_timers_stop(job->timers);
    t->out->seconds = seconds / (double)n;
    rf_leader_quit(job->leader, 0);
    return 0;
}

/* One more turn with timers; of several turns the one with the least time stays. */
static void break_down(bench *b, const visit *visits, bool first)
{
    size_t n = 0, most = b->options->rows.value[b->options->rows.n - 1], longest = b->options->prefill.n - 1;

    for (size_t i = 0; i < b->n_figures && n < sizeof b->breakdown / sizeof *b->breakdown; i++) {
        const bench_figure *f = &b->figures[i];
        bench_breakdown now = {.step = bench_kind_name(f->kind), .depth = f->depth, .rows = f->rows};
        timed_visit t = {visits[i], &now};
        bool wanted = f->kind == BENCH_DECODE || (f->kind == BENCH_VERIFY && f->rows == most) ||
                      (f->kind == BENCH_PREFILL && f->drafter == RF_DRAFTER_NONE &&
                       f->rows == b->options->prefill.value[longest]) ||
                      (f->kind == BENCH_DRAFT && f->depth == b->options->depths.value[0]);

        if (!wanted)
            continue;
        bench_phase(&b->job, lead_timed, &t);
        if (first || now.seconds < b->breakdown[n].seconds)
            b->breakdown[n] = now;
        n++;
    }
    b->n_breakdowns = n;
}

/* Attention of a plain step: of the whole step's cache, in the time it took rank 0. */
static void add_attention(bench *b)
{
    for (size_t i = 0; i < b->n_breakdowns; i++) {
        const bench_breakdown *d = &b->breakdown[i];
        bench_figure *f;

        if (strcmp(d->step, bench_kind_name(BENCH_DECODE)) != 0 || !d->depth)
            continue;
        f = bench_add(b, BENCH_ATTENTION);
        f->depth = d->depth;
        f->rows = 1;
        bench_time(f, d->op[RF_TIMED_ATTENTION]);
        bench_finish(f);
        f->read = find(b, BENCH_DECODE, d->depth, 1)->read;
        f->tokens = 1;
        f->memory_bound = true;
        f->bytes = (double)(d->depth + 2) * b->work.kv;
        if (f->best > 0 && f->read > 0)
            f->percent = 100 * f->bytes / f->read / f->best;
    }
}

/* ---- all of it */

/* A figure's limit is the best burst that lasts at least about as long as the figure: a short one finds a quiet moment
 * more easily. */
static void share_bursts(bench *b)
{
    double best[BENCH_FIGURES];

    for (size_t i = 0; i < b->n_figures; i++) {
        best[i] = b->figures[i].read;
        for (size_t k = 0; k < b->n_figures; k++)
            if (b->figures[k].burst >= b->figures[i].burst / 2 && b->figures[k].read > best[i])
                best[i] = b->figures[k].read;
    }
    for (size_t i = 0; i < b->n_figures; i++)
        b->figures[i].read = best[i];
}

static void measure(bench *b, visit *visits)
{
    for (int32_t turn = 0; turn < b->options->repetitions; turn++)
        for (size_t i = 0; i < b->n_figures; i++) {
            bench_figure *f = &b->figures[i];
            double before = bench_limits_burst(&b->limits, &b->job, (size_t)f->burst), after;

            bench_phase(&b->job, lead_visit, &visits[i]);
            after = bench_limits_burst(&b->limits, &b->job, (size_t)f->burst);
            before = before > after ? before : after;
            f->read = before > f->read ? before : f->read;
        }
    for (size_t i = 0; i < b->n_figures; i++)
        bench_finish(&b->figures[i]);
    for (int32_t turn = 0; turn < b->options->repetitions; turn++)
        break_down(b, visits, turn == 0);
}

int bench_steps(bench *b, rf_error *err)
{
    const bench_list *p = &b->options->prefill;
    size_t first = b->n_figures, longest = p->value[p->n - 1];
    bench_figure *figures = b->figures;
    int32_t *tokens = calloc(longest, sizeof *tokens);
    visit *visits;

    if (bench_work_make(&b->job, &b->work, err) != 0 || fill_caches(b, err) != 0) {
        free(tokens);
        return -1;
    }
    b->figures += first; /* those of the engine alone, until they are done */
    b->n_figures = 0;
    add_figures(b);
    visits = calloc(b->n_figures, sizeof *visits);
    if (!visits || !tokens)
        rf_world_abort(RF_ERR_MEMORY, "no memory for the schedule");
    for (size_t i = 0; i < longest; i++)
        tokens[i] = (int32_t)(i * 7919 % b->job.files.target.n_vocab);
    for (size_t i = 0; i < b->n_figures; i++)
        visits[i] = (visit){.b = b, .f = &b->figures[i], .tokens = tokens};
    measure(b, visits);
    share_bursts(b);
    for (size_t i = 0; i < b->n_figures; i++)
        judge(b, &b->figures[i]);
    for (size_t i = 0; i < b->n_figures; i++)
        ratio_of(b, &b->figures[i]);
    add_attention(b);
    b->figures = figures;
    b->n_figures += first;
    free(visits);
    free(tokens);
    return 0;
}
