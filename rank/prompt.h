/* What the leader does with a prompt: one turn (-p, -f), or a conversation from standard input. */
#ifndef RF_PROMPT_H
#define RF_PROMPT_H

#include "job.h"

/* Both return the exit code's error in *err (-1), or 0 with *signal_seen set to the signal that ended it (0: none). Statistics go to stderr. */
int rf_prompt_once(rf_job *job, int *signal_seen, rf_error *err);
int rf_prompt_converse(rf_job *job, int *signal_seen, rf_error *err);

#endif
