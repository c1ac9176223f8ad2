/* The command line: every flag, every refusal, and the documents that list them. */
#include "config.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "options_table.h"

#define MAX_ARGUMENTS 64

/* Splits line at spaces (a lone ~ is an empty argument) and parses it. The text lives until the next call. */
static int parse(rf_options *o, const char *line, rf_error *err)
{
    static char text[2048];
    static char name[] = "rankflash", empty[] = "";
    static char *argv[MAX_ARGUMENTS + 1];
    int argc = 0;

    assert_true(strlen(line) < sizeof text);
    memcpy(text, line, strlen(line) + 1);
    argv[argc++] = name;
    for (char *word = strtok(text, " "); word && argc < MAX_ARGUMENTS; word = strtok(NULL, " "))
        argv[argc++] = strcmp(word, "~") == 0 ? empty : word;
    argv[argc] = NULL;
    *err = (rf_error){0};
    return rf_options_parse(o, argc, argv, err);
}

static rf_options good(const char *line)
{
    rf_options o;
    rf_error err;

    if (parse(&o, line, &err) < 0)
        fail_msg("\"%s\" was refused: %s", line, err.text);
    return o;
}

/* The line is refused with exit code 2 and one sentence that contains `part`. */
static void bad(const char *line, const char *part)
{
    rf_options o;
    rf_error err;

    if (parse(&o, line, &err) == 0)
        fail_msg("\"%s\" was accepted", line);
    rf_options_free(&o);
    assert_int_equal(err.code, RF_ERR_USAGE);
    assert_null(strchr(err.text, '\n'));
    if (!strstr(err.text, part))
        fail_msg("\"%s\": \"%s\" does not contain \"%s\"", line, err.text, part);
}

/* The line is accepted; `part` is in exactly `times` notices. */
static void noticed(const char *line, const char *part, size_t times)
{
    rf_options o = good(line);
    size_t found = 0;

    for (size_t i = 0; i < o.n_notices; i++) {
        assert_null(strchr(o.notices[i], '\n'));
        found += strstr(o.notices[i], part) != NULL;
    }
    if (found != times)
        fail_msg("\"%s\": \"%s\" is in %zu notices", line, part, found);
    rf_options_free(&o);
}

