/* Small parts of a rank: statistics, commands on the wire, host memory. */
#include "config.h"

#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../rank/command.h"
#include "../rank/memory.h"
#include "../rank/stats.h"
#include "check.h"

static void rounds_add_up(void **state)
{
    rf_stats s = {0}, total = {0};

    (void)state;
    rf_stats_round(&s, 7, 3);
    rf_stats_round(&s, 7, 7);
    rf_stats_round(&s, 0, 0);
    rf_stats_round(&s, 2, 0);
    rf_stats_prefill(&s, 18, 0.5);
    rf_stats_decode(&s, 14, 2);
    rf_stats_add(&total, &s);
    rf_stats_add(&total, &s);
    assert_int_equal(s.rounds, 4);
    assert_int_equal(s.drafted, 16);
    assert_int_equal(s.accepted, 10);
    assert_int_equal(s.drafted_at[0], 3);
    assert_int_equal(s.drafted_at[2], 2);
    assert_int_equal(s.accepted_at[0], 2);
    assert_int_equal(s.accepted_at[6], 1);
    assert_int_equal(total.accepted, 20);
    assert_int_equal(total.prompt_tokens, 36);
    assert_true(total.decode_seconds == 4);
}

/* What a call wrote on stderr. */
static void said(char *text, size_t size, void (*speak)(const rf_stats *s), const rf_stats *s)
{
    FILE *file = tmpfile();
    int old = dup(STDERR_FILENO);
    size_t n;

    assert_non_null(file);
    assert_true(old >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    speak(s);
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    close(old);
    rewind(file);
    n = fread(text, 1, size - 1, file);
    text[n] = 0;
    fclose(file);
}

static void speak_json(const rf_stats *s)
{
    rf_stats_print_json(s, "draft-dflash", "end of generation");
}

static rf_stats some_stats(void)
{
    rf_stats s = {0};

    rf_stats_round(&s, 3, 3);
    rf_stats_round(&s, 3, 1);
    rf_stats_round(&s, 2, 0);
    rf_stats_round(&s, 0, 0);
    rf_stats_prefill(&s, 18, 0.5);
    rf_stats_decode(&s, 8, 2);
    return s;
}

static void statistics_are_said(void **state)
{
    rf_stats s = some_stats(), plain = {0};
    char text[1024];

    (void)state;
    said(text, sizeof text, rf_stats_print, &s);
    assert_string_equal(text, "prefill: 18 tokens, 36.0 tokens/s; decode: 8 tokens, 4.0 tokens/s\n"
                              "drafted 8, accepted 4 in 4 rounds: 50.0 % of drafts, 2.00 tokens per round\n"
                              "acceptance by draft position: 0.667 0.333 0.500\n");
    rf_stats_prefill(&plain, 5, 0); /* no drafts, and a clock that did not move */
    said(text, sizeof text, rf_stats_print, &plain);
    assert_string_equal(text, "prefill: 5 tokens, 0.0 tokens/s; decode: 0 tokens, 0.0 tokens/s\n");
}

static double real_in(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void statistics_are_one_json_object(void **state)
{
    rf_stats s = some_stats();
    char text[2048];
    json_t *object, *positions;

    (void)state;
    said(text, sizeof text, speak_json, &s);
    assert_int_equal(strcspn(text, "\n"), strlen(text) - 1); /* one line */
    object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_object(object));
    assert_string_equal(json_string_value(json_object_get(object, "drafter")), "draft-dflash");
    assert_string_equal(json_string_value(json_object_get(object, "stop")), "end of generation");
    assert_true(real_in(object, "prompt_tokens") == 18 && real_in(object, "prefill_tokens_per_second") == 36);
    assert_true(real_in(object, "decoded_tokens") == 8 && real_in(object, "decode_tokens_per_second") == 4);
    assert_true(real_in(object, "rounds") == 4 && real_in(object, "drafted") == 8 && real_in(object, "accepted") == 4);
    assert_true(real_in(object, "accepted_per_drafted") == 0.5 && real_in(object, "tokens_per_round") == 2);
    positions = json_object_get(object, "acceptance_by_position");
    assert_int_equal(json_array_size(positions), 3);
    assert_true(json_number_value(json_array_get(positions, 2)) == 0.5);
    json_decref(object);
}

/* A command survives the wire, also one that needs the second broadcast. */
static void commands_on_the_wire(void **state)
{
    rf_comm *world = rf_comm_create_self(NULL);
    rf_command sent, got;
    rf_error err;

    (void)state;
    assert_non_null(world);
    for (size_t n = 1; n <= 2000; n += 333) {
        int32_t *tokens = malloc(n * sizeof *tokens);
        rf_command_seq *q;

        for (size_t i = 0; i < n; i++)
            tokens[i] = (int32_t)(i * 7);
        assert_int_equal(rf_command_create(&sent, 4, 4000, &err), 0);
        assert_int_equal(rf_command_create(&got, 4, 4000, &err), 0);
        rf_command_begin(&sent, RF_CMD_VERIFY);
        rf_command_add(&sent, 3, 100, tokens, n);
        q = rf_command_add(&sent, 1, INT64_C(5000000000), tokens, 1);
        q->seed = UINT64_MAX;
        q->temperature = 0.7;
        rf_command_exchange(&sent, world, true, false);
        memcpy(got.bytes, sent.bytes, sizeof(rf_command_head) + 4 * sizeof(rf_command_seq) + 4000 * sizeof(int32_t));
        rf_command_exchange(&got, world, false, false);
        assert_memory_equal(&got.head, &sent.head, sizeof got.head);
        assert_memory_equal(got.seqs, sent.seqs, 2 * sizeof *got.seqs);
        assert_memory_equal(got.tokens, sent.tokens, (n + 1) * sizeof *tokens);
        assert_true(got.seqs[1].first_pos == INT64_C(5000000000));
        rf_command_destroy(&sent);
        rf_command_destroy(&got);
        free(tokens);
    }
    rf_comm_destroy(world);
}

static void memory_is_read(void **state)
{
    (void)state;
    assert_true(rf_memory_available() > ((size_t)1 << 20));
    assert_true(rf_memory_used() > 1000 && rf_memory_used() < ((size_t)1 << 40));
}

static void memory_is_shared(void **state)
{
    (void)state;
    assert_int_equal(rf_memory_share(4000, 1), 3800);
    assert_int_equal(rf_memory_share(4000, 2), 1900);
    assert_int_equal(rf_memory_share(1, 3), 1); /* none left is not "unknown" */
    assert_int_equal(rf_memory_share(0, 3), 0);
}

/* ---- memory of a made-up host */

#define MIB ((size_t)1 << 20)

static char root[64];

static void put_file(const char *path, const char *text)
{
    char full[256];
    FILE *file;

    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        mkdir(full, 0700);
        *at = '/';
    }
    file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/rankflash-memory-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void memory_of_an_unlimited_host(void **state)
{
    (void)state;
    assert_int_equal(rf_memory_available_at(root), 0); /* nothing can be read: unknown */
    put_file("/proc/meminfo", "MemTotal:       2048000 kB\nMemFree:  5 kB\nMemAvailable:    1024000 kB\n");
    assert_int_equal(rf_memory_available_at(root), 1000 * MIB);
    put_file("/proc/self/cgroup", "0::/\n");
    put_file("/sys/fs/cgroup/memory.max", "max\n");
    assert_int_equal(rf_memory_available_at(root), 1000 * MIB);
}

/* Version 2: the tightest group from this process's up; cached files do not count, and a reached limit is not
 * "unknown". */
static void memory_of_a_group(void **state)
{
    (void)state;
    put_file("/proc/meminfo", "MemAvailable:    1024000 kB\n");
    put_file("/proc/self/cgroup", "0::/slurm/job_7/step_0\n");
    put_file("/sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
    put_file("/sys/fs/cgroup/slurm/job_7/memory.max", "209715200\n");
    put_file("/sys/fs/cgroup/slurm/job_7/memory.current", "157286400\n");
    put_file("/sys/fs/cgroup/slurm/memory.max", "max\n");
    assert_int_equal(rf_memory_available_at(root), 50 * MIB);
    put_file("/sys/fs/cgroup/slurm/job_7/memory.stat", "anon 5\ninactive_file 73400320\nactive_file 31457280\n");
    assert_int_equal(rf_memory_available_at(root), 150 * MIB);
    put_file("/sys/fs/cgroup/slurm/memory.max", "104857600\n");
    assert_int_equal(rf_memory_available_at(root), 100 * MIB);
    put_file("/sys/fs/cgroup/slurm/memory.current", "104857600\n");
    assert_int_equal(rf_memory_available_at(root), 1);
    put_file("/sys/fs/cgroup/slurm/memory.max", "99999999999999\n"); /* more than the host has */
    put_file("/sys/fs/cgroup/slurm/job_7/memory.max", "max\n");
    assert_int_equal(rf_memory_available_at(root), 1000 * MIB);
}

/* Version 1, beside controllers that say nothing of memory; a container sees its group as the mount itself. */
static void memory_of_an_older_group(void **state)
{
    (void)state;
    put_file("/proc/meminfo", "MemAvailable:    1024000 kB\n");
    put_file("/proc/self/cgroup", "9:name=systemd:/\n5:cpu,memoryless:/x\n4:cpuset,memory:/docker/abc\n0::/\n");
    put_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "314572800\n");
    put_file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "209715200\n");
    put_file("/sys/fs/cgroup/memory/memory.stat",
             "inactive_file 1\ntotal_inactive_file 52428800\ntotal_active_file 52428800\n");
    put_file("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1\n");
    assert_int_equal(rf_memory_available_at(root), 200 * MIB);
    put_file("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "104857600\n");
    assert_int_equal(rf_memory_available_at(root), 100 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_add_up),
        cmocka_unit_test(statistics_are_said),
        cmocka_unit_test(statistics_are_one_json_object),
        cmocka_unit_test(commands_on_the_wire),
        cmocka_unit_test(memory_is_read),
        cmocka_unit_test(memory_is_shared),
        cmocka_unit_test_setup_teardown(memory_of_an_unlimited_host, make_root, remove_root),
        cmocka_unit_test_setup_teardown(memory_of_a_group, make_root, remove_root),
        cmocka_unit_test_setup_teardown(memory_of_an_older_group, make_root, remove_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
