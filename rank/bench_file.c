#include "bench_file.h"

#include <string.h>

json_t *rf_bench_file_load(const char *path, rf_error *err)
{
    json_error_t why;
    json_t *report = json_load_file(path, 0, &why);
    const char *program = json_string_value(json_object_get(report, "program"));

    if (!report) {
        rf_fail(err, RF_ERR_FILE, "%s: %s; expected what rankflash-bench --json printed", path, why.text);
        return NULL;
    }
    if (program && strcmp(program, "rankflash-bench") == 0 &&
        json_integer_value(json_object_get(report, "schema")) == 1 && json_is_array(json_object_get(report, "figures")))
        return report;
    json_decref(report);
    rf_fail(err, RF_ERR_FILE, "%s: expected what rankflash-bench --json printed (schema 1)", path);
    return NULL;
}
