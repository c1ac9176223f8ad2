/* Signals become a status word that travels with the next exchange, so that all ranks stop at the same round. */
#ifndef RF_SIGNALS_H
#define RF_SIGNALS_H

/* SIGINT, SIGTERM, SIGHUP and SIGUSR1 set a flag; a second SIGINT ends the process at once. A SIGHUP that is ignored
 * (nohup) stays ignored. SIGPIPE and SIGXFSZ are ignored (a closed stdout and a file at its limit are seen as failed
 * writes). */
void rf_signals_install(void);
/* The first signal seen, or 0. */
int rf_signal_seen(void);

#endif
