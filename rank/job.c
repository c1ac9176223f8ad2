#include "config.h"

#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "device.h"
#include "log.h"
#include "memory.h"
#include "plan_machine.h"
#include "random_seed.h"
#include "progress.h"
#include "topology.h"

bool rf_job_leads(void)
{
    return rf_world_rank() == 0;
}

/* All ranks go on, or all fail with the same error. */
static int agree(int failed, const rf_error *mine, rf_error *err)
{
    rf_error own = {RF_OK, ""};

    if (failed)
        own = *mine;
    return rf_world_agree(&own, err);
}

static int open_files(rf_job *job, bool all_drafters, rf_error *err)
{
    rf_error mine = {RF_OK, ""};

    return agree(rf_job_open(&job->files, job->options, all_drafters, &mine), &mine, err);
}

static int check_same(const rf_job *job, rf_error *err)
{
    char target[192], drafter[192];
    const rf_gguf *t = job->files.target_file, *d = job->files.drafter_file;
    const char *parts[] = {"program (version " PACKAGE_VERSION ")", target, drafter, job->backend->ops->arithmetic(job->backend)};

    snprintf(target, sizeof target, "model file (%zu bytes, header %016" PRIx64 ")", rf_gguf_file_size(t), rf_gguf_header_hash(t));
    snprintf(drafter, sizeof drafter, "drafter file (%zu bytes, header %016" PRIx64 ")", d ? rf_gguf_file_size(d) : 0,
             d ? rf_gguf_header_hash(d) : 0);
    return rf_world_same(parts, sizeof parts / sizeof *parts, err);
}

static int make_plan(rf_job *job, rf_error *err)
{
    const rf_options *o = job->options;
    const rf_job_files *f = &job->files;
    rf_plan_spec spec = {f->target_file, f->drafter_file, &f->target, f->has_drafter ? &f->drafter : NULL, f->with_mtp,
                         o->split, rf_world_size(), o->n_tensor_split ? o->tensor_split : NULL, o->n_tensor_split};

    if (o->action == RF_ACTION_PLAN && o->plan_ranks)
        spec.n_ranks = o->plan_ranks;
    job->plan = rf_plan_create(&spec, err);
    return job->plan ? 0 : -1;
}

static void make_sizes(rf_job *job, size_t n_slots)
{
    const rf_options *o = job->options;
    size_t trained = job->files.target.n_ctx_train, rows = n_slots * RF_MAX_BLOCK;

    job->sizes.n_slots = n_slots;
    job->sizes.n_ctx = o->n_ctx > 0 ? (size_t)o->n_ctx : trained;
    job->sizes.max_rows = (size_t)o->batch > rows ? (size_t)o->batch : rows;
    job->sizes.type_k = o->type_k;
    job->sizes.type_v = o->type_v;
    job->drafter_sizes = job->sizes;
    job->drafter_sizes.type_k = o->type_k_draft;
    job->drafter_sizes.type_v = o->type_v_draft;
}

static size_t collect_k(const rf_job *job)
{
    size_t k = RF_COLLECT_K;

    if (job->files.has_drafter && job->files.drafter.selector_top_k > k)
        k = job->files.drafter.selector_top_k;
    return k;
}

static void set_context(rf_job *job, size_t n_ctx)
{
    job->sizes.n_ctx = job->drafter_sizes.n_ctx = n_ctx;
}

/* Memory of one rank, the least over ranks; 0: unknown. */
static size_t available_memory(const rf_job *job)
{
    size_t available = rf_device_free_memory(job->options);

    if (!available)
        available = rf_memory_share(rf_memory_available(), (size_t)rf_world_node_size());
    rf_world_least(&available);
    return available;
}

