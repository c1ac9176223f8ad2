/* Small parts of a rank: cores, statistics, commands on the wire, host memory. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../rank/command.h"
#include "../rank/memory.h"
#include "../rank/signals.h"
#include "../rank/stats.h"
#include "../rank/topology.h"
#include "check.h"

static void cores_are_shared_evenly(void **state)
{
    (void)state;
    for (int cores = 1; cores <= 70; cores++)
        for (int ranks = 1; ranks <= 80; ranks++) {
            int next = 0, least = cores, most = 0;

            for (int r = 0; r < ranks; r++) {
                int first, count;

                rf_topology_share(cores, r, ranks, &first, &count);
                assert_true(count >= 1 && first >= 0 && first + count <= cores);
                least = count < least ? count : least;
                most = count > most ? count : most;
                if (ranks <= cores) {
                    assert_int_equal(first, next);
                    next += count;
                } else {
                    assert_int_equal(first, r % cores);
                }
            }
            if (ranks <= cores)
                assert_int_equal(next, cores);
            assert_true(most - least <= 1);
        }
}

static void core_lists(void **state)
{
    char text[64], small[8];

    (void)state;
    rf_topology_list((int[]){0, 1, 2, 3, 8}, 5, text, sizeof text);
    assert_string_equal(text, "0-3,8");
    rf_topology_list((int[]){5}, 1, text, sizeof text);
    assert_string_equal(text, "5");
    rf_topology_list((int[]){1, 3, 5, 7, 9, 11}, 6, small, sizeof small); /* cut, not overrun */
    assert_true(strlen(small) < sizeof small);
    rf_topology_list(NULL, 0, text, sizeof text);
    assert_string_equal(text, "");
}

static void this_machine_can_be_used(void **state)
{
    rf_topology t;
    rf_error err;

    (void)state;
    assert_int_equal(rf_topology_apply(1, true, 0, 1, &t, &err), 0);
    assert_int_equal(t.n_threads, 1);
    assert_true(t.n_cores >= 1 && t.busy && strlen(t.cores) > 0);
}

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

static void the_first_signal_is_kept(void **state)
{
    (void)state;
    rf_signals_install();
    assert_int_equal(rf_signal_seen(), 0);
    raise(SIGTERM);
    raise(SIGUSR1);
    assert_int_equal(rf_signal_seen(), SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_shared_evenly), cmocka_unit_test(core_lists),
        cmocka_unit_test(this_machine_can_be_used), cmocka_unit_test(rounds_add_up),
        cmocka_unit_test(commands_on_the_wire),    cmocka_unit_test(memory_is_read),
        cmocka_unit_test(the_first_signal_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