#define EXPECT(line, condition)                                                                                        \
    do {                                                                                                               \
        rf_options o = good(line);                                                                                     \
        if (!(condition))                                                                                              \
            fail_msg("\"%s\": not %s", line, #condition);                                                              \
        rf_options_free(&o);                                                                                           \
    } while (0)

static bool same(double a, double b)
{
    return fabs(a - b) < 1e-12;
}

static bool is(rf_text text, const char *bytes, size_t length)
{
    return text.data && text.length == length && memcmp(text.data, bytes, length) == 0;
}

static void defaults(void **state)
{
    rf_options o = good("");

    (void)state;
    assert_int_equal(o.action, RF_ACTION_RUN);
    assert_null(o.model);
    assert_null(o.draft_model);
    assert_null(o.prompt.data);
    assert_null(o.system.data);
    assert_int_equal(o.spec_type, RF_SPEC_AUTO);
    assert_int_equal(o.spec_n_max, -1);
    assert_int_equal(o.spec_n_min, 0);
    assert_true(same(o.spec_p_min, 0));
    assert_int_equal(o.split, RF_SPLIT_TENSOR);
    assert_int_equal(o.n_tensor_split, 0);
    assert_int_equal(o.n_gpu_layers, RF_LAYERS_UNSET);
    assert_int_equal(o.n_gpu_layers_draft, RF_LAYERS_UNSET);
    assert_int_equal(o.threads, 0);
    assert_int_equal(o.n_ctx, -1);
    assert_int_equal(o.type_k + o.type_v + o.type_k_draft + o.type_v_draft, 4);
    assert_true(o.fit && o.escape);
    assert_int_equal(o.batch, 512);
    assert_int_equal(o.n_predict, -1);
    assert_false(o.seed_given || o.raw || o.special || o.ignore_eos || o.check || o.json || o.verbose);
    assert_true(same(o.temperature, 0.8) && same(o.top_p, 0.95) && same(o.min_p, 0.05));
    assert_int_equal(o.top_k, 40);
    assert_int_equal(o.n_notices, 0);
    rf_options_free(&o);
}

static void model_and_speculation(void **state)
{
    (void)state;
    EXPECT("-m a.gguf", strcmp(o.model, "a.gguf") == 0);
    EXPECT("--model a.gguf", strcmp(o.model, "a.gguf") == 0);
    EXPECT("--model=a.gguf", strcmp(o.model, "a.gguf") == 0);
    EXPECT("-m a.gguf -m b.gguf", strcmp(o.model, "b.gguf") == 0);
    EXPECT("-m a -md d", strcmp(o.draft_model, "d") == 0);
    EXPECT("-m a --model-draft d", strcmp(o.draft_model, "d") == 0);
    EXPECT("-m a --spec-draft-model d", strcmp(o.draft_model, "d") == 0);
    EXPECT("--spec-type none", o.spec_type == RF_SPEC_NONE);
    EXPECT("--spec-type draft-mtp", o.spec_type == RF_SPEC_MTP);
    EXPECT("--spec-type draft-dflash", o.spec_type == RF_SPEC_DFLASH);
    EXPECT("--spec-draft-n-max 0", o.spec_n_max == 0);
    EXPECT("--spec-draft-n-max 6 --spec-draft-n-min 6", o.spec_n_max == 6 && o.spec_n_min == 6);
    EXPECT("--spec-draft-n-max 1000000", o.spec_n_max == 1000000);
    EXPECT("--spec-draft-p-min 0.75", same(o.spec_p_min, 0.75));
    bad("--spec-type mtp", "--spec-type mtp: expected none, draft-mtp, draft-dflash");
    bad("--spec-draft-n-max -1", "at least 0");
    bad("--spec-draft-n-max 6x", "at least 0");
    bad("--spec-draft-n-min -2", "at least 0");
    bad("--spec-draft-p-min 1.5", "from 0 to 1");
    bad("--spec-draft-p-min nan", "from 0 to 1");
    bad("--spec-draft-n-max 2 --spec-draft-n-min 3", "--spec-draft-n-min 3 is more than --spec-draft-n-max 2");
    bad("-md d", "-md");
    bad("-m a --spec-type draft-dflash", "-md FILE");
    EXPECT("-m a -md d --spec-type none", o.spec_type == RF_SPEC_NONE);
}

static void split_and_devices(void **state)
{
    (void)state;
    EXPECT("-sm none", o.split == RF_SPLIT_NONE);
    EXPECT("--split-mode layer", o.split == RF_SPLIT_LAYER);
    EXPECT("-sm layer -sm tensor", o.split == RF_SPLIT_TENSOR);
    EXPECT("-ts 3,1", o.n_tensor_split == 2 && same(o.tensor_split[0], 3) && same(o.tensor_split[1], 1));
    EXPECT("--tensor-split 1/2.5/1e2",
           o.n_tensor_split == 3 && same(o.tensor_split[1], 2.5) && same(o.tensor_split[2], 100));
    EXPECT("-ts 1,2/3", o.n_tensor_split == 3);
    EXPECT("-ts 1,2,3 -ts 5", o.n_tensor_split == 1 && same(o.tensor_split[0], 5));
    EXPECT("-ngl 999", o.n_gpu_layers == RF_LAYERS_ALL);
    EXPECT("-ngl all", o.n_gpu_layers == RF_LAYERS_ALL);
    EXPECT("--gpu-layers 99", o.n_gpu_layers == RF_LAYERS_ALL);
    EXPECT("--n-gpu-layers 0", o.n_gpu_layers == 0 && o.n_notices == 0);
    EXPECT("--n-gpu-layers-draft 999", o.n_gpu_layers_draft == RF_LAYERS_ALL);
    EXPECT("-ngld 0", o.n_gpu_layers_draft == 0);
    EXPECT("-ngl 20 -sm layer", o.n_gpu_layers == 20);
    EXPECT("--backend auto", o.backend == RF_WANT_AUTO);
    EXPECT("--backend cpu", o.backend == RF_WANT_CPU);
    EXPECT("--backend cuda", o.backend == RF_WANT_CUDA);
    EXPECT("--backend hip", o.backend == RF_WANT_HIP);
    EXPECT("--backend emu", o.backend == RF_WANT_EMU_32);
    EXPECT("--backend emu:64", o.backend == RF_WANT_EMU_64);
    EXPECT("--backend emu", o.device == -1);
    EXPECT("-dev 0", o.device == 0);
    EXPECT("--device 3", o.device == 3);
    EXPECT("--list-devices", o.action == RF_ACTION_DEVICES);
    EXPECT("-t 3", o.threads == 3);
    EXPECT("--threads 4096", o.threads == 4096);
    EXPECT("--isa avx2", strcmp(o.isa, "avx2") == 0);
    EXPECT("-t 1", strcmp(o.isa, "auto") == 0);
    EXPECT("--allreduce auto", o.allreduce == RF_ALLREDUCE_ORDERED);
    EXPECT("--allreduce ordered", o.allreduce == RF_ALLREDUCE_ORDERED);
    EXPECT("--allreduce mpi", o.allreduce == RF_ALLREDUCE_MPI);
    EXPECT("--gpu-aware auto", o.gpu_aware == RF_SWITCH_AUTO);
    EXPECT("--gpu-aware off", o.gpu_aware == RF_SWITCH_OFF);
    EXPECT("-fa on", o.flash_attn == RF_SWITCH_ON);
    EXPECT("--flash-attn off", o.flash_attn == RF_SWITCH_OFF);
    EXPECT("-fa auto", o.flash_attn == RF_SWITCH_AUTO);
    bad("-sm row", "expected none, layer, tensor");
    bad("-ts ~", "positive numbers");
    bad("-ts 1,,2", "positive numbers");
    bad("-ts 1,2,", "positive numbers");
    bad("-ts 1;2", "positive numbers");
    bad("-ts 0,1", "positive numbers");
    bad("-ts -1,1", "positive numbers");
    bad("-ts 1,inf", "positive numbers");
    bad("-ts 1,nan", "positive numbers");
    bad("-ts 1,1e999", "positive numbers");
    bad("-sm none -ts 1,1", "one rank alone");
    bad("-ngl -5", "all or a number of layers");
    bad("-ngl some", "all or a number of layers");
    bad("-ngl 20", "--n-gpu-layers 20: with --split-mode tensor");
    bad("--n-gpu-layers-draft 2", "--n-gpu-layers-draft 2: with --split-mode tensor");
    bad("-t 0", "from 1 to 4096");
    bad("-t two", "from 1 to 4096");
    bad("--allreduce ring", "expected auto, ordered, mpi");
    bad("-fa yes", "expected on, off, auto");
    noticed("-ngl 999 --n-gpu-layers-draft 999", "everything is on the CPU", 2);
    noticed("-ngl 999 -ngl all", "--n-gpu-layers: ", 1);
    noticed("-fa on", "--flash-attn: ", 1);
    noticed("-fa off", "blockwise", 1);
}

static void context_and_memory(void **state)
{
    (void)state;
    EXPECT("-c 196608", o.n_ctx == 196608);
    EXPECT("--ctx-size 0", o.n_ctx == 0);
    EXPECT("-ctk f32 -ctv f16", o.type_k == 0 && o.type_v == 1);
    EXPECT("--cache-type-k f16 --cache-type-v f32", o.type_k == 1 && o.type_v == 0);
    EXPECT("-ctkd f32", o.type_k_draft == 0 && o.type_v_draft == 1);
    EXPECT("-ctvd f32", o.type_v_draft == 0);
    EXPECT("--cache-type-k-draft f32 --cache-type-v-draft f32", o.type_k_draft == 0 && o.type_v_draft == 0);
    EXPECT("--fit off", !o.fit);
    EXPECT("--fit off --fit on", o.fit);
    EXPECT("-b 64", o.batch == 64);
    EXPECT("--batch-size 1", o.batch == 1);
    bad("-c -1", "at least 0");
    bad("-c 4294967296", "at least 0");
    bad("-c 99999999999999999999", "at least 0");
    bad("-c 4k", "at least 0");
    bad("-c ~", "--ctx-size \"\": expected");
    bad("-ctk q4_0", "expected f32, f16");
    bad("-ctk bf16", "--cache-type-k bf16 is not in this version: it has f32, f16");
    bad("-ctv q8_0", "not in this version");
    bad("-ctkd q8_0", "not in this version");
    bad("-ctvd bf16", "not in this version");
    bad("--fit maybe", "expected on, off");
    bad("-b 0", "from 1 to 65536");
    bad("-b 65537", "from 1 to 65536");
    noticed("-ub 256", "--ubatch-size: ", 1);
    noticed("--ubatch-size 512", "-b", 1);
    bad("-ub 0", "at least 1");
}

static void prompt_and_output(void **state)
{
    (void)state;
    EXPECT("-p hello", is(o.prompt, "hello", 5));
    EXPECT("--prompt ~", is(o.prompt, "", 0));
    EXPECT("-p -n", is(o.prompt, "-n", 2));
    EXPECT("--prompt=--raw", is(o.prompt, "--raw", 5) && !o.raw);
    EXPECT("-f p.txt", strcmp(o.prompt_file, "p.txt") == 0 && !o.prompt.data);
    EXPECT("--file p.txt", strcmp(o.prompt_file, "p.txt") == 0);
    EXPECT("-sys brief", is(o.system, "brief", 5));
    EXPECT("--system brief", is(o.system, "brief", 5));
    EXPECT("--system-prompt brief", is(o.system, "brief", 5));
    EXPECT("-n 0", o.n_predict == 0);
    EXPECT("-n -1", o.n_predict == -1);
    EXPECT("--predict 64", o.n_predict == 64);
    EXPECT("--n-predict=-1", o.n_predict == -1);
    EXPECT("-r stop -r halt", o.n_stop == 2 && is(o.stop[0], "stop", 4) && is(o.stop[1], "halt", 4));
    EXPECT("--reverse-prompt x", o.n_stop == 1);
    EXPECT("--raw", o.raw);
    EXPECT("--special", o.special);
    EXPECT("--ignore-eos", o.ignore_eos);
    EXPECT("--reasoning on", o.reasoning == RF_REASONING_ON);
    EXPECT("--reasoning off", o.reasoning == RF_REASONING_OFF);
    EXPECT("--reasoning auto", o.reasoning == RF_REASONING_AUTO);
    bad("-n -2", "at least -1");
    bad("-r ~", "not empty");
    bad("--reasoning high", "expected on, off, auto");
    bad("-p a -f b", "-p and -f");
    bad("--raw --system x", "--raw leaves out");
    bad("--raw --reasoning on", "--raw leaves out");
}

static void escapes(void **state)
{
    (void)state;
    EXPECT("-p a\\nb\\tc\\rd\\\\e\\\"f\\'g", is(o.prompt, "a\nb\tc\rd\\e\"f'g", 13));
    EXPECT("-p \\x41\\x00\\xfF", is(o.prompt, "A\0\377", 3));
    EXPECT("-p \\x4\\xg1\\q\\", is(o.prompt, "\\x4\\xg1\\q\\", 10));
    EXPECT("-p \\\\n", is(o.prompt, "\\n", 2));
    EXPECT("-e -p \\n", is(o.prompt, "\n", 1));
    EXPECT("--escape -p \\n", is(o.prompt, "\n", 1));
    EXPECT("-p \\n --no-escape", is(o.prompt, "\\n", 2));
    EXPECT("--no-escape -p \\n -e", is(o.prompt, "\n", 1));
    EXPECT("-r a\\n -r \\t", is(o.stop[0], "a\n", 2) && is(o.stop[1], "\t", 1));
    EXPECT("-r \\n --no-escape", is(o.stop[0], "\\n", 2));
    EXPECT("--system a\\nb", is(o.system, "a\nb", 3));
}

static void sampling(void **state)
{
    (void)state;
    EXPECT("-s 7", o.seed_given && o.seed == 7);
    EXPECT("--seed 18446744073709551615", o.seed_given && o.seed == UINT64_MAX);
    EXPECT("-s -1", !o.seed_given);
    EXPECT("-s 5 -s -1", !o.seed_given);
    EXPECT("--temp 0", same(o.temperature, 0));
    EXPECT("--temperature 1.5", same(o.temperature, 1.5));
    EXPECT("--top-k 0", o.top_k == 0);
    EXPECT("--top-p 1", same(o.top_p, 1));
    EXPECT("--min-p 0", same(o.min_p, 0));
    EXPECT("--presence-penalty 0.0 --frequency-penalty 0 --repeat-penalty 1.0", o.n_notices == 0);
    bad("-s -2", "-1 or a whole number");
    bad("-s 18446744073709551616", "-1 or a whole number");
    bad("-s 1.5", "-1 or a whole number");
    bad("--temp -0.1", "at least 0");
    bad("--temp inf", "at least 0");
    bad("--temp 0.8x", "at least 0");
    bad("--top-k -1", "at least 0");
    bad("--top-p 1.01", "from 0 to 1");
    bad("--min-p -1", "from 0 to 1");
    bad("--presence-penalty 0.5", "penalties are not in this version");
    bad("--frequency-penalty -1", "penalties are not in this version");
    bad("--repeat-penalty 1.1", "only 1 (none)");
    bad("--repeat-penalty 0", "only 1 (none)");
    bad("--repeat-penalty x", "expected a number");
    bad("--presence-penalty -nan", "expected a number");
    noticed("--repeat-last-n 64", "--repeat-last-n: ", 1);
    bad("--repeat-last-n -2", "at least -1");
}

static void reports(void **state)
{
    (void)state;
    EXPECT("--plan", o.action == RF_ACTION_PLAN && o.plan_ranks == 0);
    EXPECT("--plan --ranks 4", o.action == RF_ACTION_PLAN && o.plan_ranks == 4);
    EXPECT("--check", o.check);
    EXPECT("--json", o.json);
    EXPECT("--verbose", o.verbose);
    EXPECT("--version", o.action == RF_ACTION_VERSION);
    EXPECT("--help", o.action == RF_ACTION_HELP);
    EXPECT("-h", o.action == RF_ACTION_HELP);
    EXPECT("--help --bogus", o.action == RF_ACTION_HELP);
    EXPECT("--version -c nonsense", o.action == RF_ACTION_VERSION);
    bad("-c nonsense --help", "--ctx-size nonsense");
    bad("--ranks 4", "--ranks goes with --plan");
    bad("--cost-latency 4", "go with --plan");
    bad("--cost-bench x.json", "go with --plan");
    bad("--plan --cost-read 0", "--cost-read 0: expected");
    bad("--plan --cost-reached 101", "from 1 to 100");
    EXPECT("--plan --cost-link 12.5", o.cost_link > 12.4 && o.cost_link < 12.6 && o.cost_read <= 0);
    bad("--plan --ranks 0", "from 1 to 65536");
}

static void accepted_with_a_notice(void **state)
{
    static const char *const flags[] = {
        "--no-mmap",           "--mlock", "--jinja", "--conversation", "--single-turn", "--no-warmup",
        "--no-display-prompt", "--color", "--perf",  "--no-perf"};

    (void)state;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char line[80];

        snprintf(line, sizeof line, "%s %s", flags[i], flags[i]);
        noticed(line, flags[i], 1);
        EXPECT(line, o.n_notices == 1);
    }
    noticed("-cnv", "--conversation: ", 1);
    noticed("-st", "--single-turn: ", 1);
    EXPECT("-np 1", o.n_notices == 0);
    EXPECT("--parallel 1", o.n_notices == 0);
}

