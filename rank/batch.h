/* A batch job: requests from a file, several decoded together, results to a file (docs/batch.md). Leader only. */
#ifndef RF_BATCH_H
#define RF_BATCH_H

#include "batch_files.h"
#include "job.h"

/* Runs every request that has no result yet. -1: *err, and what was finished is in the output. Else 0 with *signal_seen
 * (0: none; what was not finished is left to the next run) and *failed: requests with an error, also of earlier runs. */
int rf_batch_run(rf_job *job, rf_batch_files *files, int *signal_seen, size_t *failed, rf_error *err);

#endif
