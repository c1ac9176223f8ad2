#include "config.h"

#include "batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch_request.h"
#include "clock.h"
#include "generate.h"
#include "log.h"
#include "progress.h"
#include "signals.h"
#include "utf8.h"

/* A slot and the request in it. */
typedef struct {
    rf_sequence sequence;
    rf_request request;
    rf_generator *generator;
    FILE *out;            /* the generated text, in memory */
    char *text;
    size_t length;
    rf_tokens prompt, tokens;
    uint64_t *hashes;     /* [tokens.capacity] with --check */
    bool check, no_memory;
    size_t line;
    double start;
} slot;

typedef struct {
    rf_job *job;
    rf_batch_files *files;
    slot *slots;
    rf_sequence **live;   /* [n_live] of n_slots: the first n_live slots of `order` are busy */
    slot **order;
    size_t n_slots, n_live;
    size_t done, failed, all; /* requests; done counts those of earlier runs, too */
    rf_stats total;
    rf_progress progress;
    char rate[80];
    double start, shown;
} batch;

static int signal_of(const batch *b)
{
    int here = rf_signal_seen();

    return here ? here : (int)(rf_leader_status(b->job->leader) & 0xff);
}

/* ---- Results */

/* Text as JSON wants it: what is not UTF-8 becomes U+FFFD. */
static json_t *json_text(const char *text, size_t n)
{
    char *clean = malloc(3 * n + 1);
    size_t used = 0;
    json_t *string;

    for (size_t i = 0; clean && i < n;) {
        size_t length = rf_utf8_length(text + i, n - i);

        memcpy(clean + used, length ? text + i : "\xEF\xBF\xBD", length ? length : 3);
        used += length ? length : 3;
        i += length ? length : 1;
    }
    string = clean ? json_stringn(clean, used) : NULL;
    free(clean);
    return string;
}

static json_t *json_ids(const rf_tokens *tokens)
{
    json_t *list = json_array();

    for (size_t i = 0; i < tokens->count; i++)
        json_array_append_new(list, json_integer(tokens->id[i]));
    return list;
}

static json_t *json_hashes(const slot *s)
{
    json_t *list = json_array();
    char digits[20];

    for (size_t i = 0; i < s->tokens.count; i++) {
        snprintf(digits, sizeof digits, "%016" PRIx64, s->hashes[i]);
        json_array_append_new(list, json_string(digits));
    }
    return list;
}

static json_t *result_of(const slot *s)
{
    const rf_stats *t = &s->sequence.stats;
    json_t *r = json_pack("{s:O, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "id", s->request.id, "text", json_text(s->text, s->length),
                          "tokens", json_ids(&s->tokens), "stop", rf_stop_name(s->sequence.stop), "prompt_tokens",
                          (json_int_t)s->prompt.count, "generated_tokens", (json_int_t)s->tokens.count, "rounds", (json_int_t)t->rounds,
                          "drafted", (json_int_t)t->drafted, "accepted", (json_int_t)t->accepted, "seconds", rf_seconds() - s->start);

    if (r && s->request.sampling.temperature > 0)
        json_object_set_new(r, "seed", json_integer((json_int_t)s->request.sampling.seed));
    if (r && s->check)
        json_object_set_new(r, "hashes", json_hashes(s));
    return r;
}

static int put_error(batch *b, json_t *id, size_t line, const char *text, rf_error *err)
{
    json_t *none = json_null();

    b->done++;
    b->failed++;
    rf_log_warn("line %zu: %s", line, text);
    return rf_batch_files_put(b->files, json_pack("{s:O, s:I, s:s}", "id", id ? id : none, "line", (json_int_t)line, "error", text), err);
}

/* ---- A request's life in a slot */

static rf_stop on_token(void *context, int32_t token, int64_t position, uint64_t hash)
{
    slot *s = context;
    uint64_t *grown;

    (void)position;
    s->no_memory = s->no_memory || rf_tokens_push(&s->tokens, token) != 0;
    if (s->check && !s->no_memory) {
        grown = realloc(s->hashes, s->tokens.capacity * sizeof *grown);
        s->no_memory = !grown;
        if (grown) {
            s->hashes = grown;
            s->hashes[s->tokens.count - 1] = hash;
        }
    }
    return s->no_memory ? RF_STOP_INTERRUPTED : RF_STOP_NONE;
}

static void empty(slot *s)
{
    rf_generator_destroy(s->generator);
    s->generator = NULL;
    if (s->out)
        fclose(s->out);
    s->out = NULL;
    free(s->text);
    s->text = NULL;
    rf_request_free(&s->request);
    rf_tokens_clear(&s->prompt);
    rf_tokens_clear(&s->tokens);
}

