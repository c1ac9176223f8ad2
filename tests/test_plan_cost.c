/* The cost model: pieces and steps by hand, and properties over ranks, splits, depths and machines. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../rank/plan_cost.h"
#include "../rank/plan_machine.h"
#include "check.h"

#define VAST 1e30 /* so fast that it takes no time */

typedef struct {
    rf_gguf *target_file, *drafter_file;
    rf_qwen35_params target;
    rf_dflash_params drafter;
} pair;

static int open_pair(void **state)
{
    static pair p;
    rf_error err;

    p.target_file = rf_gguf_open(RF_SHARE "/factbook-tiny/factbook-tiny-Q8_0.gguf", &err);
    p.drafter_file = rf_gguf_open(RF_SHARE "/factbook-tiny/factbook-tiny-DFlash2-Q8_0.gguf", &err);
    if (!p.target_file || !p.drafter_file || rf_qwen35_params_read(p.target_file, true, &p.target, &err) != 0 ||
        rf_dflash_params_read(p.drafter_file, &p.target, &p.drafter, &err) != 0)
        return -1;
    *state = &p;
    return 0;
}

static int close_pair(void **state)
{
    pair *p = *state;

    rf_dflash_params_free(&p->drafter);
    rf_qwen35_params_free(&p->target);
    rf_gguf_close(p->target_file);
    rf_gguf_close(p->drafter_file);
    return 0;
}

static const rf_machine reader = {1e9, VAST, 1, 1, 0, VAST};     /* only reading takes time: 1 ns a byte */
static const rf_machine multiplier = {VAST, 1e9, 1, 1, 0, VAST}; /* only products: 1 ns each */
static const rf_machine talker = {VAST, VAST, 1, 1, 1e-6, 1e9};  /* only exchange: 1 us, and 1 ns a byte */
static const rf_machine plain = {30e9, 1000e9, 0.9, 0.8, 2e-6, 10e9};

typedef enum { ALONE, MTP, DFLASH } drafting;

typedef struct {
    rf_plan *plan;
    rf_cost_model *model;
} costs;

static costs open_costs(const pair *p, drafting d, rf_split split, int n_ranks)
{
    static const rf_model_sizes sizes = {1, 4096, 512, RF_TYPE_F16, RF_TYPE_F16};
    rf_plan_spec spec = {p->target_file, NULL, &p->target, NULL, d == MTP, split, n_ranks, NULL, 0};
    rf_error err;
    costs c;

    if (d == DFLASH) {
        spec.drafter_file = p->drafter_file;
        spec.drafter = &p->drafter;
    }
    c.plan = rf_plan_create(&spec, &err);
    assert_non_null(c.plan);
    c.model = rf_cost_model_create(c.plan, &sizes, &sizes, &err);
    assert_non_null(c.model);
    return c;
}

static void close_costs(costs *c)
{
    rf_cost_model_destroy(c->model);
    rf_plan_destroy(c->plan);
}

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-9 * fabs(wanted) + 1e-18))
        fail_msg("%.12g, expected %.12g", got, wanted);
}

/* Bytes or nanoseconds of a cost in a machine that does one thing. */
static double nano(rf_cost c)
{
    near(c.reading + c.multiplying + c.exchange, c.seconds);
    return c.seconds * 1e9;
}

/* ---- Pieces */

static void sums_by_hand(void **state)
{
    (void)state;
    near(rf_cost_sum(&talker, 1, 1, 1e6), 0);
    near(rf_cost_sum(&talker, 2, 1, 4096), 1e-6 + 4096e-9);     /* at once */
    near(rf_cost_sum(&talker, 4, 1, 4096), 1e-6 + 3 * 4096e-9);  /* to three others */
    near(rf_cost_sum(&talker, 3, 2, 4096), 1e-6 + 2 * 2 * 4096e-9); /* two nodes */
    near(rf_cost_sum(&talker, 2, 1, 32768), 1e-6 + 32768e-9);    /* the most that goes at once */
    near(rf_cost_sum(&talker, 4, 1, 1e6), 2e-6 + 0.75 * 2e6 * 1e-9); /* 3/4 scattered, 3/4 gathered */
    near(rf_cost_sum(&talker, 4, 2, 1e6), 2e-6 + 0.75 * 3e6 * 1e-9); /* two nodes scattered, one sum gathered */
}

