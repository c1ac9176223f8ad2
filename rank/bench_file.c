#include "bench_file.h"

#include <stdbool.h>
#include <string.h>

static json_t *load(const char *path, rf_error *err)
{
    json_error_t why;
    json_t *file = json_load_file(path, 0, &why);

    if (!file)
        rf_fail(err, RF_ERR_FILE, "%s: %s; expected what rankflash-bench --json printed", path, why.text);
    return file;
}

static bool is_report(const json_t *o)
{
    const char *program = json_string_value(json_object_get(o, "program"));

    return program && strcmp(program, "rankflash-bench") == 0 &&
           json_integer_value(json_object_get(o, "schema")) == 1 && json_is_array(json_object_get(o, "figures"));
}

static json_t *refuse(json_t *file, const char *path, rf_error *err)
{
    json_decref(file);
    rf_fail(err, RF_ERR_FILE, "%s: expected what rankflash-bench --json printed (schema 1)", path);
    return NULL;
}

json_t *rf_bench_file_load(const char *path, rf_error *err)
{
    json_t *report = load(path, err);

    if (!report || is_report(report))
        return report;
    return refuse(report, path, err);
}

json_t *rf_bench_file_load_runs(const char *path, rf_error *err)
{
    json_t *file = load(path, err), *runs, *one;
    size_t i;

    if (!file)
        return NULL;
    runs = json_is_array(file) ? json_incref(file) : json_pack("[O]", file);
    json_decref(file);
    if (!json_array_size(runs))
        return refuse(runs, path, err);
    json_array_foreach(runs, i, one)
        if (!is_report(one))
            return refuse(runs, path, err);
    return runs;
}
