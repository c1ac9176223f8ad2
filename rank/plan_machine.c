#include "plan_machine.h"

#include <math.h>
#include <string.h>

#include "bench_file.h"

/* Of no particular machine: two channels of memory, vector products, ranks on one host. */
static const rf_machine nobody = {
    .read = 30e9, .products = 1000e9, .read_reached = 1, .products_reached = 1, .latency = 2e-6, .link = 10e9};

/* A positive number of an object; 0 when it is not there, -1 when it is something else. */
static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    double v = json_number_value(value);

    if (!value)
        return 0;
    return json_is_number(value) && isfinite(v) && v > 0 ? v : -1;
}

static int is(const json_t *object, const char *key, const char *word)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text && strcmp(text, word) == 0;
}

/* The figure of this name with the least (sign 1) or most (-1) of a key, among those for which other is word. NULL:
 * none. */
static const json_t *pick(const json_t *figures, const char *name, const char *other, const char *word,
                          const char *key, int sign)
{
    const json_t *best = NULL, *f;
    size_t i;

    json_array_foreach(figures, i, f) {
        double at = json_number_value(json_object_get(f, key));

        if (is(f, "figure", name) && is(f, other, word) &&
            (!best || sign * at < sign * json_number_value(json_object_get(best, key))))
            best = f;
    }
    return best;
}

/* What a figure got of a limit of all ranks; 1 where it says nothing. More than all there is makes the limit larger. */
static double reached(const json_t *figure, const char *what, double *limit)
{
    double work = number(figure, what), seconds = number(figure, "best_s");
    double share = work > 0 && seconds > 0 ? work / seconds / *limit : 1;

    if (share <= 1)
        return share;
    *limit *= share;
    return 1;
}

/* Decoding a shallow context is bound by reading, a long prefill by products. */
static void take_reached(const json_t *figures, rf_machine *m)
{
    m->read_reached = reached(pick(figures, "decode", "limit", "memory", "depth", 1), "bytes", &m->read);
    m->products_reached = reached(pick(figures, "prefill", "limit", "products", "rows", -1), "products", &m->products);
}

/* The smallest sum is all latency; the largest, scattered and gathered, is two of these and moves its bytes twice but
 * for the rank's own. */
static void take_exchange(const json_t *report, const json_t *figures, double ranks, rf_machine *m)
{
    const char *transport = json_string_value(json_object_get(report, "transport"));
    const json_t *small, *large;
    double bytes, seconds;

    if (!transport || ranks < 2)
        return;
    small = pick(figures, "allreduce", "transport", transport, "payload_bytes", 1);
    large = pick(figures, "allreduce", "transport", transport, "payload_bytes", -1);
    if (number(small, "best_s") > 0)
        m->latency = number(small, "best_s");
    bytes = number(large, "payload_bytes");
    seconds = number(large, "best_s");
    if (bytes > 0 && seconds > 2 * m->latency)
        m->link = 2 * bytes * (ranks - 1) / ranks / (seconds - 2 * m->latency);
}

static int take_report(const char *path, rf_machine *m, char *source, size_t size, rf_error *err)
{
    json_t *report = rf_bench_file_load(path, err);
    const json_t *limits = json_object_get(report, "limits"), *figures = json_object_get(report, "figures");
    double ranks = number(report, "ranks"), read = number(limits, "read_bytes_per_s"),
           products = number(limits, "int8_per_s");

    if (!report)
        return -1;
    if (ranks < 1 || read <= 0 || products <= 0) {
        json_decref(report);
        return rf_fail(err, RF_ERR_FILE, "%s: expected ranks and limits that are positive numbers", path);
    }
    m->read = read;
    m->products = products;
    take_reached(figures, m);
    m->read /= ranks;
    m->products /= ranks;
    take_exchange(report, figures, ranks, m);
    snprintf(source, size, "as %s measured with %.0f rank%s%s", path, ranks, ranks > 1 ? "s" : "",
             ranks > 1 ? "" : "; sums over ranks of no particular machine: --cost-latency, --cost-link");
    json_decref(report);
    return 0;
}

int rf_machine_choose(const rf_options *o, rf_machine *m, char *source, size_t size, rf_error *err)
{
    bool given = o->cost_read > 0 || o->cost_products > 0 || o->cost_reached > 0 || o->cost_latency > 0 ||
                 o->cost_link > 0;
    bool all = o->cost_read > 0 && o->cost_products > 0 && o->cost_latency > 0 && o->cost_link > 0;
    size_t used;

    *m = nobody;
    snprintf(source, size, "%s",
             all     ? "as given"
             : given ? "what was not given is of no particular machine"
                     : "numbers of no particular machine: --cost-bench FILE takes measured ones, the other --cost "
                       "flags your own");
    if (o->cost_bench && take_report(o->cost_bench, m, source, size, err) != 0)
        return -1;
    used = strlen(source);
    if (o->cost_bench && given)
        snprintf(source + used, size - used, "; some given");
    if (o->cost_read > 0)
        m->read = o->cost_read * 1e9;
    if (o->cost_products > 0)
        m->products = o->cost_products * 1e9;
    if (o->cost_reached > 0)
        m->read_reached = m->products_reached = o->cost_reached / 100;
    if (o->cost_latency > 0)
        m->latency = o->cost_latency * 1e-6;
    if (o->cost_link > 0)
        m->link = o->cost_link * 1e9;
    return 0;
}