static void destroy(batch *b)
{
    for (size_t i = 0; b->slots && i < b->n_slots; i++) {
        empty(&b->slots[i]);
        rf_tokens_free(&b->slots[i].prompt);
        rf_tokens_free(&b->slots[i].tokens);
        free(b->slots[i].hashes);
    }
    free(b->slots);
    free(b->order);
    free(b->live);
}

static int create(batch *b, rf_job *job, rf_batch_files *files, rf_error *err)
{
    rf_batch_counts counts = rf_batch_files_counts(files);

    *b = (batch){.job = job, .files = files, .n_slots = job->sizes.n_slots, .done = counts.done, .failed = counts.failed,
                 .all = counts.requests, .start = rf_seconds()};
    b->slots = calloc(b->n_slots, sizeof *b->slots);
    b->order = calloc(b->n_slots, sizeof(slot *));
    b->live = calloc(b->n_slots, sizeof *b->live);
    if (!b->slots || !b->order || !b->live) {
        destroy(b);
        return rf_fail(err, RF_ERR_MEMORY, "no memory for %zu requests at once", b->n_slots);
    }
    for (size_t i = 0; i < b->n_slots; i++)
        b->order[i] = &b->slots[i];
    return 0;
}

static int encode(const batch *b, slot *s, rf_error *err)
{
    const rf_job *job = b->job;
    const rf_options *o = job->options;
    const rf_request *r = &s->request;

    if (r->messages)
        return rf_chat_conversation(job->chat, r->messages, r->n_messages, &s->prompt, err);
    return job->chat ? rf_chat_first(job->chat, o->system, r->prompt, &s->prompt, err)
                     : rf_raw_first(job->tokenizer, r->prompt, o->special, &s->prompt, err);
}

/* Reads the line into the slot: tokens, sampling, where the text goes. RF_ERR_USAGE: the request is at fault. */
static int load(batch *b, slot *s, const rf_batch_line *line, rf_error *err)
{
    rf_job *job = b->job;
    const rf_options *o = job->options;
    rf_generator_spec spec = {.tokenizer = job->tokenizer, .ignore_eog = o->ignore_eos, .on_token = on_token, .context = s};

    s->line = line->number;
    s->start = rf_seconds();
    s->check = o->check;
    s->no_memory = false;
    if (line->too_long)
        return rf_fail(err, RF_ERR_USAGE, "the line is longer than 64 MiB");
    if (rf_request_parse(&s->request, line->text, o, err) != 0)
        return -1;
    if (line->again)
        return rf_fail(err, RF_ERR_USAGE, "an earlier line has the same \"id\"");
    if (encode(b, s, err) != 0)
        return -1;
    if (!s->prompt.count)
        return rf_fail(err, RF_ERR_USAGE, "the prompt is empty");
    if (s->prompt.count > job->sizes.n_ctx)
        return rf_fail(err, RF_ERR_USAGE, "the prompt has %zu tokens, but the context %zu positions (-c sets the context)", s->prompt.count,
                       job->sizes.n_ctx);
    s->out = open_memstream(&s->text, &s->length);
    spec.out = s->out;
    spec.stop = s->request.stop;
    spec.n_stop = s->request.n_stop;
    s->generator = s->out ? rf_generator_create(job->leader, &spec, err) : NULL;
    return s->generator ? 0 : rf_fail(err, RF_ERR_MEMORY, "no memory for a request");
}

static int prefill(batch *b, slot *s, rf_error *err)
{
    rf_sequence *q = &s->sequence;
    double start = rf_seconds();

    rf_job_sequence_as(b->job, (int32_t)(s - b->slots), &s->request.sampling, s->request.n_predict, q);
    rf_generator_begin(s->generator, q);
    rf_round_reset(b->job->leader, q);
    if (rf_round_prefill(b->job->leader, q, s->prompt.id, s->prompt.count, (size_t)b->job->options->batch, NULL, NULL, err) != 0)
        return -1;
    rf_stats_prefill(&b->total, s->prompt.count, rf_seconds() - start);
    return 0;
}

static int finish(batch *b, slot *s, rf_error *err)
{
    if (s->no_memory)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for the tokens of a request");
    rf_generator_finish(s->generator, s->sequence.stop);
    if (ferror(s->out))
        return rf_fail(err, RF_ERR_MEMORY, "no memory for the text of a request");
    rf_stats_add(&b->total, &s->sequence.stats);
    b->done++;
    return rf_batch_files_put(b->files, result_of(s), err);
}

/* ---- The job */