/* How many requests of a batch run at once unless --parallel says: the most whose contexts fit whole, at least one. */
static int choose_slots(rf_job *job, size_t available, rf_error *err)
{
    const rf_options *o = job->options;
    size_t n = o->parallel ? (size_t)o->parallel : o->batch_in ? RF_DEFAULT_PARALLEL : 1, fits;

    for (;; n--) {
        make_sizes(job, n);
        if (o->parallel || !available || n == 1)
            return 0;
        if (rf_plan_fit(job->plan, rf_device_traits(o), &job->sizes, &job->drafter_sizes, collect_k(job), available, &fits, err) != 0)
            return -1;
        if (fits == job->sizes.n_ctx)
            return 0;
    }
}

/* --fit: the context is lowered when -c was not given; else what does not fit is refused. The tightest host decides. */
static int fit_context(rf_job *job, size_t available, rf_error *err)
{
    const rf_options *o = job->options;
    const rf_ops *ops = rf_device_traits(o);
    size_t wanted = job->sizes.n_ctx, fits = wanted;
    bool may_lower = o->fit && o->n_ctx < 0;

    if (!available)
        return 0;
    if (rf_plan_fit(job->plan, ops, &job->sizes, &job->drafter_sizes, collect_k(job), available, &fits, err) != 0)
        return -1;
    if (fits == wanted)
        return 0;
    if (!may_lower || fits == 0)
        return rf_fail(err, RF_ERR_MEMORY, "a context of %zu positions does not fit in the %zu MiB a rank may use; the largest that fits is %zu",
                       wanted, available >> 20, fits);
    set_context(job, fits);
    rf_log_info("context lowered from %zu to %zu positions: more does not fit in %zu MiB a rank (--fit off refuses instead)", wanted, fits,
                available >> 20);
    return 0;
}

static int create_backend(rf_job *job, rf_error *err)
{
    rf_error mine = {RF_OK, ""};
    char mask[RF_MASK_TEXT];
    int failed, place, n_alike;
    rf_device_spec spec = {0, 1, 1, false};

    rf_world_alike_on_host("all", &spec.place, &spec.n_ranks);
    rf_topology_mask_text(mask);
    rf_world_alike_on_host(mask, &place, &n_alike);
    failed = rf_topology_apply(job->options->threads, place, n_alike, &job->topology, &mine);
    if (!failed) {
        spec.n_threads = job->topology.n_threads;
        spec.busy = job->topology.busy;
        job->backend = rf_device_create(job->options, &spec, &mine);
        failed = job->backend ? 0 : -1;
    }
    if (!failed && job->options->time_ops)
        failed = (job->timers = rf_op_timers_create(job->backend, &mine)) ? 0 : -1;
    return agree(failed, &mine, err);
}

static int create_comms(rf_job *job, rf_error *err)
{
    rf_error mine = {RF_OK, ""};

    job->world = rf_comm_create(job->backend, job->options->allreduce, job->topology.busy, err);
    if (!job->world)
        return -1;
    job->inner = job->options->split == RF_SPLIT_TENSOR ? job->world : rf_comm_create_self(job->backend);
    if (!job->inner)
        rf_fail(&mine, RF_ERR_MEMORY, "no memory for a communicator");
    return agree(!job->inner, &mine, err);
}

static void show_load(void *context, size_t done, size_t all)
{
    rf_progress_step(context, done >> 20, all >> 20);
}

typedef struct {
    rf_job *job;
    rf_error *err;
} engine_load;

static void load_engine(void *context)
{
    engine_load *load = context;
    rf_job *job = load->job;

    job->engine = rf_engine_create(job->backend, job->world, job->inner, &job->engine_spec, load->err);
}

static int create_engine(rf_job *job, rf_error *err)
{
    rf_progress progress;
    engine_load load;
    rf_error mine = {RF_OK, ""};
    rf_engine_spec *s = &job->engine_spec;
    double start = rf_seconds();

    *s = (rf_engine_spec){job->files.target_file, job->files.drafter_file, &job->files.target,
                          job->files.has_drafter ? &job->files.drafter : NULL, job->files.with_mtp, &job->shard, job->sizes,
                          job->drafter_sizes, collect_k(job), rf_job_leads() ? show_load : NULL, &progress};
    rf_progress_begin(&progress, "loading", "MiB");
    load = (engine_load){job, &mine};
    job->backend->ops->step(job->backend, load_engine, &load);
    rf_progress_end(&progress);
    job->load_seconds = rf_seconds() - start;
    return agree(!job->engine, &mine, err);
}

