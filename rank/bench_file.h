/* Reports of rankflash-bench (--json), read back. */
#ifndef RF_BENCH_FILE_H
#define RF_BENCH_FILE_H

#include <jansson.h>

#include "../src/error.h"

/* NULL and *err (RF_ERR_FILE): no such file, or no report. The caller ends with json_decref. */
json_t *rf_bench_file_load(const char *path, rf_error *err);
/* The same of a report or an array of reports (docs/performance.json): always an array, not empty. */
json_t *rf_bench_file_load_runs(const char *path, rf_error *err);

#endif
