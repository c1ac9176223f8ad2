/* What the cost model of --plan takes a machine to be: flags, a report of rankflash-bench, or numbers of no particular
 * machine. */
#ifndef RF_PLAN_MACHINE_H
#define RF_PLAN_MACHINE_H

#include "../src/options.h"
#include "plan_cost.h"

/* source: a sentence about where the numbers come from. 0, or -1 and *err (RF_ERR_FILE: no report, or a number in it
 * that cannot be). */
int rf_machine_choose(const rf_options *o, rf_machine *m, char *source, size_t size, rf_error *err);

#endif
