#include "launcher.h"

#include <string.h>

#include "check.h"

typedef struct {
    const char *name, *value;
} variable;

static const variable *environment; /* ends with a NULL name */

static char *get(const char *name)
{
    for (const variable *v = environment; v->name; v++)
        if (strcmp(v->name, name) == 0)
            return (char *)(uintptr_t)v->value;
    return NULL;
}

static void fine(const variable *variables, int world_size)
{
    rf_error err = {0};

    environment = variables;
    if (rf_launcher_check(get, world_size, &err) < 0)
        fail_msg("refused: %s", err.text);
}

static void refused(const variable *variables, const char *part)
{
    rf_error err = {0};

    environment = variables;
    assert_int_equal(rf_launcher_check(get, 1, &err), -1);
    assert_int_equal(err.code, RF_ERR_DEVICE);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not contain \"%s\"", err.text, part);
}

#define VARIABLES(...)                                                                                                 \
    (const variable[])                                                                                                 \
    {                                                                                                                  \
        __VA_ARGS__,                                                                                                   \
        {                                                                                                              \
            NULL, NULL                                                                                                 \
        }                                                                                                              \
    }

static void one_rank_that_is_meant(void **state)
{
    (void)state;
    fine(VARIABLES({"HOME", "/"}), 1);
    fine(VARIABLES({"SLURM_NTASKS", "1"}), 1);
    fine(VARIABLES({"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}), 1);
    fine(VARIABLES({"SLURM_NTASKS", "4"}, {"OMPI_COMM_WORLD_SIZE", "1"}), 1);
    fine(VARIABLES({"SLURM_NTASKS", "4"}, {"PMI_SIZE", "1"}), 1);
    fine(VARIABLES({"SLURM_NTASKS", "four"}), 1);
    fine(VARIABLES({"SLURM_NTASKS", ""}), 1);
    fine(VARIABLES({"SLURM_NTASKS", "99999999999999999999999"}), 1);
}

static void ranks_that_see_each_other(void **state)
{
    (void)state;
    fine(VARIABLES({"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}), 4);
    fine(VARIABLES({"OMPI_COMM_WORLD_SIZE", "2"}), 2);
}

static void tasks_that_do_not(void **state)
{
    (void)state;
    refused(VARIABLES({"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}), "add --mpi=pmix to srun");
    refused(VARIABLES({"SLURM_NTASKS", "4"}), "srun --mpi=pmix -n 4");
    refused(VARIABLES({"PMI_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}), "srun --mpi=pmix");
    refused(VARIABLES({"OMPI_COMM_WORLD_SIZE", "3"}), "mpirun started 3 tasks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_that_is_meant),
        cmocka_unit_test(ranks_that_see_each_other),
        cmocka_unit_test(tasks_that_do_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