static void batch_jobs(void **state)
{
    (void)state;
    EXPECT("--batch in.jsonl --output out.jsonl", strcmp(o.batch_in, "in.jsonl") == 0 && strcmp(o.batch_out, "out.jsonl") == 0 &&
                                                      o.parallel == 0);
    EXPECT("--batch - --output out.jsonl -np 64", o.parallel == 64);
    bad("--batch jobs.jsonl", "add --output FILE");
    bad("--output out.jsonl", "add --batch FILE");
    bad("--batch jobs.jsonl --output out.jsonl -p hello", "leave out -p");
    bad("--batch jobs.jsonl --output out.jsonl -f hello", "leave out -f");
    bad("-np 2", "--parallel 2 is for the requests of a batch");
    bad("-np 0", "from 1 to 64");
    bad("-np 65", "from 1 to 64");
}

static void later_versions(void **state)
{
    (void)state;
    bad("--prompt-cache s.bin", "saved sessions");
    bad("--logit-bias 5+1", "not in this version");
    bad("--backend tpu", "expected auto, cpu");
    bad("--gpu-aware on", "not in this version");
}

static void unknown_and_abbreviated(void **state)
{
    (void)state;
    bad("--bogus", "unknown flag --bogus");
    bad("-z", "unknown flag -z");
    bad("--spec-draft-n-ma 3", "unknown flag --spec-draft-n-ma (did you mean --spec-draft-n-max?)");
    bad("--ver", "unknown flag --ver");
    bad("--see=5", "unknown flag --see (did you mean -s?)");
    bad("--ctx", "unknown flag --ctx");
    bad("-ng 5", "unknown flag -ng");
    bad("---model x", "unknown flag ---model");
    bad("---raw", "unknown flag ---raw");
    bad("-- x", "unexpected argument \"x\"");
    bad("hello", "unexpected argument \"hello\"");
    bad("-p two words", "unexpected argument \"words\"");
    bad("-m", "-m needs a value: FILE");
    bad("--raw --ctx-size", "--ctx-size needs a value: N");
    bad("--raw=yes", "--raw takes no value");
    bad("--\033[31mred", "unknown flag --?[31mred");
    bad("-c \033[31m", "--ctx-size ?[31m");
    EXPECT("--", o.action == RF_ACTION_RUN);
}