static int create_chat(rf_job *job, rf_error *err)
{
    rf_chat_options c = {{NULL, 0}, job->options->reasoning, job->options->special};

    if (job->options->raw)
        return 0;
    if (rf_gguf_has(job->files.target_file, "tokenizer.chat_template") &&
        rf_gguf_get_string(job->files.target_file, "tokenizer.chat_template", &c.chat_template, err) != 0)
        return -1;
    job->chat = rf_chat_create(job->tokenizer, &c, err);
    return job->chat ? 0 : -1;
}

/* What only the leader holds: text, and the draft-verify loop. */
static int create_leader(rf_job *job, rf_error *err)
{
    const rf_job_files *f = &job->files;
    rf_error mine = {RF_OK, ""};
    int failed = 0;

    if (rf_job_leads()) {
        job->tokenizer = rf_tokenizer_from_gguf(f->target_file, &mine);
        if (job->tokenizer && rf_tokenizer_n_tokens(job->tokenizer) > f->target.n_vocab)
            failed = rf_fail(&mine, RF_ERR_FILE, "%s: %zu tokens, but embeddings for %zu", f->target_path,
                             rf_tokenizer_n_tokens(job->tokenizer), f->target.n_vocab);
        if (job->tokenizer && !failed)
            failed = create_chat(job, &mine);
        failed = failed || !job->tokenizer;
        if (!failed && f->has_drafter)
            failed = !(job->selector = rf_selector_create(f->drafter_file, &f->drafter, &mine));
        if (!failed)
            failed = !(job->leader = rf_leader_create(job->engine, job->world, &job->engine_spec, job->selector,
                                                      job->options->check, &mine));
    }
    return agree(failed, &mine, err);
}

static void warn_context(const rf_job *job)
{
    if (job->sizes.n_ctx > job->files.target.n_ctx_train)
        rf_log_warn("a context of %zu positions is longer than the %zu the model was trained for", job->sizes.n_ctx,
                    job->files.target.n_ctx_train);
}

int rf_job_start(rf_job *job, const rf_options *options, size_t n_slots, bool all_drafters, rf_error *err)
{
    rf_error mine = {RF_OK, ""};
    size_t available;

    memset(job, 0, sizeof *job);
    job->options = options;
    rf_gguf_guard_sigbus();
    if (open_files(job, all_drafters, err) != 0 || create_backend(job, err) != 0 || check_same(job, err) != 0)
        return -1;
    if (agree(make_plan(job, &mine), &mine, err) != 0)
        return -1;
    rf_plan_shard(job->plan, rf_world_rank(), &job->shard);
    available = available_memory(job);
    if (n_slots)
        make_sizes(job, n_slots);
    else if (agree(choose_slots(job, available, &mine), &mine, err) != 0)
        return -1;
    if (agree(fit_context(job, available, &mine), &mine, err) != 0)
        return -1;
    warn_context(job);
    if (create_comms(job, err) != 0 || create_engine(job, err) != 0)
        return -1;
    return create_leader(job, err);
}

static void destroy_engine(rf_job *job)
{
    rf_leader_destroy(job->leader);
    rf_selector_destroy(job->selector);
    rf_chat_destroy(job->chat);
    rf_tokenizer_destroy(job->tokenizer);
    rf_engine_destroy(job->engine);
    job->leader = NULL;
    job->selector = NULL;
    job->chat = NULL;
    job->tokenizer = NULL;
    job->engine = NULL;
}

int rf_job_reload(rf_job *job, rf_error *err)
{
    destroy_engine(job);
    return create_engine(job, err) != 0 || create_leader(job, err) != 0 ? -1 : 0;
}

