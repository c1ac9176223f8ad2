/* Inside of collectives/: whether MPI runs at all. */
#ifndef RF_WORLD_H
#define RF_WORLD_H

#include <stdbool.h>

bool rf_world_has_mpi(void); /* more than one rank, or one started by a launcher */

#endif
