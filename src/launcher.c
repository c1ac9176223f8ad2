#include "launcher.h"

#include <errno.h>
#include <stdlib.h>

/* A whole decimal number in the environment, or -1. */
static long number(char *(*get)(const char *name), const char *name)
{
    const char *text = get(name);
    char *end;
    long value;

    if (!text || *text < '0' || *text > '9')
        return -1;
    errno = 0;
    value = strtol(text, &end, 10);
    return errno || *end ? -1 : value;
}

int rf_launcher_check(char *(*get)(const char *name), int world_size, rf_error *err)
{
    long open_mpi = number(get, "OMPI_COMM_WORLD_SIZE"), pmi = number(get, "PMI_SIZE");
    long step = number(get, "SLURM_STEP_NUM_TASKS"), job = number(get, "SLURM_NTASKS");

    if (world_size > 1)
        return 0;
    if (open_mpi > 1)
        return rf_fail(err, RF_ERR_DEVICE,
                       "mpirun started %ld tasks, but each is alone: this program was built without MPI or with "
                       "another one (rankflash --version says which; configure --with-mpi)",
                       open_mpi);
    if (pmi > 1)
        return rf_fail(err, RF_ERR_DEVICE,
                       "a PMI launcher started %ld tasks, but each is alone: use Open MPI's mpirun -np %ld, or "
                       "srun --mpi=pmix",
                       pmi, pmi);
    if (open_mpi == 1 || pmi == 1) /* one rank, and meant */
        return 0;
    if (step > 1)
        return rf_fail(err, RF_ERR_DEVICE, "srun started %ld tasks, but each is alone: add --mpi=pmix to srun", step);
    if (step < 0 && job > 1)
        return rf_fail(err, RF_ERR_DEVICE,
                       "this Slurm job has %ld tasks, but the program was started as one: start it with "
                       "srun --mpi=pmix -n %ld, or with mpirun -np %ld",
                       job, job, job);
    return 0;
}
