#include "config.h"

#include "generate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "progress.h"

struct rf_generator {
    rf_leader *leader;
    rf_generator_spec spec;
    rf_detokenizer *detokenizer;
    char *held;           /* text that may still turn out to be the start of a stop string */
    size_t n_held, capacity, longest;
    char last;            /* last byte written this turn, or '\n' */
};

rf_generator *rf_generator_create(rf_leader *l, const rf_generator_spec *spec, rf_error *err)
{
    rf_generator *g = calloc(1, sizeof *g);
    size_t token = 0;

    if (!g) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for output");
        return NULL;
    }
    g->leader = l;
    g->spec = *spec;
    g->last = '\n';
    for (size_t i = 0; i < spec->n_stop; i++)
        if (spec->stop[i].length > g->longest)
            g->longest = spec->stop[i].length;
    for (size_t i = 0; i < rf_tokenizer_n_tokens(spec->tokenizer); i++) {
        size_t n = rf_tokenizer_bytes(spec->tokenizer, (int32_t)i).length;

        token = n > token ? n : token;
    }
    /* a push gives at most a held-back UTF-8 tail and one token; longest - 1 bytes stay held */
    g->capacity = g->longest + token + 8;
    g->held = malloc(g->capacity);
    g->detokenizer = rf_detokenizer_create(spec->tokenizer, err);
    if (g->held && g->detokenizer)
        return g;
    rf_generator_destroy(g);
    rf_fail(err, RF_ERR_MEMORY, "no memory for output");
    return NULL;
}

void rf_generator_destroy(rf_generator *g)
{
    if (!g)
        return;
    rf_detokenizer_destroy(g->detokenizer);
    free(g->held);
    free(g);
}

static void emit(rf_generator *g, const char *data, size_t n)
{
    if (!n)
        return;
    fwrite(data, 1, n, g->spec.out);
    g->last = data[n - 1];
}

/* Position of the first stop string in the held text, or n_held. */
static size_t find_stop(const rf_generator *g)
{
    size_t first = g->n_held;

    for (size_t i = 0; i < g->spec.n_stop; i++) {
        const char *at = g->n_held ? memmem(g->held, g->n_held, g->spec.stop[i].data, g->spec.stop[i].length) : NULL;

        if (at && (size_t)(at - g->held) < first)
            first = (size_t)(at - g->held);
    }
    return first;
}

/* Length of the longest tail of the held text that is a proper beginning of a stop string. */
static size_t unfinished(const rf_generator *g)
{
    size_t most = 0;

    for (size_t i = 0; i < g->spec.n_stop; i++) {
        size_t n = g->spec.stop[i].length - 1;

        for (n = n < g->n_held ? n : g->n_held; n > most; n--)
            if (memcmp(g->held + g->n_held - n, g->spec.stop[i].data, n) == 0)
                most = n;
    }
    return most;
}

/* true: a stop string is complete; the text before it has been written. */
static bool write_text(rf_generator *g, rf_text text)
{
    size_t stop, keep;

    if (!text.length)
        return false;
    memcpy(g->held + g->n_held, text.data, text.length);
    g->n_held += text.length;
    stop = find_stop(g);
    if (stop < g->n_held) {
        emit(g, g->held, stop);
        g->n_held = 0;
        return true;
    }
    keep = unfinished(g);
    emit(g, g->held, g->n_held - keep);
    memmove(g->held, g->held + g->n_held - keep, keep);
    g->n_held = keep;
    return false;
}

static rf_stop on_token(void *context, int32_t token, int64_t position, uint64_t hash)
{
    rf_generator *g = context;
    rf_stop stop = g->spec.on_token ? g->spec.on_token(g->spec.context, token, position, hash) : RF_STOP_NONE;

    if (stop != RF_STOP_NONE)
        return stop;
    if (g->spec.check)
        rf_log_info("check %" PRId64 " %" PRId32 " %016" PRIx64, position, token, hash);
    if (!g->spec.ignore_eog && rf_tokenizer_is_eog(g->spec.tokenizer, token))
        return RF_STOP_END;
    return write_text(g, rf_detokenizer_push(g->detokenizer, token)) ? RF_STOP_STRING : RF_STOP_NONE;
}

void rf_generator_begin(rf_generator *g, rf_sequence *s)
{
    s->on_token = on_token;
    s->context = g;
    g->last = '\n';
}

void rf_generator_finish(rf_generator *g, rf_stop stop)
{
    rf_text tail = rf_detokenizer_flush(g->detokenizer);

    if (stop != RF_STOP_STRING) {
        write_text(g, tail);
        emit(g, g->held, g->n_held);
    }
    g->n_held = 0;
    fflush(g->spec.out);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void show_prefill(void *context, size_t done, size_t all)
{
    rf_progress_step(context, done, all);
}

static int rounds(rf_generator *g, rf_sequence *s, rf_error *err)
{
    while (s->stop == RF_STOP_NONE) {
        if (rf_round_run(g->leader, &s, 1, err) != 0)
            return -1;
        if (fflush(g->spec.out) != 0)
            s->stop = RF_STOP_INTERRUPTED;
    }
    rf_round_settle(g->leader, &s, 1);
    return 0;
}

int rf_generate(rf_generator *g, rf_sequence *s, const int32_t *prompt, size_t n_prompt, rf_error *err)
{
    double start = now(), first;
    rf_progress progress;
    int failed;

    rf_generator_begin(g, s);
    rf_progress_begin(&progress, "prefill", "tokens");
    if (rf_round_prefill(g->leader, s, prompt, n_prompt, g->spec.chunk, show_prefill, &progress, err) != 0)
        return -1;
    rf_progress_end(&progress);
    fflush(g->spec.out);
    first = now();
    rf_stats_prefill(&s->stats, n_prompt, first - start);
    failed = rounds(g, s, err);
    rf_stats_decode(&s->stats, s->generated > 0 ? (size_t)s->generated - 1 : 0, now() - first);
    rf_generator_finish(g, s->stop);
    return failed;
}

bool rf_generator_at_line_start(const rf_generator *g)
{
    return g->last == '\n';
}

const char *rf_stop_name(rf_stop stop)
{
    static const char *const names[] = {
        [RF_STOP_NONE] = "none",          [RF_STOP_END] = "end of generation", [RF_STOP_STRING] = "stop string",
        [RF_STOP_LIMIT] = "token limit",  [RF_STOP_CONTEXT] = "context full",  [RF_STOP_INTERRUPTED] = "interrupted",
    };

    return names[stop];
}
