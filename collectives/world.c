/* The launcher's ranks: start, end, agreement, and control traffic. */
#include "config.h"

#include "world.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm.h"
#include "log.h"

#define HOST_BYTES 64

static int world_rank, world_size = 1, node_rank, node_size = 1;
static bool has_mpi;
static char host[HOST_BYTES] = "localhost";

bool rf_world_has_mpi(void)
{
    return has_mpi;
}

int rf_world_rank(void)
{
    return world_rank;
}

int rf_world_size(void)
{
    return world_size;
}

int rf_world_node_rank(void)
{
    return node_rank;
}

int rf_world_node_size(void)
{
    return node_size;
}

const char *rf_world_host(void)
{
    return host;
}

static void find_host(void)
{
    if (gethostname(host, sizeof host) != 0)
        snprintf(host, sizeof host, "localhost");
    host[sizeof host - 1] = 0;
}

#ifdef RF_HAVE_MPI
#include "mpi_call.h"

#define IDLE_FIRST_NS 20000L
#define IDLE_LONGEST_NS 20000000L

static MPI_Comm data_comm = MPI_COMM_NULL, control_comm = MPI_COMM_NULL;

MPI_Comm rf_mpi_data(void)
{
    return data_comm;
}

MPI_Comm rf_mpi_control(void)
{
    return control_comm;
}

void rf_mpi_check(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING + 128], why[MPI_MAX_ERROR_STRING];
    int length = 0;

    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, why, &length);
    snprintf(text, sizeof text, "%s failed: %.*s", call, length, why);
    rf_world_abort(RF_ERR_DEVICE, text);
}

/* Without a launcher there is nobody to talk to, and MPI's start would only cost time. */
static bool launched(void)
{
    static const char *const marks[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"};

    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (getenv(marks[i]))
            return true;
    return false;
}

int rf_world_init(int *argc, char ***argv, rf_error *err)
{
    MPI_Comm node;
    int provided;

    find_host();
    if (!launched())
        return 0;
    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return rf_fail(err, RF_ERR_DEVICE, "MPI could not be started on %s", host);
    has_mpi = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    rf_mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank");
    rf_mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &world_size), "MPI_Comm_size");
    if (provided < MPI_THREAD_FUNNELED)
        return rf_fail(err, RF_ERR_DEVICE, "this MPI library does not allow threads beside the one that calls it (MPI_THREAD_FUNNELED)");
    rf_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &data_comm), "MPI_Comm_dup");
    rf_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &control_comm), "MPI_Comm_dup");
    rf_mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
    MPI_Comm_rank(node, &node_rank);
    MPI_Comm_size(node, &node_size);
    MPI_Comm_free(&node);
    return 0;
}

void rf_world_finalize(void)
{
    if (!has_mpi)
        return;
    MPI_Comm_free(&data_comm);
    MPI_Comm_free(&control_comm);
    MPI_Finalize();
    has_mpi = false;
}

const char *rf_world_mpi_version(void)
{
    static char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;

    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS)
        return "MPI";
    version[strcspn(version, ",\n")] = 0;
    return version;
}

void rf_world_abort(rf_code code, const char *text)
{
    if (world_size > 1)
        rf_log_error("rank %d on %s: %s", world_rank, host, text);
    else
        rf_log_error("%s", text);
    if (has_mpi)
        MPI_Abort(MPI_COMM_WORLD, (int)code);
    _exit((int)code);
}

void rf_comm_bcast(rf_comm *c, int root, void *data, size_t bytes)
{
    (void)c;
    for (size_t done = 0; has_mpi && done < bytes;) {
        size_t n = bytes - done < (size_t)1 << 30 ? bytes - done : (size_t)1 << 30;

        rf_mpi_check(MPI_Bcast((char *)data + done, (int)n, MPI_BYTE, root, control_comm), "MPI_Bcast");
        done += n;
    }
}

void rf_comm_gather(rf_comm *c, int root, const void *src, size_t bytes, void *dst)
{
    (void)c;
    if (!has_mpi) {
        if (dst != src)
            memcpy(dst, src, bytes);
        return;
    }
    if (bytes > INT_MAX)
        rf_world_abort(RF_ERR_MEMORY, "a gather of 2 GiB and more was asked for");
    rf_mpi_check(MPI_Gather(src, (int)bytes, MPI_BYTE, dst, (int)bytes, MPI_BYTE, root, control_comm), "MPI_Gather");
}

void rf_comm_barrier(rf_comm *c)
{
    (void)c;
    if (has_mpi)
        rf_mpi_check(MPI_Barrier(control_comm), "MPI_Barrier");
}

void rf_comm_bcast_idle(rf_comm *c, void *data, size_t bytes)
{
    struct timespec pause = {0, IDLE_FIRST_NS};
    MPI_Request request;
    int done = 0;

    (void)c;
    if (!has_mpi)
        return;
    rf_mpi_check(MPI_Ibcast(data, (int)bytes, MPI_BYTE, 0, control_comm, &request), "MPI_Ibcast");
    if (world_rank == 0) {
        rf_mpi_check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
        return;
    }
    for (;;) {
        rf_mpi_check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done)
            return;
        nanosleep(&pause, NULL);
        pause.tv_nsec = pause.tv_nsec * 2 < IDLE_LONGEST_NS ? pause.tv_nsec * 2 : IDLE_LONGEST_NS;
    }
}