static void other_exchanges_by_hand(void **state)
{
    (void)state;
    near(rf_cost_allgather(&talker, 1, 1e6), 0);
    near(rf_cost_allgather(&talker, 4, 1e6), 1e-6 + 0.75e6 * 1e-9);
    near(rf_cost_control(&talker, 1), 0);
    near(rf_cost_control(&talker, 2), 1e-6);
    near(rf_cost_control(&talker, 5), 3e-6);
    near(rf_cost_control(&talker, 8), 3e-6);
}

/* ---- Steps by hand. The demo: 8 layers, 2 of them attention with 2 KV heads of 64; DeltaNet with 4 key and 8 value
 * heads of 32; embedding 256, feed-forward 768, 4096 tokens, tied. */

enum {
    POSITION = 2 * 2 * 64 * (2 + 2), /* bytes of f16 keys and values */
    STATES = 6 * 8 * 32 * 32 * 4,
    DELTA = 256 * (2 * 4 * 32 + 8 * 32) + 256 * 256 + 2 * 256 * 8 + 256 * 256,
    ATTENTION = 256 * (2 * 256) + 2 * 256 * 128 + 256 * 256,
    FFN = 3 * 256 * 768,
    BODY = 6 * DELTA + 2 * ATTENTION + 8 * FFN,
    HEAD = 4096 * 256
};

static void decode_reads_what_is_held(void **state)
{
    costs c = open_costs(*state, ALONE, RF_SPLIT_TENSOR, 1);
    rf_plan_account a;
    rf_error err;

    assert_int_equal(rf_plan_account_make(c.plan, &a, &err), 0);
    near(nano(rf_cost_decode(c.model, &reader, 0)), (double)(a.sharded[0] + a.replicated[0] + 2 * STATES + POSITION));
    near(nano(rf_cost_decode(c.model, &reader, 999)),
         (double)(a.sharded[0] + a.replicated[0] + 2 * STATES + 1000 * POSITION));
    near(nano(rf_cost_verify(c.model, &reader, 100, 8)),
         (double)(a.sharded[0] + a.replicated[0] + STATES + 108 * POSITION));
    rf_plan_account_free(&a);
    close_costs(&c);
}

/* Two equal halves: half of the cut weights and of the states each, all of the replicated. */
static void two_ranks_read_half(void **state)
{
    costs c = open_costs(*state, ALONE, RF_SPLIT_TENSOR, 2);
    rf_plan_account a;
    rf_error err;

    assert_int_equal(rf_plan_account_make(c.plan, &a, &err), 0);
    assert_int_equal(a.sharded[0], a.sharded[1]);
    near(nano(rf_cost_decode(c.model, &reader, 0)),
         (double)(a.sharded[0] + a.replicated[0]) + (2 * STATES + POSITION) / 2.0);
    rf_plan_account_free(&a);
    close_costs(&c);
}

static void products_by_hand(void **state)
{
    costs c = open_costs(*state, ALONE, RF_SPLIT_TENSOR, 1);

    near(nano(rf_cost_decode(c.model, &multiplier, 0)), BODY + HEAD);
    near(nano(rf_cost_verify(c.model, &multiplier, 5, 8)), 8.0 * (BODY + HEAD));
    near(nano(rf_cost_prefill(c.model, &multiplier, 0, 512, 512)), 512.0 * BODY + HEAD);
    near(nano(rf_cost_prefill(c.model, &multiplier, 0, 512, 100)), 512.0 * BODY + HEAD);
    close_costs(&c);
}