void rf_job_stop(rf_job *job)
{
    destroy_engine(job);
    if (job->inner != job->world)
        rf_comm_destroy(job->inner);
    rf_comm_destroy(job->world);
    rf_op_timers_destroy(job->timers);
    if (job->backend)
        job->backend->ops->destroy(job->backend);
    rf_plan_destroy(job->plan);
    rf_job_close(&job->files);
    memset(job, 0, sizeof *job);
}

/* Followers: commands until QUIT, whose exit code is returned. */
static int follow(rf_job *job)
{
    rf_command command;
    rf_error err;
    bool idle = false;
    int code;

    /* the leader's own command has the same maxima (rf_leader_create) */
    if (rf_command_create_for(&command, &job->sizes, &err) != 0)
        rf_world_abort(err.code, err.text);
    do {
        rf_command_exchange(&command, job->world, false, idle);
        idle = command.head.idle_next != 0;
    } while (rf_engine_run(job->engine, &command));
    code = command.head.exit_code;
    rf_command_destroy(&command);
    return code;
}

typedef struct {
    rf_job *job;
    int (*lead)(rf_job *job, void *context);
    void *context;
    int code;
} job_run;

static void run_role(void *context)
{
    job_run *r = context;

    r->code = rf_job_leads() ? r->lead(r->job, r->context) : follow(r->job);
}

int rf_job_run(rf_job *job, int (*lead)(rf_job *job, void *context), void *context)
{
    job_run r = {job, lead, context, 0};

    job->backend->ops->step(job->backend, run_role, &r);
    return r.code;
}

void rf_job_sequence_as(const rf_job *job, int32_t slot, const rf_sampling *sampling, int64_t n_predict, rf_sequence *s)
{
    memset(s, 0, sizeof *s);
    s->slot = slot;
    s->drafter = job->files.spec;
    s->n_max = job->files.n_max;
    s->n_min = (size_t)job->options->spec_n_min;
    s->p_min = job->options->spec_p_min;
    s->sampling = *sampling;
    s->n_predict = n_predict;
}

void rf_job_sequence(const rf_job *job, int32_t slot, rf_sequence *s)
{
    const rf_options *o = job->options;
    rf_sampling sampling = {o->temperature, o->top_k, o->top_p, o->min_p, o->seed};

    if (!o->seed_given && o->temperature > 0) {
        sampling.seed = rf_random_seed();
        rf_log_info("seed %" PRIu64, sampling.seed);
    }
    rf_job_sequence_as(job, slot, &sampling, o->n_predict, s);
}

static int print_cost(const rf_job *job, FILE *out, rf_error *err)
{
    char source[400];
    rf_cost_wishes w = {.source = source, .chunk = (size_t)job->options->batch};

    if (job->files.spec != RF_DRAFTER_NONE)
        w.drafts = job->files.n_max;
    if (rf_machine_choose(job->options, &w.machine, source, sizeof source, err) != 0)
        return -1;
    return rf_plan_print_cost(job->plan, &job->sizes, &job->drafter_sizes, &w, out, err);
}

int rf_job_print_plan(const rf_options *o, FILE *out, rf_error *err)
{
    rf_job job = {.options = o};
    int failed = rf_job_open(&job.files, o, false, err);

    if (!failed)
        failed = make_plan(&job, err);
    if (!failed) {
        size_t available = rf_memory_share(rf_memory_available(), (size_t)rf_plan_spec_of(job.plan)->n_ranks);

        failed = choose_slots(&job, available, err);
        if (!failed)
            failed = rf_plan_print(job.plan, rf_device_traits(o), &job.sizes, &job.drafter_sizes, collect_k(&job), available, out, err);
    }
    if (!failed)
        failed = print_cost(&job, out, err);
    rf_plan_destroy(job.plan);
    rf_job_close(&job.files);
    return failed;
}
