/* What the launcher's environment says about how many ranks there should be. */
#ifndef RF_LAUNCHER_H
#define RF_LAUNCHER_H

#include "error.h"

/* A launcher that started several tasks which do not see each other: world_size is 1 although the environment speaks of
 * several. Returns -1 with one sentence that names the missing launcher option (RF_ERR_DEVICE), else 0. get is getenv,
 * or a test's. Not for --plan, which needs no launcher. */
int rf_launcher_check(char *(*get)(const char *name), int world_size, rf_error *err);

#endif