/* A chunk reads the trunk's weights, moves the states twice, and sees the positions before it and its own. */
static void chunks_read_again(void **state)
{
    costs c = open_costs(*state, ALONE, RF_SPLIT_TENSOR, 1);
    double one = nano(rf_cost_prefill(c.model, &reader, 0, 512, 512)),
           two = nano(rf_cost_prefill(c.model, &reader, 0, 512, 256)),
           all = nano(rf_cost_verify(c.model, &reader, 0, 1)) - STATES - POSITION, head = HEAD / 32 * 34 + 256 * 4;

    near(one, all + 2 * STATES + 512 * POSITION);
    near(two, 2 * all - head + 4 * STATES + (256 + 512) * POSITION);
    close_costs(&c);
}

/* 16 sums of 256 floats, a command and an answer. */
static void exchange_by_hand(void **state)
{
    costs c = open_costs(*state, ALONE, RF_SPLIT_TENSOR, 2);

    near(nano(rf_cost_decode(c.model, &talker, 0)), 16 * (1000 + 1024) + 2 * 1000);
    near(nano(rf_cost_verify(c.model, &talker, 0, 8)), 16 * (1000 + 8 * 1024) + 2 * 1000);
    close_costs(&c);
    c = open_costs(*state, ALONE, RF_SPLIT_LAYER, 3); /* two hand x over, nobody adds */
    near(nano(rf_cost_decode(c.model, &talker, 0)), 2 * (1000 + 1024) + 2 * 2000);
    close_costs(&c);
    c = open_costs(*state, DFLASH, RF_SPLIT_LAYER, 4); /* layers 0-2, 3-5, 6-7, none: with x go 1, 3 and 4 taps */
    near(nano(rf_cost_verify(c.model, &talker, 0, 1)), 3 * 1000 + (2 + 4 + 5) * 1024 + 2 * 2000);
    close_costs(&c);
}

/* Of unequal shares the largest counts, whichever rank has it. */
static void the_slowest_rank_counts(void **state)
{
    static const double shares[2][2] = {{1, 3}, {3, 1}};
    const pair *p = *state;

    for (int i = 0; i < 2; i++) {
        rf_model_sizes sizes = {1, 4096, 512, RF_TYPE_F16, RF_TYPE_F16};
        rf_plan_spec spec = {p->target_file, NULL, &p->target, NULL, false, RF_SPLIT_TENSOR, 2, shares[i], 2};
        rf_error err;
        rf_plan *plan = rf_plan_create(&spec, &err);
        rf_cost_model *model = rf_cost_model_create(plan, &sizes, &sizes, &err);

        assert_true(plan && model);
        near(nano(rf_cost_decode(model, &multiplier, 0)),
             0.75 * (BODY + HEAD) + 2 * 0.25 * 2 * 256 * 128); /* three of four heads read both KV heads */
        rf_cost_model_destroy(model);
        rf_plan_destroy(plan);
    }
}

static double bytes_of(const rf_gguf *f, const char *part)
{
    double sum = 0;

    for (size_t i = 0; i < rf_gguf_n_tensors(f); i++)
        if (strstr(rf_gguf_tensor(f, i)->name, part))
            sum += (double)rf_gguf_tensor(f, i)->bytes;
    return sum;
}

/* A DFlash2 round: the target once, the drafter once, keys and values of the taps once more, the output matrix twice,
 * states twice. */
static void dflash_round_by_hand(void **state)
{
    const pair *p = *state;
    costs alone = open_costs(p, ALONE, RF_SPLIT_TENSOR, 1), c = open_costs(p, DFLASH, RF_SPLIT_TENSOR, 1);
    double own = bytes_of(p->drafter_file, "") - bytes_of(p->drafter_file, "_predecessor") -
                 bytes_of(p->drafter_file, "_successor"),
           taps = bytes_of(p->drafter_file, "attn_k.weight") + bytes_of(p->drafter_file, "attn_v.weight"),
           head = bytes_of(p->target_file, "token_embd") + 256 * 4,
           position = (double)(p->drafter.n_layer * p->drafter.n_head_kv * p->drafter.head_dim * 4);

    near(nano(rf_cost_round(c.model, &reader, 1000, 7)),
         nano(rf_cost_verify(alone.model, &reader, 1000, 8)) + STATES + own + taps + head + 1008 * position);
    close_costs(&c);
    close_costs(&alone);
}