static void allgather_control(const void *mine, size_t bytes, void *all)
{
    if (has_mpi)
        rf_mpi_check(MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, control_comm), "MPI_Allgather");
    else
        memcpy(all, mine, bytes);
}
#else
int rf_world_init(int *argc, char ***argv, rf_error *err)
{
    (void)argc;
    (void)argv;
    (void)err;
    find_host();
    return 0;
}

void rf_world_finalize(void)
{
    has_mpi = false;
}

const char *rf_world_mpi_version(void)
{
    return "none";
}

void rf_world_abort(rf_code code, const char *text)
{
    rf_log_error("%s", text);
    _exit((int)code);
}

void rf_comm_bcast(rf_comm *c, int root, void *data, size_t bytes)
{
    (void)c;
    (void)root;
    (void)data;
    (void)bytes;
}

void rf_comm_gather(rf_comm *c, int root, const void *src, size_t bytes, void *dst)
{
    (void)c;
    (void)root;
    if (dst != src)
        memcpy(dst, src, bytes);
}

void rf_comm_barrier(rf_comm *c)
{
    (void)c;
}

void rf_comm_bcast_idle(rf_comm *c, void *data, size_t bytes)
{
    rf_comm_bcast(c, 0, data, bytes);
}

static void allgather_control(const void *mine, size_t bytes, void *all)
{
    memcpy(all, mine, bytes);
}
#endif

/* ---- agreement */

typedef struct {
    rf_error error;
    char host[HOST_BYTES];
} report;

int rf_world_agree(const rf_error *mine, rf_error *all)
{
    report own = {*mine, ""}, *reports = calloc((size_t)world_size, sizeof *reports);
    int failed = 0;

    if (!reports)
        rf_world_abort(RF_ERR_MEMORY, "no memory to agree with the other ranks");
    snprintf(own.host, sizeof own.host, "%s", host);
    allgather_control(&own, sizeof own, reports);
    for (int r = 0; r < world_size && !failed; r++) {
        if (reports[r].error.code == RF_OK)
            continue;
        if (world_size > 1)
            failed = rf_fail(all, reports[r].error.code, "rank %d on %s: %s", r, reports[r].host, reports[r].error.text);
        else
            failed = rf_fail(all, reports[r].error.code, "%s", reports[r].error.text);
    }
    free(reports);
    return failed;
}

void rf_world_least(size_t *value)
{
    size_t *all = calloc((size_t)world_size, sizeof *all);

    if (!all)
        rf_world_abort(RF_ERR_MEMORY, "no memory to agree with the other ranks");
    allgather_control(value, sizeof *value, all);
    for (int r = 0; r < world_size; r++)
        *value = all[r] < *value ? all[r] : *value;
    free(all);
}

#define PART_BYTES 192

typedef struct {
    char host[HOST_BYTES], text[PART_BYTES];
} part_report;

/* The odd one out of one part: the first rank that differs from most (from rank 0 when there is no majority). */
static int odd_rank(const part_report *all)
{
    int most = 0, common = 0;

    for (int r = 0; r < world_size; r++) {
        int same = 0;

        for (int q = 0; q < world_size; q++)
            same += strcmp(all[r].text, all[q].text) == 0;
        if (same > most) {
            most = same;
            common = r;
        }
    }
    for (int r = 0; r < world_size; r++)
        if (strcmp(all[r].text, all[common].text) != 0)
            return r;
    return -1;
}

bool rf_world_same_on_host(const char *text)
{
    part_report own = {"", ""}, *all = calloc((size_t)world_size, sizeof *all);
    bool same = true;

    if (!all)
        rf_world_abort(RF_ERR_MEMORY, "no memory to compare with the other ranks");
    snprintf(own.host, sizeof own.host, "%s", host);
    snprintf(own.text, sizeof own.text, "%s", text);
    allgather_control(&own, sizeof own, all);
    for (int r = 0; r < world_size; r++)
        same = same && (strcmp(all[r].host, own.host) != 0 || strcmp(all[r].text, own.text) == 0);
    free(all);
    return same;
}

int rf_world_same(const char *const *parts, size_t n, rf_error *err)
{
    part_report *all = calloc((size_t)world_size, sizeof *all);
    int failed = 0;

    if (!all)
        rf_world_abort(RF_ERR_MEMORY, "no memory to compare files with the other ranks");
    for (size_t i = 0; i < n && !failed; i++) {
        part_report own = {"", ""};
        int odd;

        snprintf(own.host, sizeof own.host, "%s", host);
        snprintf(own.text, sizeof own.text, "%s", parts[i]);
        allgather_control(&own, sizeof own, all);
        odd = odd_rank(all);
        if (odd >= 0)
            failed = rf_fail(err, RF_ERR_FILE, "rank %d on %s has another %s than rank %d on %s has (%s)", odd, all[odd].host, all[odd].text,
                             odd ? 0 : 1, all[odd ? 0 : 1].host, all[odd ? 0 : 1].text);
    }
    free(all);
    return failed;
}
