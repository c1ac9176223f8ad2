/* Checked MPI calls: a failing one prints one line (rank, host, cause) and ends all ranks. Only collectives/ includes
 * mpi.h. */
#ifndef RF_MPI_CALL_H
#define RF_MPI_CALL_H

#include <mpi.h>

/* Ends the job unless code is MPI_SUCCESS. */
void rf_mpi_check(int code, const char *call);
MPI_Comm rf_mpi_data(void);    /* activations */
MPI_Comm rf_mpi_control(void); /* commands, gathers, agreements */

#endif