/* An MTP round of 3 drafts: the block over the commit's rows and twice more, each with logits. */
static void mtp_round_by_hand(void **state)
{
    const pair *p = *state;
    costs alone = open_costs(p, ALONE, RF_SPLIT_TENSOR, 1), c = open_costs(p, MTP, RF_SPLIT_TENSOR, 1);
    double block = bytes_of(p->target_file, "blk.8."), head = bytes_of(p->target_file, "token_embd") + 256 * 4,
           position = 2 * 64 * 4;

    near(nano(rf_cost_round(c.model, &reader, 1000, 3)),
         nano(rf_cost_verify(alone.model, &reader, 1000, 4)) + STATES + 3 * (block + head) +
             (1004 + 1001 + 1001) * position);
    close_costs(&c);
    close_costs(&alone);
}

/* ---- Properties */

static void layers_take_turns(void **state)
{
    for (int d = ALONE; d <= DFLASH; d++) {
        costs one = open_costs(*state, (drafting)d, RF_SPLIT_TENSOR, 1);

        for (int n = 2; n <= 9; n++) {
            costs c = open_costs(*state, (drafting)d, RF_SPLIT_LAYER, n);
            rf_cost a = rf_cost_decode(one.model, &plain, 77), b = rf_cost_decode(c.model, &plain, 77);

            near(a.reading + a.multiplying, b.reading + b.multiplying);
            assert_true(b.exchange > 0 && a.exchange == 0);
            close_costs(&c);
        }
        close_costs(&one);
    }
}

/* All kinds of steps of a model. */
static void all_steps(const rf_cost_model *c, const rf_machine *m, size_t depth, size_t rows, double *seconds)
{
    seconds[0] = rf_cost_prefill(c, m, depth, 64 * rows, 512).seconds;
    seconds[1] = rf_cost_decode(c, m, depth).seconds;
    seconds[2] = rf_cost_verify(c, m, depth, rows).seconds;
    seconds[3] = rf_cost_round(c, m, depth, rows).seconds;
}

static void never_slower(const double *fast, const double *slow, bool truly)
{
    for (int i = 0; i < 4; i++)
        if (!(fast[i] <= slow[i] * (1 + 1e-12)) || (truly && !(fast[i] < slow[i])))
            fail_msg("step %d: %g, but %g", i, fast[i], slow[i]);
}

static void check_machines(const rf_cost_model *c, bool exchanges)
{
    double base[4], other[4];
    rf_machine m = plain;

    all_steps(c, &m, 100, 4, base);
    m.read *= 2;
    all_steps(c, &m, 100, 4, other);
    never_slower(other, base, false);
    m = plain;
    m.products *= 2;
    all_steps(c, &m, 100, 4, other);
    never_slower(other, base, false);
    m = plain;
    m.read_reached = m.products_reached = 1;
    all_steps(c, &m, 100, 4, other);
    never_slower(other, base, true);
    m = plain;
    m.latency /= 2;
    all_steps(c, &m, 100, 4, other);
    never_slower(other, base, exchanges);
    m = plain;
    m.link *= 2;
    all_steps(c, &m, 100, 4, other);
    never_slower(other, base, exchanges);
    all_steps(c, &plain, 2000, 4, other);
    never_slower(base, other, false); /* a prefill may be bound by products */
    assert_true(base[1] < other[1]);
    all_steps(c, &plain, 100, 5, other);
    other[1] = base[1]; /* a decode has one row */
    never_slower(base, other, false);
}

static void better_machines_are_never_slower(void **state)
{
    for (int d = ALONE; d <= DFLASH; d++)
        for (int split = RF_SPLIT_LAYER; split <= RF_SPLIT_TENSOR; split++)
            for (int n = 1; n <= 4; n++) {
                costs c = open_costs(*state, (drafting)d, (rf_split)split, n);

                check_machines(c.model, n > 1);
                close_costs(&c);
            }
}