static void the_reports_own_line(void **state)
{
    rf_options o =
        good("-m t.gguf -md d.gguf --spec-type draft-dflash --spec-draft-n-max 6 --spec-draft-p-min 0 "
             "--n-gpu-layers 999 --n-gpu-layers-draft 999 --flash-attn on --ctx-size 196608 --cache-type-k f16 "
             "--cache-type-v f16 --split-mode tensor --tensor-split 1,1 --fit off -p hi");

    (void)state;
    assert_int_equal(o.spec_type, RF_SPEC_DFLASH);
    assert_int_equal(o.spec_n_max, 6);
    assert_int_equal(o.n_ctx, 196608);
    assert_int_equal(o.n_tensor_split, 2);
    assert_int_equal(o.split, RF_SPLIT_TENSOR);
    assert_false(o.fit);
    assert_int_equal(o.n_notices, 3);
    rf_options_free(&o);
}

static void prompt_files(void **state)
{
    char path[] = "/tmp/rankflash-prompt-XXXXXX", line[80];
    size_t length = 300000;
    char *bytes = malloc(length);
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "wb");
    rf_error err = {0};
    rf_options o;

    (void)state;
    assert_non_null(bytes);
    assert_non_null(file);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    fclose(file);
    snprintf(line, sizeof line, "-f %s", path);
    o = good(line);
    assert_int_equal(rf_options_load_prompt(&o, &err), 0);
    assert_true(is(o.prompt, bytes, length));
    rf_options_free(&o);
    unlink(path);
    o = good(line);
    assert_int_equal(rf_options_load_prompt(&o, &err), -1);
    assert_int_equal(err.code, RF_ERR_FILE);
    assert_non_null(strstr(err.text, path));
    rf_options_free(&o);
    o = good("-f /");
    assert_int_equal(rf_options_load_prompt(&o, &err), -1);
    assert_int_equal(err.code, RF_ERR_FILE);
    rf_options_free(&o);
    o = good("-f /dev/null");
    assert_int_equal(rf_options_load_prompt(&o, &err), 0);
    assert_true(is(o.prompt, "", 0));
    rf_options_free(&o);
    o = good("-p x");
    assert_int_equal(rf_options_load_prompt(&o, &err), 0);
    assert_true(is(o.prompt, "x", 1));
    rf_options_free(&o);
    free(bytes);
}

