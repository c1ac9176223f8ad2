/* Two reports: how percentages of limits, and costs in other figures, changed. Times are not compared: machines and
 * their moods differ. */
#include "config.h"

#include <string.h>

#include "bench.h"
#include "bench_file.h"

/* The report of the same files, ranks and threads; NULL: none. */
static const json_t *same_run(const json_t *old, const json_t *now)
{
    static const char *const parts[] = {"target", "drafter", "ranks", "threads", "split"};
    const json_t *one;
    size_t i;

    if (json_array_size(old) == 1)
        return json_array_get(old, 0);
    json_array_foreach(old, i, one) {
        bool same = true;

        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            same = same && json_equal(json_object_get(one, parts[k]), json_object_get(now, parts[k]));
        if (same)
            return one;
    }
    return NULL;
}

/* What tells figures apart. */
static const char *const keys[] = {"figure", "drafter", "transport", "depth", "rows", "accepted", "payload_bytes"};

static bool same_figure(const json_t *a, const json_t *b)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);

        if (!x != !y || (x && !json_equal(x, y)))
            return false;
    }
    return true;
}

static void name_of(const json_t *f, char *text, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < sizeof keys / sizeof *keys && used < size; i++) {
        const json_t *x = json_object_get(f, keys[i]);

        if (json_is_string(x))
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", json_string_value(x));
        else if (json_is_integer(x))
            used += (size_t)snprintf(text + used, size - used, ", %s %lld", keys[i], (long long)json_integer_value(x));
    }
}

typedef struct {
    FILE *out;
    double tolerance; /* < 0: none */
    size_t n, n_worse;
} comparison;

/* One number of a figure; gain > 1 is better. */
static void compare_number(comparison *c, const char *name, const char *what, double old, double now, double gain)
{
    bool worse = c->tolerance >= 0 && gain < 1 / (1 + c->tolerance / 100);

    c->n++;
    c->n_worse += worse;
    fprintf(c->out, "%-52s %-26s %9.3f -> %9.3f  %6.3f x%s\n", name, what, old, now, now / old, worse ? "  WORSE" : "");
}

static void compare_figure(comparison *c, const json_t *old, const json_t *now)
{
    double percent[2] = {json_number_value(json_object_get(old, "percent")),
                         json_number_value(json_object_get(now, "percent"))},
           ratio[2] = {json_number_value(json_object_get(old, "ratio")),
                       json_number_value(json_object_get(now, "ratio"))};
    const char *to = json_string_value(json_object_get(now, "ratio_to"));
    char name[160] = "", what[64];

    name_of(now, name, sizeof name);
    if (percent[0] > 0 && percent[1] > 0)
        compare_number(c, name, "% of its limit", percent[0], percent[1], percent[1] / percent[0]);
    if (ratio[0] > 0 && ratio[1] > 0 && to) {
        snprintf(what, sizeof what, "cost in %s", to);
        compare_number(c, name, what, ratio[0], ratio[1], ratio[0] / ratio[1]);
    }
}

int bench_compare(const json_t *now, const char *path, double tolerance, FILE *out, rf_error *err)
{
    json_t *all = rf_bench_file_load_runs(path, err), *before, *after;
    const json_t *old = all ? same_run(all, now) : NULL;
    comparison c = {out, tolerance, 0, 0};
    size_t i, k;

    if (!all)
        return -1;
    fprintf(out, "\nchange since %s (higher percentages and lower costs are better)\n", path);
    json_array_foreach(json_object_get(now, "figures"), i, after)
        json_array_foreach(json_object_get(old, "figures"), k, before)
            if (same_figure(before, after))
                compare_figure(&c, before, after);
    json_decref(all);
    if (!c.n)
        return rf_fail(err, RF_ERR_FILE, "%s has no figure of this run: other files, ranks, threads, lengths or depths",
                       path);
    if (tolerance >= 0)
        fprintf(out, "%zu of %zu are worse by more than %g %%\n", c.n_worse, c.n, tolerance);
    return c.n_worse ? 1 : 0;
}