/* Where talking costs nothing, more ranks are faster. */
static void more_ranks_share_the_work(void **state)
{
    rf_machine free_talk = plain;

    free_talk.latency = 0;
    free_talk.link = VAST;
    for (int d = ALONE; d <= DFLASH; d++) {
        double before[4], now[4];

        for (int n = 1; n <= 4; n++) {
            costs c = open_costs(*state, (drafting)d, RF_SPLIT_TENSOR, n);

            all_steps(c.model, &free_talk, 100, 4, now);
            if (n > 1 && n != 3) /* 3 ranks: 2, 1, 1 of 4 heads: as slow as 2 where heads count */
                never_slower(now, before, true);
            memcpy(before, now, sizeof now);
            close_costs(&c);
        }
    }
}

/* ---- Machines */

static char *report_of(const char *text)
{
    static char path[] = "/tmp/test_plan_cost.XXXXXX";
    static int file = -1;

    if (file < 0)
        file = mkstemp(path);
    assert_true(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, text, strlen(text), 0) == (ssize_t)strlen(text));
    return path;
}

#define HEAD_OF_REPORT "{\"program\": \"rankflash-bench\", \"schema\": 1, \"ranks\": 2, \"transport\": \"shm\", "
#define LIMITS "\"limits\": {\"read_bytes_per_s\": 3e10, \"int8_per_s\": 2e12}, "

#define SUM(transport, bytes, seconds)                                                                                 \
    "{\"figure\": \"allreduce\", \"transport\": \"" transport "\", \"payload_bytes\": " bytes                              \
    ", \"best_s\": " seconds "}"

static void machines_from_reports(void **state)
{
    rf_options o = {.cost_bench = report_of(
                        HEAD_OF_REPORT LIMITS
                        "\"figures\": ["
                        "{\"figure\": \"decode\", \"depth\": 4096, \"limit\": \"memory\", \"bytes\": 9, \"best_s\": 9},"
                        "{\"figure\": \"decode\", \"depth\": 0, \"limit\": \"memory\", \"bytes\": 2.7e9,"
                        " \"best_s\": 0.1},"
                        "{\"figure\": \"prefill\", \"rows\": 128, \"limit\": \"products\", \"products\": 8,"
                        " \"best_s\": 1},"
                        "{\"figure\": \"prefill\", \"rows\": 512, \"limit\": \"products\","
                        " \"products\": 8e11, \"best_s\": 1},"
                        SUM("shm", "1024", "1e-6") "," SUM("mpi", "1024", "9e-6") ","
                        SUM("shm", "1000000", "1.02e-4") "]}")};
    rf_machine m;
    char source[400];
    rf_error err;

    (void)state;
    assert_int_equal(rf_machine_choose(&o, &m, source, sizeof source, &err), 0);
    near(m.read, 15e9);
    near(m.products, 1e12);
    near(m.read_reached, 0.9);
    near(m.products_reached, 0.4);
    near(m.latency, 1e-6);
    near(m.link, 1e6 / 1e-4);
    assert_non_null(strstr(source, "measured with 2 ranks"));
    o.cost_latency = 5;
    o.cost_reached = 80;
    assert_int_equal(rf_machine_choose(&o, &m, source, sizeof source, &err), 0);
    near(m.latency, 5e-6);
    near(m.read_reached, 0.8);
    assert_non_null(strstr(source, "some given"));
}

static void unsaid_numbers_are_said(void **state)
{
    rf_options o = {.cost_read = 100};
    rf_machine m;
    char source[400];
    rf_error err;

    (void)state;
    assert_int_equal(rf_machine_choose(&o, &m, source, sizeof source, &err), 0);
    near(m.read, 100e9);
    assert_non_null(strstr(source, "no particular machine"));
    o = (rf_options){.cost_read = 1, .cost_products = 2, .cost_latency = 3, .cost_link = 4};
    assert_int_equal(rf_machine_choose(&o, &m, source, sizeof source, &err), 0);
    assert_string_equal(source, "as given");
    near(m.products, 2e9);
    near(m.link, 4e9);
    o = (rf_options){0};
    assert_int_equal(rf_machine_choose(&o, &m, source, sizeof source, &err), 0);
    assert_non_null(strstr(source, "no particular machine"));
}

