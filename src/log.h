/* Messages for people, on stderr. Each call is one write of one whole line, so that lines of several ranks never mix.
 */
#ifndef RF_LOG_H
#define RF_LOG_H

#include <stdbool.h>

/* Only the leader speaks: after rf_log_set_speaker(false) info, notice, warn and verbose lines are dropped; errors never
 * are. */
void rf_log_set_speaker(bool speaks);
void rf_log_set_verbose(bool verbose);
/* The program's name before an error [rankflash]; kept, not copied. */
void rf_log_set_program(const char *name);

void rf_log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));    /* "text" */
void rf_log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));    /* "warning: text" */
void rf_log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));   /* "PROGRAM: text" */
void rf_log_verbose(const char *format, ...) __attribute__((format(printf, 1, 2))); /* with --verbose only */

#endif
