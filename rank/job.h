/* A job: everything a rank holds from start-up to the end, made from the command line. Every step is collective and agreed: either all ranks
 * go on, or all get the same error (the lowest failing rank's, with its host). */
#ifndef RF_JOB_H
#define RF_JOB_H

#include "../src/chat.h"
#include "../src/op_timers.h"
#include "../src/options.h"
#include "round.h"
#include "topology.h"

typedef struct {
    char *target_path, *drafter_path;
    bool demo;                      /* no -m was given */
    rf_gguf *target_file, *drafter_file;
    rf_qwen35_params target;
    rf_dflash_params drafter;
    bool has_drafter, with_mtp;     /* loaded */
    rf_drafter spec;                /* what drafts unless a request says otherwise */
    size_t n_max;                   /* resolved --spec-draft-n-max */
} rf_job_files;

typedef struct {
    const rf_options *options;
    rf_job_files files;
    rf_plan *plan;
    rf_shard shard;
    rf_model_sizes sizes, drafter_sizes;
    rf_topology topology;
    rf_engine_spec engine_spec;
    rf_backend *backend;
    rf_comm *world, *inner;
    rf_engine *engine;
    double load_seconds;            /* what making the engine took: weights read and packed, caches */
    rf_op_timers *timers;           /* NULL unless options->time_ops */
    /* leader only */
    rf_tokenizer *tokenizer;
    rf_chat *chat;                  /* NULL with --raw */
    rf_selector *selector;
    rf_leader *leader;
} rf_job;

const char *rf_drafter_name(rf_drafter drafter); /* "none", "draft-mtp", "draft-dflash" */

/* Loads every drafter the files offer when all_drafters (tests), else the one that drafts. n_slots live sequences; 0: as
 * many as --parallel says, or as fit. */
int rf_job_start(rf_job *job, const rf_options *options, size_t n_slots, bool all_drafters, rf_error *err);
void rf_job_stop(rf_job *job);
/* For measurements: the engine (and the leader) once more from the files. On failure only rf_job_stop is left. */
int rf_job_reload(rf_job *job, rf_error *err);
bool rf_job_leads(void);
/* The leader runs lead(job, context), which ends with rf_leader_quit and the job's exit code; the others follow its
 * commands until then. Returns that code on all ranks. All of it is one step of the backend. */
int rf_job_run(rf_job *job, int (*lead)(rf_job *job, void *context), void *context);
/* A sequence with the command line's request in it. */
void rf_job_sequence(const rf_job *job, int32_t slot, rf_sequence *s);
/* The same with another sampling and length. */
void rf_job_sequence_as(const rf_job *job, int32_t slot, const rf_sampling *sampling, int64_t n_predict, rf_sequence *s);

/* job_files.c: paths (the demo pair without -m), headers, parameters, which drafter. Not collective. */
int rf_job_open(rf_job_files *f, const rf_options *o, bool all_drafters, rf_error *err);
void rf_job_close(rf_job_files *f);
/* startup.c: the table and the lines after it. Collective. */
void rf_job_print_start(rf_job *job);
/* --plan: no MPI, no device. */
int rf_job_print_plan(const rf_options *o, FILE *out, rf_error *err);

#endif