/* Every flag has a name of its own, a text, and what its kind needs. */
static void the_table(void **state)
{
    size_t n = rf_option_set()->n_rows;
    const rf_flag *rows = rf_option_set()->rows;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        const rf_flag *r = &rows[i];
        bool takes_value = r->kind != RF_KIND_TRUE && r->kind != RF_KIND_ACTION && r->kind != RF_KIND_STOP;

        assert_non_null(r->names[0]);
        assert_non_null(r->help);
        assert_true(r->help[strlen(r->help) - 1] != '.');
        if (r->kind == RF_KIND_INT32 || r->kind == RF_KIND_INT64 || r->kind == RF_KIND_REAL ||
            r->kind == RF_KIND_CHOICE)
            assert_non_null(r->value);
        if (!takes_value)
            assert_null(r->value);
        assert_int_equal(r->kind == RF_KIND_CHOICE || r->kind == RF_KIND_ON_OFF, r->choices != NULL);
        assert_int_equal(r->kind == RF_KIND_CUSTOM, r->set != NULL);
        for (size_t k = 0; k < RF_FLAG_NAMES && r->names[k]; k++)
            for (size_t j = 0; j <= i; j++)
                for (size_t l = 0; l < RF_FLAG_NAMES && rows[j].names[l]; l++)
                    if ((j < i || l < k) && strcmp(rows[j].names[l], r->names[k]) == 0)
                        fail_msg("%s is in the table twice", r->names[k]);
    }
}

static void help_lists_every_flag(void **state)
{
    size_t n = rf_option_set()->n_rows, length;
    const rf_flag *rows = rf_option_set()->rows;
    char *text;
    FILE *out = open_memstream(&text, &length);

    (void)state;
    rf_options_print_help(out);
    fclose(out);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < RF_FLAG_NAMES && rows[i].names[k]; k++)
            if (!strstr(text, rows[i].names[k]))
                fail_msg("--help does not list %s", rows[i].names[k]);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(strlen(line) <= 100);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(model_and_speculation),
        cmocka_unit_test(split_and_devices),
        cmocka_unit_test(context_and_memory),
        cmocka_unit_test(prompt_and_output),
        cmocka_unit_test(escapes),
        cmocka_unit_test(sampling),
        cmocka_unit_test(reports),
        cmocka_unit_test(accepted_with_a_notice),
        cmocka_unit_test(batch_jobs),
        cmocka_unit_test(later_versions),
        cmocka_unit_test(unknown_and_abbreviated),
        cmocka_unit_test(the_reports_own_line),
        cmocka_unit_test(prompt_files),
        cmocka_unit_test(the_table),
        cmocka_unit_test(help_lists_every_flag),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