static void bad_reports_are_refused(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "expected what rankflash-bench --json printed"},
        {"[1, 2]", "expected what rankflash-bench --json printed"},
        {"{\"program\": \"other\", \"schema\": 1, \"figures\": []}", "schema 1"},
        {"{\"program\": \"rankflash-bench\", \"schema\": 2, \"figures\": []}", "schema 1"},
        {HEAD_OF_REPORT "\"figures\": []}", "limits that are positive numbers"},
        {HEAD_OF_REPORT "\"limits\": {\"read_bytes_per_s\": -1, \"int8_per_s\": 1}, \"figures\": []}",
         "limits that are positive numbers"},
        {HEAD_OF_REPORT "\"limits\": {\"read_bytes_per_s\": \"x\", \"int8_per_s\": 1}, \"figures\": []}",
         "limits that are positive numbers"},
    };
    rf_machine m;
    char source[400];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rf_options o = {.cost_bench = report_of(cases[i].text)};
        rf_error err;

        assert_int_equal(rf_machine_choose(&o, &m, source, sizeof source, &err), -1);
        assert_int_equal(err.code, RF_ERR_FILE);
        if (!strstr(err.text, cases[i].words))
            fail_msg("%s: %s", cases[i].text, err.text);
    }
    unlink(report_of(""));
}

/* A figure beyond the limit that was measured shows the limit to be larger. */
static void figures_beyond_the_limit(void **state)
{
    rf_options o = {.cost_bench = report_of(HEAD_OF_REPORT LIMITS
                                            "\"figures\": [{\"figure\": \"decode\", \"depth\": 0,"
                                            "\"limit\": \"memory\", \"bytes\": 4.5e9, \"best_s\": 0.1}]}")};
    rf_machine m;
    char source[400];
    rf_error err;

    (void)state;
    assert_int_equal(rf_machine_choose(&o, &m, source, sizeof source, &err), 0);
    near(m.read_reached, 1);
    near(m.read, 22.5e9);
}

/* Figures of odd types take no effect, or a number that cannot be none. */
static void odd_figures_change_nothing(void **state)
{
    rf_options o = {.cost_bench = report_of(HEAD_OF_REPORT LIMITS
                                            "\"figures\": [7, null, {\"figure\": 3},"
                                            "{\"figure\": \"decode\", \"limit\": \"memory\", \"bytes\": \"all\"},"
                                            "{\"figure\": \"allreduce\", \"transport\": \"shm\"}]}")};
    rf_machine m;
    char source[400];
    rf_error err;

    (void)state;
    assert_int_equal(rf_machine_choose(&o, &m, source, sizeof source, &err), 0);
    near(m.read_reached, 1);
    assert_true(m.latency > 0 && m.link > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_by_hand),
        cmocka_unit_test(other_exchanges_by_hand),
        cmocka_unit_test(decode_reads_what_is_held),
        cmocka_unit_test(two_ranks_read_half),
        cmocka_unit_test(products_by_hand),
        cmocka_unit_test(chunks_read_again),
        cmocka_unit_test(exchange_by_hand),
        cmocka_unit_test(the_slowest_rank_counts),
        cmocka_unit_test(dflash_round_by_hand),
        cmocka_unit_test(mtp_round_by_hand),
        cmocka_unit_test(layers_take_turns),
        cmocka_unit_test(better_machines_are_never_slower),
        cmocka_unit_test(more_ranks_share_the_work),
        cmocka_unit_test(machines_from_reports),
        cmocka_unit_test(unsaid_numbers_are_said),
        cmocka_unit_test(figures_beyond_the_limit),
        cmocka_unit_test(odd_figures_change_nothing),
        cmocka_unit_test(bad_reports_are_refused),
    };

    return cmocka_run_group_tests(tests, open_pair, close_pair);
}
