/* One cell row of the bit matrix: a job started as the program is (ranks, split, ratios, threads from the command line), then every drafter,
 * draft length, prefill chunk and sampling in this one process. Prints one line a prompt and sampling with the hash of all logits that tokens
 * were drawn from; exits 1 if two runs of the same prompt and sampling differ by a bit.
 *
 * usage: [mpirun ...] matrix_run [--reduced|--quick] [rankflash's flags]
 *
 * --quick, for slow backends: one short prompt, two samplings, few tokens, every drafter with few lengths. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../rank/job.h"
#include "log.h"

#define MAX_PROMPT 64
#define PREDICT 24
#define PREDICT_QUICK 9
#define FULL_SAMPLINGS 2 /* greedy and temperature 0.8 go over every cell; the others over a part */

typedef struct {
    uint64_t hash; /* over (position, token, row hash) in order */
    int64_t tokens;
} outcome;

typedef struct {
    rf_drafter drafter;
    size_t n_max, chunk;
    int64_t n_predict;
} cell;

typedef enum { FULL, REDUCED, QUICK } extent;

static const char *const prompts[] = {
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "# Norway\n\n## Geography\nLocation: ",
};

static const rf_sampling samplings[] = {
    {0, 0, 1, 0, 0},
    {0.8, 40, 0.95, 0.05, 7},
    {0.8, 0, 1, 0, 11},    /* nothing filtered: every rank's own argmax */
    {1.5, 0, 0.97, 0, 13}, /* top-p over the whole vocabulary: masses and widening */
};

static rf_stop on_token(void *context, int32_t token, int64_t position, uint64_t hash)
{
    outcome *o = context;
    const uint64_t parts[3] = {(uint64_t)position, (uint64_t)(uint32_t)token, hash};

    for (size_t i = 0; i < sizeof parts; i++)
        o->hash = (o->hash ^ ((const unsigned char *)parts)[i]) * UINT64_C(1099511628211);
    o->tokens++;
    return RF_STOP_NONE;
}

static int encode(const rf_job *job, const char *text, rf_tokens *out, rf_error *err)
{
    return rf_raw_first(job->tokenizer, (rf_text){text, strlen(text)}, true, out, err);
}

static int run(rf_job *job, const rf_tokens *prompt, rf_sampling sampling, cell c, outcome *o, rf_error *err)
{
    rf_sequence s = {.drafter = c.drafter, .n_max = c.n_max, .sampling = sampling, .n_predict = c.n_predict, .on_token = on_token, .context = o}, *one = &s;
    rf_drafter drafter = c.drafter;

    *o = (outcome){UINT64_C(14695981039346656037), 0};
    rf_round_reset(job->leader, &s);
    if (rf_round_prefill(job->leader, &s, prompt->id, prompt->count, c.chunk, NULL, NULL, err) != 0)
        return -1;
    while (s.stop == RF_STOP_NONE)
        if (rf_round_run(job->leader, &one, 1, err) != 0)
            return -1;
    rf_round_settle(job->leader, &one, 1);
    s.drafter = RF_DRAFTER_NONE; /* the target's committed state must be the same too */
    o->hash ^= rf_leader_state_hash(job->leader, &s);
    s.drafter = drafter;
    return 0;
}

/* The cells of one prompt and sampling. Reduced: every drafter, length and chunk occurs, not every combination. */
static size_t make_cells(const rf_job *job, extent how, cell *cells)
{
    static const size_t lengths[] = {0, 1, 3, 6, 7}, chunks[] = {512, 64, 7, 1};
    size_t n = 0;

    for (int d = RF_DRAFTER_NONE; d <= RF_DRAFTER_DFLASH; d++) {
        if ((d == RF_DRAFTER_MTP && !job->files.with_mtp) || (d == RF_DRAFTER_DFLASH && !job->files.has_drafter))
            continue;
        for (size_t l = 0; l < (d == RF_DRAFTER_NONE ? 1 : 5); l++)
            for (size_t k = 0; k < 4; k++) {
                bool part = k == (l + (size_t)d) % 4, few = part && (d == RF_DRAFTER_NONE || l == 2 || l == 4);

                if (how == QUICK ? few : how == FULL || part)
                    cells[n++] = (cell){(rf_drafter)d, lengths[l], chunks[k], how == QUICK ? PREDICT_QUICK : PREDICT};
            }
    }
    return n;
}

static int run_all(rf_job *job, extent how, rf_error *err)
{
    cell all[64], some[64];
    size_t n_all = make_cells(job, how, all), n_some = make_cells(job, how == FULL ? REDUCED : how, some);
    size_t n_prompts = how == QUICK ? 1 : sizeof prompts / sizeof *prompts,
           n_samplings = how == QUICK ? 2 : sizeof samplings / sizeof *samplings;
    int differ = 0;

    for (size_t p = 0; p < n_prompts; p++) {
        rf_tokens prompt = {0};

        if (encode(job, how == QUICK ? "# Norway\n" : prompts[p], &prompt, err) != 0)
            return -1;
        for (size_t s = 0; s < n_samplings; s++) {
            const cell *cells = s < FULL_SAMPLINGS ? all : some;
            size_t n_cells = s < FULL_SAMPLINGS ? n_all : n_some;
            outcome first = {0, 0}, one;

            for (size_t i = 0; i < n_cells; i++) {
                if (run(job, &prompt, samplings[s], cells[i], &one, err) != 0)
                    return -1;
                if (i == 0)
                    first = one;
                if (one.hash != first.hash || one.tokens != first.tokens) {
                    fprintf(stderr, "DIFFERS: prompt %zu sampling %zu: %s n-max %zu chunk %zu: %016" PRIx64 " (%" PRId64 " tokens), first %016" PRIx64 "\n",
                            p, s, rf_drafter_name(cells[i].drafter), cells[i].n_max, cells[i].chunk, one.hash, one.tokens, first.hash);
                    differ = 1;
                }
            }
            printf("prompt %zu sampling %zu: %016" PRIx64 " (%" PRId64 " tokens)\n", p, s, first.hash, first.tokens);
        }
        rf_tokens_free(&prompt);
    }
    fflush(stdout);
    fprintf(stderr, "%zu cells a prompt and sampling\n", n_all);
    return differ;
}

static int lead(rf_job *job, void *how)
{
    rf_error err;
    int code = run_all(job, *(extent *)how, &err);

    if (code < 0) {
        fprintf(stderr, "%s\n", err.text);
        code = (int)err.code;
    }
    rf_leader_quit(job->leader, code);
    return code;
}

int main(int argc, char **argv)
{
    rf_options options;
    rf_error err = {RF_OK, ""};
    rf_job job;
    extent how = FULL;
    int code;

    if (rf_world_init(&argc, &argv, &err) != 0)
        return 5;
    rf_log_set_speaker(false);
    if (argc > 1 && (strcmp(argv[1], "--reduced") == 0 || strcmp(argv[1], "--quick") == 0)) {
        how = argv[1][2] == 'q' ? QUICK : REDUCED;
        argv++;
        argc--;
    }
    if (rf_options_parse(&options, argc, argv, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return (int)err.code;
    }
    options.check = true;
    if (rf_job_start(&job, &options, 1, true, &err) != 0) {
        code = (int)err.code;
    } else {
        code = rf_job_run(&job, lead, &how);
    }
    if (err.code != RF_OK && rf_job_leads())
        fprintf(stderr, "%s\n", err.text);
    rf_job_stop(&job);
    rf_options_free(&options);
    rf_world_finalize();
    return code;
}
