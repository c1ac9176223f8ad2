/* rankflash-bench: what the engine does in a second, beside what the machine could do. Inside of the program.
 *
 * All ranks run the same schedule. In between the leader drives the engine by the commands of a real run (a phase:
 * bench_phase), so that every figure holds the broadcasts and gathers it would hold there. docs/performance.md says
 * what each figure is and how noise is kept out. */
#ifndef RF_BENCH_H
#define RF_BENCH_H

#include <jansson.h>

#include "flags.h"
#include "job.h"
#include "machine_limits.h"

#define BENCH_LIST 16 /* values of a list on the command line */

typedef struct {
    size_t value[BENCH_LIST], n;
} bench_list;

typedef enum { BENCH_TEXT, BENCH_JSON, BENCH_CSV } bench_format;

/* ---- bench_options.c */

typedef struct {
    rf_options engine; /* rankflash's own: model, devices, memory; first, because its rows of the flag table say so */
    bench_list prefill, depths, rows, accept;
    bool depths_given, accept_given, quick;
    int32_t repetitions; /* 0: not given */
    int format;          /* bench_format */
    const char *compare, *output, *prompts;
    double tolerance; /* --tolerance in percent; < 0: not given */
} bench_options;

/* As rf_options_parse. */
int bench_options_parse(bench_options *o, int argc, char **argv, rf_error *err);
void bench_options_free(bench_options *o);
void bench_options_help(FILE *out);
const rf_flag_set *bench_flag_set(void); /* the table, for the parser and for tests of the manual page */

/* ---- bench_limits.c: the machine, all ranks at once */

#define BENCH_LOOPS 40

typedef struct {
    rf_read_memory *memory; /* of the best loop */
    size_t n_loops, best;
    rf_read_loop loop[BENCH_LOOPS];
    double rate[BENCH_LOOPS];                 /* bytes a second, best of several; the leader's */
    double read;                              /* the best of these and of every burst since */
    double int8_registers, int8_matmul, int8; /* multiplications with addition a second; int8: the larger */
    const char *int8_name;
} bench_limits;

/* Collective. */
int bench_limits_measure(bench_limits *l, const rf_job *job, bool quick, rf_error *err);
void bench_limits_free(bench_limits *l);
/* Collective: the best loop once more, over so many bytes (the leader says; a few times for a millisecond if they are
 * few); the leader gets the best, bytes a second of all ranks together. */
double bench_limits_burst(bench_limits *l, const rf_job *job, size_t bytes);
/* Collective: sum and largest of a number over ranks, for the leader. */
void bench_gather(const rf_job *job, double mine, double *sum, double *largest);

/* ---- bench_work.c: bytes and products of a step, all ranks together */

typedef struct {
    double body, head;       /* products of a row with the trunk's matrices, and of a row that wants logits */
    double states;           /* bytes of the DeltaNet states */
    double kv, mtp_kv;       /* bytes a position of the trunk's caches, of the MTP head's */
    double draft_kv[64];     /* the same of each layer of the drafter, [n_draft_layers] */
    size_t draft_window[64]; /* 0: none */
    size_t n_draft_layers;
} bench_work;

int bench_work_make(const rf_job *job, bench_work *w, rf_error *err);
double bench_draft_cache(const bench_work *w, size_t depth); /* bytes that one pass of the drafter reads */

/* ---- bench_steps.c: figures of the engine */

typedef enum {
    BENCH_PREFILL,
    BENCH_DECODE,
    BENCH_VERIFY,
    BENCH_COMMIT,
    BENCH_DRAFT,
    BENCH_ROUND,
    BENCH_ATTENTION,
    BENCH_GENERATE,
    BENCH_ALLREDUCE,
    BENCH_LOAD,
    BENCH_N_KINDS
} bench_kind;

#define BENCH_FIGURES 1024 /* of a run: more than all lists at their longest ask for */
#define BENCH_TIMES   512  /* kept of a figure */

typedef struct {
    bench_kind kind;
    rf_drafter drafter;
    const char *transport;   /* allreduce */
    size_t depth;            /* positions in the caches */
    size_t rows;             /* tokens of a prompt; rows of a verify, a commit; drafts; bytes of an allreduce */
    size_t accepted;         /* round: simulated */
    double accepted_a_round; /* generate: drafts, on average */
    /* measured */
    double times[BENCH_TIMES];
    size_t n_times;
    double best, median, spread; /* seconds; (90th percentile - 10th) / median */
    double burst;                /* bytes of a burst that takes about as long as it */
    double read;                 /* the best burst that lasts as long or longer, bytes a second */
    /* beside its limit */
    double tokens;          /* a step */
    double weights;         /* bytes of weights it used */
    double bytes, products; /* all that must be moved, and multiplied */
    double percent;         /* of the limit, from the best times of both; 0: there is none */
    bool memory_bound;      /* which limit */
    double ratio;           /* in `ratio_to`; 0: none */
    const char *ratio_to;
} bench_figure;

typedef struct {
    const char *step; /* "decode", ... */
    size_t depth, rows;
    double seconds;        /* a step, all of it */
    double op[RF_N_TIMED]; /* the leader's, a step */
    double calls[RF_N_TIMED];
} bench_breakdown;

typedef struct {
    double plan, measured; /* bytes */
} bench_memory;

typedef struct {
    bench_options *options;
    rf_job job;
    bench_limits limits;
    bench_work work;
    bench_figure *figures;
    size_t n_figures;
    bench_breakdown breakdown[4 * BENCH_LIST];
    size_t n_breakdowns;
    bench_memory *memory; /* [ranks], the leader's */
    size_t n_memory;
    json_t *prompts;  /* --prompts, checked; the leader's */
    double read_file; /* plain reading of the files, bytes a second */
} bench;

bench_figure *bench_add(bench *b, bench_kind kind); /* never NULL: room is made at the start */
void bench_time(bench_figure *f, double seconds);
void bench_finish(bench_figure *f); /* best, median, spread */
const char *bench_kind_name(bench_kind kind);
size_t bench_n_drafts(const rf_job *job, rf_drafter drafter); /* of a round: --spec-draft-n-max, or the drafter's own */

/* All ranks: the leader runs lead(), which ends by rf_leader_quit; the others follow. */
void bench_phase(rf_job *job, int (*lead)(rf_job *job, void *context), void *context);

/* Collective. Puts the engine's figures together, measures them in turns, and fills in their limits. */
int bench_steps(bench *b, rf_error *err);

/* ---- bench_generate.c: real rounds over --prompts, greedy, with every drafter. */

/* The leader's: [[token, ...] or {"ids": [token, ...]}, ...]; NULL and *err if the file is anything else. */
json_t *bench_prompts_load(const char *path, rf_error *err);
/* Collective. Nothing without --prompts. */
int bench_generate(bench *b, rf_error *err);

/* ---- bench_allreduce.c, bench_load.c. Collective. */
int bench_allreduce(bench *b, rf_error *err);
/* Starts the job (several times), beside plain reading of its files. */
int bench_load(bench *b, rf_error *err);
int bench_measure_memory(bench *b, rf_error *err);

/* ---- bench_report.c, bench_compare.c. The leader's. */
json_t *bench_json(const bench *b); /* NULL: no memory */
void bench_print_text(const bench *b, FILE *out);
void bench_print_csv(const bench *b, FILE *out);
/* Prints a line for every figure both have. 0; 1: something is worse than the tolerance allows (if there is one); -1
 * and *err. */
int bench_compare(const json_t *now, const char *path, double tolerance, FILE *out, rf_error *err);

#endif
