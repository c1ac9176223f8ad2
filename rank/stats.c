#include "stats.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "log.h"

void rf_stats_round(rf_stats *s, size_t drafted, size_t accepted)
{
    s->rounds++;
    s->drafted += drafted;
    s->accepted += accepted;
    for (size_t i = 0; i < drafted; i++)
        s->drafted_at[i]++;
    for (size_t i = 0; i < accepted; i++)
        s->accepted_at[i]++;
}

void rf_stats_prefill(rf_stats *s, size_t tokens, double seconds)
{
    s->prompt_tokens += tokens;
    s->prefill_seconds += seconds;
}

void rf_stats_decode(rf_stats *s, size_t tokens, double seconds)
{
    s->decoded += tokens;
    s->decode_seconds += seconds;
}

void rf_stats_add(rf_stats *total, const rf_stats *one)
{
    total->rounds += one->rounds;
    total->drafted += one->drafted;
    total->accepted += one->accepted;
    for (size_t i = 0; i < RF_MAX_BLOCK; i++) {
        total->drafted_at[i] += one->drafted_at[i];
        total->accepted_at[i] += one->accepted_at[i];
    }
    rf_stats_prefill(total, one->prompt_tokens, one->prefill_seconds);
    rf_stats_decode(total, one->decoded, one->decode_seconds);
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static double tokens_per_round(const rf_stats *s)
{
    return ratio((double)(s->accepted + s->rounds), (double)s->rounds);
}

static void print_positions(const rf_stats *s)
{
    char line[RF_MAX_BLOCK * 24];
    size_t used = 0;

    for (size_t i = 0; i < RF_MAX_BLOCK && s->drafted_at[i]; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, " %.3f",
                                 ratio((double)s->accepted_at[i], (double)s->drafted_at[i]));
    if (used)
        rf_log_info("acceptance by draft position:%s", line);
}

void rf_stats_print(const rf_stats *s)
{
    rf_log_info("prefill: %" PRIu64 " tokens, %.1f tokens/s; decode: %" PRIu64 " tokens, %.1f tokens/s",
                s->prompt_tokens, ratio((double)s->prompt_tokens, s->prefill_seconds), s->decoded,
                ratio((double)s->decoded, s->decode_seconds));
    if (!s->drafted)
        return;
    rf_log_info(
        "drafted %" PRIu64 ", accepted %" PRIu64 " in %" PRIu64 " rounds: %.1f %% of drafts, %.2f tokens per round",
        s->drafted, s->accepted, s->rounds, 100 * ratio((double)s->accepted, (double)s->drafted), tokens_per_round(s));
    print_positions(s);
}

void rf_stats_print_json(const rf_stats *s, const char *drafter, const char *stop)
{
    json_t *by_position = json_array(), *object;
    char *text;

    for (size_t i = 0; i < RF_MAX_BLOCK && s->drafted_at[i]; i++)
        json_array_append_new(by_position, json_real(ratio((double)s->accepted_at[i], (double)s->drafted_at[i])));
    object =
        json_pack("{s:s, s:s, s:I, s:f, s:f, s:I, s:f, s:f, s:I, s:I, s:I, s:f, s:f, s:o}", "drafter", drafter, "stop",
                  stop, "prompt_tokens", (json_int_t)s->prompt_tokens, "prefill_seconds", s->prefill_seconds,
                  "prefill_tokens_per_second", ratio((double)s->prompt_tokens, s->prefill_seconds), "decoded_tokens",
                  (json_int_t)s->decoded, "decode_seconds", s->decode_seconds, "decode_tokens_per_second",
                  ratio((double)s->decoded, s->decode_seconds), "rounds", (json_int_t)s->rounds, "drafted",
                  (json_int_t)s->drafted, "accepted", (json_int_t)s->accepted, "accepted_per_drafted",
                  ratio((double)s->accepted, (double)s->drafted), "tokens_per_round", tokens_per_round(s),
                  "acceptance_by_position", by_position);
    text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text)
        rf_log_info("%s", text);
    free(text);
    json_decref(object);
}