/* The next request that can run into the first free slot: 1; none left: 0. */
static int admit(batch *b, rf_error *err)
{
    slot *s = b->order[b->n_live];
    rf_batch_line line;
    rf_error at_fault = {RF_OK, ""};
    int got;

    while ((got = rf_batch_files_next(b->files, &line, err)) == 1) {
        if (load(b, s, &line, &at_fault) == 0) {
            b->n_live++;
            return prefill(b, s, err) == 0 ? 1 : -1;
        }
        if (at_fault.code != RF_ERR_USAGE) {
            *err = at_fault;
            return -1;
        }
        if (put_error(b, s->request.id, s->line, at_fault.text, err) != 0)
            return -1;
        empty(s);
    }
    return got;
}

static int round_of_all(batch *b, rf_error *err)
{
    uint64_t before = 0, after = 0;
    double start = rf_seconds();
    int failed;

    for (size_t i = 0; i < b->n_live; i++) {
        b->live[i] = &b->order[i]->sequence;
        before += b->order[i]->tokens.count;
    }
    failed = rf_round_run(b->job->leader, b->live, b->n_live, err);
    for (size_t i = 0; i < b->n_live; i++)
        after += b->order[i]->tokens.count;
    rf_stats_decode(&b->total, after - before, rf_seconds() - start);
    return failed;
}

/* Results of the sequences that stopped; their slots are free. What a signal stopped is not finished. */
static int retire(batch *b, rf_error *err)
{
    for (size_t i = 0; i < b->n_live;) {
        slot *s = b->order[i];

        if (s->sequence.stop == RF_STOP_NONE) {
            i++;
            continue;
        }
        if (s->sequence.stop != RF_STOP_INTERRUPTED || s->no_memory)
            if (finish(b, s, err) != 0)
                return -1;
        empty(s);
        b->order[i] = b->order[--b->n_live];
        b->order[b->n_live] = s;
    }
    return rf_batch_files_sync(b->files, err);
}

static void show(batch *b)
{
    double seconds = rf_seconds() - b->start;
    rf_batch_counts before = rf_batch_files_counts(b->files);
    size_t here = b->done - before.done;
    uint64_t tokens = b->total.prompt_tokens + b->total.decoded;
    int n = snprintf(b->rate, sizeof b->rate, "requests, %.1f tokens/s", seconds > 0 ? (double)tokens / seconds : 0);

    if (here && n > 0)
        snprintf(b->rate + n, sizeof b->rate - (size_t)n, ", %.0f s left", seconds / (double)here * (double)(b->all - b->done));
    b->progress.unit = b->rate;
    rf_progress_step(&b->progress, b->done, b->all);
}

static int run(batch *b, rf_error *err)
{
    bool more = true;

    while (more || b->n_live) {
        while (more && b->n_live < b->n_slots && !signal_of(b)) {
            int got = admit(b, err);

            if (got < 0)
                return -1;
            more = got == 1;
        }
        if (retire(b, err) != 0)
            return -1;
        if (signal_of(b))
            return 0;
        if (b->n_live && (round_of_all(b, err) != 0 || retire(b, err) != 0))
            return -1;
        show(b);
    }
    return 0;
}

static void report(const batch *b)
{
    rf_batch_counts before = rf_batch_files_counts(b->files);
    double seconds = rf_seconds() - b->start;

    rf_log_info("batch: %zu of %zu requests have results (%zu from earlier runs), %zu of them errors; %zu run here in %.1f s, "
                "%.1f tokens generated a second",
                b->done, b->all, before.done, b->failed, b->done - before.done, seconds,
                seconds > 0 ? (double)b->total.decoded / seconds : 0);
    if (before.failed)
        rf_log_info("%zu errors are of an earlier run: take their lines out of %s to try again", before.failed, b->job->options->batch_out);
    rf_stats_print(&b->total);
    if (b->job->options->json)
        rf_stats_print_json(&b->total, rf_drafter_name(b->job->files.spec), b->done == b->all ? "batch done" : rf_stop_name(RF_STOP_INTERRUPTED));
}

int rf_batch_run(rf_job *job, rf_batch_files *files, int *signal_seen, size_t *failed, rf_error *err)
{
    batch b;
    int result;

    if (create(&b, job, files, err) != 0)
        return -1;
    rf_log_info("batch: %zu requests, %zu of them have results; up to %zu at once", b.all, b.done, b.n_slots);
    rf_progress_begin(&b.progress, "batch", "requests");
    result = run(&b, err);
    rf_progress_end(&b.progress);
    *signal_seen = signal_of(&b);
    *failed = b.failed;
    report(&b);
    destroy(&b);
    return result;
}
