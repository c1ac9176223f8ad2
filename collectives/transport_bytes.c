#include "transport.h"

/* shm: two halves of its slab, and the MPI transport it uses for send and receive (its stage, and two exchanges of all
 * ranks). */
size_t rf_transport_plan_bytes(int n_ranks)
{
    return 3 * RF_STAGE_BYTES + 2 * (size_t)n_ranks * RF_STAGE_BYTES + 4096;
}
