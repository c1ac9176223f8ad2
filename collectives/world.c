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
#define PART_BYTES 192

static int world_rank, world_size = 1, node_rank, node_size = 1;
static bool has_mpi;
static char host[HOST_BYTES] = "localhost";

/* What a rank tells all others. Room for one of each rank is had at the start, so that agreeing on a lack of memory
 * needs none. */
typedef struct {
    char host[HOST_BYTES];
    union {
        rf_error error;
        size_t value;
        struct {
            char shown[PART_BYTES]; /* the beginning */
            uint64_t hash;          /* of all of it */
        } text;
    };
} report;

static report alone, *reports = &alone;

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

#ifdef __SANITIZE_ADDRESS__
#include <dlfcn.h>

/* MPI's modules stay loaded, so that the leak report at the end can tell by their names what they kept
 * (tests/lsan.supp) from what we lost. */
int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
#endif

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
        return rf_fail(err, RF_ERR_DEVICE,
                       "this MPI library does not allow threads beside the one that calls it (MPI_THREAD_FUNNELED)");
    rf_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &data_comm), "MPI_Comm_dup");
    rf_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &control_comm), "MPI_Comm_dup");
    rf_mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_rank, MPI_INFO_NULL, &node),
                 "MPI_Comm_split_type");
    rf_mpi_check(MPI_Comm_rank(node, &node_rank), "MPI_Comm_rank");
    rf_mpi_check(MPI_Comm_size(node, &node_size), "MPI_Comm_size");
    rf_mpi_check(MPI_Comm_free(&node), "MPI_Comm_free");
    reports = calloc((size_t)world_size, sizeof *reports);
    if (!reports)
        rf_world_abort(RF_ERR_MEMORY, "no memory to agree with the other ranks");
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
    free(reports);
    reports = &alone;
}

const char *rf_world_mpi_version(void)
{
    static char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;

    if (version[0])
        return version;
    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS)
        return "MPI";
    version[strcspn(version, ",\n")] = 0;
    if (strncmp(version, "Open MPI v", 10) == 0)
        memmove(version + 9, version + 10, strlen(version + 10) + 1);
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
    for (size_t done = 0; rf_comm_size(c) > 1 && done < bytes;) {
        size_t n = bytes - done < (size_t)1 << 30 ? bytes - done : (size_t)1 << 30;

        rf_mpi_check(MPI_Bcast((char *)data + done, (int)n, MPI_BYTE, root, control_comm), "MPI_Bcast");
        done += n;
    }
}

void rf_comm_gather(rf_comm *c, int root, const void *src, size_t bytes, void *dst)
{
    if (rf_comm_size(c) == 1) {
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
    if (rf_comm_size(c) > 1)
        rf_mpi_check(MPI_Barrier(control_comm), "MPI_Barrier");
}

void rf_comm_bcast_idle(rf_comm *c, void *data, size_t bytes)
{
    struct timespec pause = {0, IDLE_FIRST_NS};
    MPI_Request request;
    int done = 0;

    if (rf_comm_size(c) == 1)
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
        rf_mpi_check(MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, control_comm),
                     "MPI_Allgather");
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

static void exchange(report *own)
{
    snprintf(own->host, sizeof own->host, "%s", host);
    allgather_control(own, sizeof *own, reports);
}

int rf_world_agree(const rf_error *mine, rf_error *all)
{
    report own = {.error = *mine};

    exchange(&own);
    for (int r = 0; r < world_size; r++) {
        const rf_error *e = &reports[r].error;

        if (e->code != RF_OK && world_size > 1)
            return rf_fail(all, e->code, "rank %d on %s: %s", r, reports[r].host, e->text);
        if (e->code != RF_OK)
            return rf_fail(all, e->code, "%s", e->text);
    }
    return 0;
}

void rf_world_least(size_t *value)
{
    report own = {.value = *value};

    exchange(&own);
    for (int r = 0; r < world_size; r++)
        *value = reports[r].value < *value ? reports[r].value : *value;
}

/* FNV-1a */
static uint64_t hash_text(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

static void exchange_text(const char *text)
{
    report own = {.text.hash = hash_text(text)};

    snprintf(own.text.shown, sizeof own.text.shown, "%s", text);
    exchange(&own);
}

static bool same_text(int a, int b)
{
    return reports[a].text.hash == reports[b].text.hash && strcmp(reports[a].text.shown, reports[b].text.shown) == 0;
}

/* The odd one out: the first rank that differs from what most have (from the lowest of the most frequent, without a
 * majority), and one of those most. -1: all are alike. */
static int odd_rank(int *common)
{
    int most = 0;

    for (int r = 0; r < world_size; r++) {
        int same = 0;

        for (int q = 0; q < world_size; q++)
            same += same_text(r, q);
        if (same > most) {
            most = same;
            *common = r;
        }
    }
    for (int r = 0; r < world_size; r++)
        if (!same_text(r, *common))
            return r;
    return -1;
}

void rf_world_alike_on_host(const char *text, int *rank, int *count)
{
    exchange_text(text);
    *rank = *count = 0;
    for (int r = 0; r < world_size; r++) {
        if (strcmp(reports[r].host, host) != 0 || !same_text(r, world_rank))
            continue;
        *rank += r < world_rank;
        ++*count;
    }
}

int rf_world_same(const char *const *parts, size_t n, rf_error *err)
{
    for (size_t i = 0; i < n; i++) {
        int common = 0, odd;

        exchange_text(parts[i]);
        odd = odd_rank(&common);
        if (odd >= 0)
            return rf_fail(err, RF_ERR_FILE, "rank %d on %s has another %s than rank %d on %s has (%s)", odd,
                           reports[odd].host, reports[odd].text.shown, common, reports[common].host,
                           reports[common].text.shown);
    }
    return 0;
}
