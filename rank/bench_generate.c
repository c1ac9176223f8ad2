/* Real rounds: prompts are continued greedily, with what the drafters really get accepted. */
#include "config.h"

#include <stdlib.h>

#include "bench.h"
#include "clock.h"

#define PREDICT 96 /* tokens a prompt, at most */

json_t *bench_prompts_load(const char *path, rf_error *err)
{
    json_error_t why;
    json_t *list = json_load_file(path, 0, &why), *prompts = json_array(), *item;
    size_t i, k;

    if (!list)
        rf_fail(err, RF_ERR_FILE, "%s: %s; expected a JSON array of prompts", path, why.text);
    json_array_foreach(list, i, item) {
        json_t *ids = json_is_object(item) ? json_object_get(item, "ids") : item, *id;
        bool good = json_array_size(ids) > 0;

        json_array_foreach(ids, k, id)
            good = good && json_is_integer(id) && json_integer_value(id) >= 0;
        if (good && json_array_append(prompts, ids) == 0)
            continue;
        rf_fail(err, RF_ERR_FILE, "%s: prompt %zu: expected a list of token ids", path, i + 1);
        json_decref(list);
        list = NULL;
        break;
    }
    if (list && json_array_size(prompts)) {
        json_decref(list);
        return prompts;
    }
    if (list)
        rf_fail(err, RF_ERR_FILE, "%s: expected a JSON array of prompts", path);
    json_decref(list);
    json_decref(prompts);
    return NULL;
}

/* ---- the leader's part of a turn: all prompts with one drafter */

typedef struct {
    const bench *b;
    bench_figure *f;
} generation;

static rf_stop at_end(void *context, int32_t token, int64_t position, uint64_t hash)
{
    (void)position;
    (void)hash;
    return rf_tokenizer_is_eog(context, token) ? RF_STOP_END : RF_STOP_NONE;
}

/* Seconds of the rounds of one prompt. */
static double continue_prompt(rf_job *job, rf_sequence *s, const int32_t *ids, size_t n)
{
    rf_error err;
    double start;

    rf_round_reset(job->leader, s);
    if (rf_round_prefill(job->leader, s, ids, n, (size_t)job->options->batch, NULL, NULL, &err) != 0)
        rf_world_abort(err.code, err.text);
    start = rf_seconds();
    while (s->stop == RF_STOP_NONE)
        if (rf_round_run(job->leader, &s, 1, &err) != 0)
            rf_world_abort(err.code, err.text);
    return rf_seconds() - start;
}

static int lead(rf_job *job, void *context)
{
    const generation *g = context;
    bench_figure *f = g->f;
    rf_stats stats = {0};
    json_t *ids, *id;
    double seconds = 0;
    size_t i, k;

    f->tokens = 0;
    json_array_foreach(g->b->prompts, i, ids) {
        size_t n = json_array_size(ids);
        int32_t *tokens = calloc(n, sizeof *tokens);
        rf_sequence s = {.drafter = f->drafter,
                         .n_max = f->depth,
                         .n_predict = PREDICT,
                         .on_token = at_end,
                         .context = job->tokenizer};

        if (!tokens)
            rf_world_abort(RF_ERR_MEMORY, "no memory for a prompt");
        json_array_foreach(ids, k, id)
            tokens[k] = (int32_t)json_integer_value(id);
        seconds += continue_prompt(job, &s, tokens, n);
        f->tokens += (double)s.generated - 1; /* the first is the prefill's */
        rf_stats_add(&stats, &s.stats);
        free(tokens);
    }
    bench_time(f, seconds);
    f->accepted_a_round = stats.rounds ? (double)stats.accepted / (double)stats.rounds : 0;
    rf_leader_quit(job->leader, 0);
    return 0;
}

/* Every token is in the vocabulary and every prompt leaves room in the context. */
static int check_prompts(const bench *b, rf_error *err)
{
    json_t *ids, *id;
    size_t i, k;

    json_array_foreach(b->prompts, i, ids) {
        if (json_array_size(ids) + PREDICT > b->job.sizes.n_ctx)
            return rf_fail(err, RF_ERR_FILE, "%s: prompt %zu has %zu tokens, more than the context of %zu has room for",
                           b->options->prompts, i + 1, json_array_size(ids), b->job.sizes.n_ctx);
        json_array_foreach(ids, k, id)
            if ((size_t)json_integer_value(id) >= b->job.files.target.n_vocab)
                return rf_fail(err, RF_ERR_FILE, "%s: prompt %zu: token %lld is not in the vocabulary of %zu",
                               b->options->prompts, i + 1, (long long)json_integer_value(id),
                               b->job.files.target.n_vocab);
    }
    return 0;
}

int bench_generate(bench *b, rf_error *err)
{
    const rf_job_files *files = &b->job.files;
    rf_drafter drafters[] = {RF_DRAFTER_NONE, RF_DRAFTER_MTP, RF_DRAFTER_DFLASH};
    bool there[] = {true, files->with_mtp, files->has_drafter};
    bench_figure *f[3] = {NULL};
    rf_error mine = {RF_OK, ""};

    if (!b->options->prompts)
        return 0;
    if (rf_job_leads())
        check_prompts(b, &mine);
    if (rf_world_agree(&mine, err) != 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (there[i]) {
            f[i] = bench_add(b, BENCH_GENERATE);
            f[i]->drafter = drafters[i];
            f[i]->depth = bench_n_drafts(&b->job, drafters[i]);
        }
    for (int32_t turn = 0; turn < b->options->repetitions; turn++)
        for (int i = 0; i < 3; i++)
            if (f[i])
                bench_phase(&b->job, lead, &(generation){b, f[i]});
    for (int i = 0; i < 3; i++) {
        if (!f[i])
            continue;
        bench_finish(f[i]);
        f[i]->rows = (size_t)f[i]->tokens;
        f[i]->depth = 0;
        if (i && f[0]->best > 0) {
            f[i]->ratio = f[i]->best / f[0]->best;
            f[i]->ratio_to = "plain";
        }
    }
    return 0;
}
