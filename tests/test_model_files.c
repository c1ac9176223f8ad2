/* Model files that are not what a network expects end in one sentence (RF_ERR_FILE) that names the file, the key or
 * tensor, what was expected and what is there; legal variants of a file give the bits of the plain one. */
#include "gguf_edit.h"
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TARGET "micro/micro-F32.gguf"
#define DFLASH2 "micro/micro-DFlash2-F32.gguf"
#define DFLASH1 "micro/micro-DFlash1-F32.gguf"

enum { N_TEXT = 20, N_DRAFTS = 4, N_VOCAB = 384 };

static char edited[64]; /* the file being tried; removed at the end */
static rf_gguf *target_file;
static rf_qwen35_params target;

static int set_up(void **state)
{
    rf_error err = {0};

    (void)state;
    snprintf(edited, sizeof edited, "./edited-%ld.gguf", (long)getpid());
    target_file = rf_gguf_open(RF_TEST_DATA "/" TARGET, &err);
    return target_file ? rf_qwen35_params_read(target_file, true, &target, &err) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    rf_qwen35_params_free(&target);
    rf_gguf_close(target_file);
    unlink(edited);
    return 0;
}

static void load(edit_file *f, const char *name)
{
    char path[1024];

    snprintf(path, sizeof path, "%s/%s", RF_TEST_DATA, name);
    edit_load(f, path);
}

/* Reads the edited file as a target or a drafter; 0 if it is accepted. */
static int read_edited(edit_file *f, bool drafter, rf_error *err)
{
    rf_qwen35_params p = {0};
    rf_dflash_params d = {0};
    rf_gguf *file;
    int status;

    edit_save(f, edited);
    edit_free(f);
    *err = (rf_error){0};
    file = rf_gguf_open(edited, err);
    if (!file)
        return -1;
    status = drafter ? rf_dflash_params_read(file, &target, &d, err) : rf_qwen35_params_read(file, true, &p, err);
    rf_dflash_params_free(&d);
    rf_qwen35_params_free(&p);
    rf_gguf_close(file);
    return status;
}

static void check_sentence(const rf_error *err, const char *a, const char *b)
{
    if (err->code != RF_ERR_FILE || !strstr(err->text, edited) || !strstr(err->text, a) || !strstr(err->text, b) ||
        strchr(err->text, '\n'))
        fail_msg("code %d, '%s': expected a sentence with '%s' and '%s'", err->code, err->text, a, b);
}

/* The edited file is refused, and the sentence has both words. */
static void refused(edit_file *f, bool drafter, const char *a, const char *b)
{
    rf_error err;

    if (read_edited(f, drafter, &err) == 0)
        fail_msg("accepted, expected a sentence with '%s' and '%s'", a, b);
    check_sentence(&err, a, b);
}

static size_t tensors_of(const char *name)
{
    edit_file f;
    size_t n;

    load(&f, name);
    n = f.n_tensors;
    edit_free(&f);
    return n;
}

/* ---- tensors */

/* One tensor after the other under another name: it is missing, or (where it is optional) what it became is unknown.
 * Without selector_hidden the file is no DFlash2, so the rest of that is unknown. */
static void check_missing(const char *name, bool drafter)
{
    for (size_t i = 0, n = tensors_of(name); i < n; i++) {
        char before[64];
        edit_file f;

        load(&f, name);
        snprintf(before, sizeof before, "%s", f.tensors[i].name);
        f.tensors[i].name[0] = 'x';
        refused(&f, drafter, strcmp(before, "selector_hidden.weight") == 0 ? "selector_" : before + 1, ": ");
    }
}

static void check_shapes(const char *name, bool drafter)
{
    for (size_t i = 0, n = tensors_of(name); i < n; i++) {
        edit_file f;

        load(&f, name);
        f.tensors[i].dims[f.tensors[i].n_dims - 1]--;
        refused(&f, drafter, "expected [", "file has [");
    }
}

/* I32 has no meaning for a network; I64 is for d2t alone. */
static void check_types(const char *name, bool drafter)
{
    for (size_t i = 0, n = tensors_of(name); i < n; i++) {
        char tensor[64];
        edit_file f;

        load(&f, name);
        snprintf(tensor, sizeof tensor, "%s", f.tensors[i].name);
        f.tensors[i].type = 26;
        refused(&f, drafter, tensor, "type I32");
    }
}

static void test_missing_tensors(void **state)
{
    (void)state;
    check_missing(TARGET, false);
    check_missing(DFLASH2, true);
}

static void test_wrong_shapes(void **state)
{
    (void)state;
    check_shapes(TARGET, false);
    check_shapes(DFLASH2, true);
}

static void test_wrong_types(void **state)
{
    (void)state;
    check_types(TARGET, false);
    check_types(DFLASH2, true);
}

static void test_integers(void **state)
{
    static const float numbers[N_VOCAB];
    const uint64_t dims[] = {N_VOCAB};
    edit_tensor *t;
    edit_file f;

    (void)state;
    load(&f, TARGET);
    t = edit_find_tensor(&f, "blk.0.attn_norm.weight");
    t->type = RF_TYPE_I64;
    t->data = realloc(t->data, 2 * t->n);
    t->n *= 2;
    refused(&f, false, "blk.0.attn_norm.weight", "expected type F32, F16, BF16 or a block type, file has I64");
    load(&f, DFLASH2);
    edit_add_tensor(&f, "d2t", RF_TYPE_F32, 1, dims, numbers, sizeof numbers);
    edit_add_tensor(&f, "output.weight", RF_TYPE_F32, 2, (const uint64_t[]){96, 4}, numbers, sizeof numbers);
    edit_find_tensor(&f, "d2t")->dims[0] = 4;
    refused(&f, true, "d2t", "expected type I64, file has F32");
}

static void test_shape_sentence(void **state)
{
    edit_file f;

    (void)state;
    load(&f, TARGET);
    edit_find_tensor(&f, "blk.2.attn_q.weight")->dims[1] = 192;
    refused(&f, false, "blk.2.attn_q.weight: expected [96, 384], file has [96, 192]", "");
}

static void test_unknown_tensors(void **state)
{
    static const float zeros[32];
    const uint64_t dims[] = {32};
    rf_error err;
    edit_file f;

    (void)state;
    load(&f, TARGET);
    edit_add_tensor(&f, "blk.2.attn_sinks.weight", RF_TYPE_F32, 1, dims, zeros, sizeof zeros);
    refused(&f, false, "blk.2.attn_sinks.weight", "does not know");
    load(&f, TARGET);
    edit_add_tensor(&f, "v.patch_embd.weight", RF_TYPE_F32, 1, dims, zeros, sizeof zeros);
    edit_add_tensor(&f, "mm.0.weight", RF_TYPE_F32, 1, dims, zeros, sizeof zeros);
    assert_int_equal(read_edited(&f, false, &err), 0);
}

/* DeltaNet value heads of 16 columns cannot be cut from blocks of 32. */
static void test_uneven_blocks(void **state)
{
    edit_tensor *t;
    edit_file f;

    (void)state;
    load(&f, TARGET);
    t = edit_find_tensor(&f, "blk.0.ssm_out.weight");
    t->type = RF_TYPE_Q8_0;
    t->n = 96 * 96 / 32 * 34;
    refused(&f, false, "blk.0.ssm_out.weight", "multiple of 32 columns, but this model's have 16");
}

/* ---- keys */

static void check_missing_keys(const char *file, bool drafter, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        edit_file f;

        load(&f, file);
        edit_drop_key(&f, keys[i]);
        refused(&f, drafter, keys[i], "missing");
    }
}

static void test_missing_keys(void **state)
{
    static const char *const target_keys[] = {
        "general.architecture",     "qwen35.block_count",          "qwen35.context_length",
        "qwen35.embedding_length",  "qwen35.feed_forward_length",  "qwen35.attention.head_count",
        "qwen35.rope.freq_base",    "qwen35.attention.key_length", "qwen35.attention.layer_norm_rms_epsilon",
        "qwen35.ssm.conv_kernel",   "qwen35.ssm.inner_size",       "qwen35.ssm.state_size",
        "qwen35.ssm.group_count",   "qwen35.ssm.time_step_rank",   "qwen35.full_attention_interval",
    };
    static const char *const drafter_keys[] = {
        "dflash.block_count",      "dflash.embedding_length",     "dflash.feed_forward_length",
        "dflash.rope.freq_base",   "dflash.attention.head_count", "dflash.attention.layer_norm_rms_epsilon",
        "dflash.block_size",       "dflash.attention.key_length", "dflash.target_layers",
        "dflash.conv_kernel_size", "dflash.conv_group_size",      "dflash.selector_rank",
        "dflash.selector_top_k",   "tokenizer.ggml.mask_token_id",
    };

    (void)state;
    check_missing_keys(TARGET, false, target_keys, sizeof target_keys / sizeof *target_keys);
    check_missing_keys(DFLASH2, true, drafter_keys, sizeof drafter_keys / sizeof *drafter_keys);
}

/* Whatever number a key holds, the file is refused with a sentence or read: nothing in between. */
static void check_numbers(const char *file, bool drafter, const char *prefix)
{
    static const uint64_t values[] = {0, 1, 7, 1u << 31, UINT32_MAX, UINT64_C(1) << 62, UINT64_MAX};
    edit_file f;
    size_t n;

    load(&f, file);
    n = f.n_keys;
    edit_free(&f);
    for (size_t i = 0; i < n; i++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            char key[96];
            rf_error err;

            load(&f, file);
            snprintf(key, sizeof key, "%s", f.keys[i].name);
            edit_set_u64(&f, key, values[v]);
            if (strncmp(key, prefix, strlen(prefix)) != 0)
                edit_free(&f);
            else if (read_edited(&f, drafter, &err) != 0)
                check_sentence(&err, "", "");
        }
}

static void test_hostile_numbers(void **state)
{
    (void)state;
    check_numbers(TARGET, false, "qwen35.");
    check_numbers(DFLASH2, true, "dflash.");
}

static void set_and_refuse(const char *file, bool drafter, const char *key, uint64_t value, const char *word)
{
    edit_file f;

    load(&f, file);
    edit_set_u64(&f, key, value);
    refused(&f, drafter, key, word);
}

static void test_bounds(void **state)
{
    edit_file f;

    (void)state;
    set_and_refuse(TARGET, false, "qwen35.nextn_predict_layers", 2, "2 MTP blocks");
    set_and_refuse(TARGET, false, "qwen35.block_count", UINT64_C(1) << 40, "expected 1 to 1024");
    set_and_refuse(TARGET, false, "qwen35.ssm.conv_kernel", 17, "expected 2 to 16");
    set_and_refuse(TARGET, false, "qwen35.attention.head_count_kv", 4, "does not divide");
    set_and_refuse(TARGET, false, "qwen35.ssm.time_step_rank", 7, "do not divide");
    set_and_refuse(TARGET, false, "qwen35.rope.dimension_count", 7, "even");
    set_and_refuse(TARGET, false, "qwen35.rope.dimension_count", 34, "expected 2 to 32");
    set_and_refuse(DFLASH2, true, "dflash.embedding_length", 97, "another model");
    set_and_refuse(DFLASH2, true, "dflash.conv_group_size", 7, "does not divide");
    set_and_refuse(DFLASH2, true, "dflash.attention.sliding_window", 5, "fewer than the block");
    set_and_refuse(DFLASH2, true, "dflash.vocab_size", 385, "another model");
    set_and_refuse(DFLASH2, true, "tokenizer.ggml.mask_token_id", 384, "expected 0 to 383");
    load(&f, DFLASH2);
    edit_set_bool(&f, "dflash.attention.causal", 1);
    refused(&f, true, "dflash.attention.causal", "true");
    load(&f, TARGET);
    edit_set_string(&f, "qwen35.rope.scaling.type", "yarn");
    refused(&f, false, "qwen35.rope.scaling.type", "yarn");
    load(&f, TARGET);
    edit_set_string(&f, "general.architecture", "llama");
    refused(&f, false, "expected qwen35", "llama");
}

static void test_taps(void **state)
{
    static const uint32_t outside[] = {4, 0, 7, 2};
    edit_file f;

    (void)state;
    load(&f, DFLASH2);
    edit_set_u32s(&f, "dflash.target_layers", outside, 4);
    refused(&f, true, "4, 0, 7, 2", "layers 0 to 5");
    load(&f, DFLASH2);
    edit_set_u32s(&f, "dflash.target_layers", outside, 0);
    refused(&f, true, "dflash.target_layers", "0 elements");
}

/* ---- legal variants */


typedef struct {
    float logits[N_VOCAB];
    int32_t dflash[N_DRAFTS], mtp[N_DRAFTS];
    rf_candidate cand[N_DRAFTS * 5];
    float scores[N_DRAFTS * 5];
} outcome;

static void run(const char *target_name, const char *drafter_name, outcome *out)
{
    pair_spec spec = {target_name, drafter_name, true, RF_TYPE_F32, 1, 256, 32};
    int32_t text[N_TEXT];
    pair p;

    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < N_TEXT; i++)
        text[i] = (int32_t)(i * 53 % 376);
    pair_open(&p, &spec);
    pair_prefill(&p, 0, 0, text, N_TEXT, 9, NULL);
    pair_logits(&p, 1, out->logits);
    if (drafter_name)
        pair_draft_dflash(&p, 0, N_TEXT, 17, N_DRAFTS, out->dflash, out->cand, out->scores, 5);
    pair_draft_mtp(&p, 0, N_TEXT, 17, N_DRAFTS, true, out->mtp);
    pair_close(&p);
}

static void same_target(edit_file *f)
{
    outcome plain, changed;

    edit_save(f, edited);
    edit_free(f);
    run(TARGET, NULL, &plain);
    run(edited, NULL, &changed);
    assert_memory_equal(&plain, &changed, sizeof plain);
}

static void same_drafter(edit_file *f, const char *drafter)
{
    outcome plain, changed;

    edit_save(f, edited);
    edit_free(f);
    run(TARGET, drafter, &plain);
    run(TARGET, edited, &changed);
    assert_memory_equal(&plain, &changed, sizeof plain);
}

/* Per-layer arrays, other integer widths, three rope sections. */
static void test_header_variants(void **state)
{
    static const unsigned char recurrent[] = {1, 1, 0, 1, 1, 0, 0};
    static const uint32_t kv_heads[] = {0, 0, 2, 0, 0, 2, 2}, sections[] = {2, 1, 1};
    edit_file f;

    (void)state;
    load(&f, TARGET);
    edit_drop_key(&f, "qwen35.full_attention_interval");
    edit_set_bools(&f, "qwen35.attention.recurrent_layers", recurrent, 7);
    edit_set_u8(&f, "qwen35.attention.head_count", 6);
    edit_set_u64(&f, "qwen35.embedding_length", 96);
    same_target(&f);
    load(&f, TARGET);
    edit_drop_key(&f, "qwen35.full_attention_interval");
    edit_set_u32s(&f, "qwen35.attention.head_count_kv", kv_heads, 7);
    edit_set_u32s(&f, "qwen35.rope.dimension_sections", sections, 3);
    same_target(&f);
}

static void add_copy(edit_file *f, const char *from, const char *name)
{
    const edit_tensor t = *edit_find_tensor(f, from); /* adding moves the list */

    edit_add_tensor(f, name, t.type, t.n_dims, t.dims, t.data, t.n);
}

/* The MTP block's own copies of what it would share give the same drafts; a tied model is one whose output matrix is
 * its table. */
static void test_sharing(void **state)
{
    edit_tensor *output, *table;
    outcome tied, untied;
    edit_file f;

    (void)state;
    load(&f, TARGET);
    add_copy(&f, "output.weight", "blk.6.nextn.shared_head_head.weight");
    add_copy(&f, "token_embd.weight", "blk.6.nextn.embed_tokens.weight");
    same_target(&f);
    load(&f, TARGET);
    edit_drop_tensor(&f, "output.weight");
    edit_save(&f, edited);
    run(edited, NULL, &tied);
    edit_free(&f);
    load(&f, TARGET);
    output = edit_find_tensor(&f, "output.weight");
    table = edit_find_tensor(&f, "token_embd.weight");
    memcpy(output->data, table->data, output->n);
    edit_save(&f, edited);
    run(edited, NULL, &untied);
    edit_free(&f);
    assert_memory_equal(&tied, &untied, sizeof tied);
}

/* Norms in BF16 are used as the float32 values they stand for. */
static void test_bf16_vectors(void **state)
{
    static const char *const names[] = {"blk.0.attn_norm.weight", "blk.1.ssm_conv1d.weight", "blk.3.ssm_a"};
    outcome rounded, stored;
    edit_file f;

    (void)state;
    load(&f, TARGET);
    for (size_t n = 0; n < 3; n++) {
        edit_tensor *t = edit_find_tensor(&f, names[n]);

        for (size_t i = 0; i < t->n; i += 4)
            t->data[i] = t->data[i + 1] = 0;
    }
    edit_save(&f, edited);
    run(edited, NULL, &rounded);
    for (size_t n = 0; n < 3; n++) {
        edit_tensor *t = edit_find_tensor(&f, names[n]);

        for (size_t i = 0; i < t->n / 4; i++)
            memmove(t->data + 2 * i, t->data + 4 * i + 2, 2);
        t->type = RF_TYPE_BF16;
        t->n /= 2;
    }
    edit_save(&f, edited);
    run(edited, NULL, &stored);
    edit_free(&f);
    assert_memory_equal(&rounded, &stored, sizeof rounded);
}

/* A drafter with its own table, output matrix and draft rows in reverse order. */
static void test_own_vocabulary(void **state)
{
    static int64_t d2t[N_VOCAB];
    const uint64_t dims[] = {N_VOCAB};
    edit_tensor *own;
    edit_file f, t;

    (void)state;
    load(&t, TARGET);
    load(&f, DFLASH2);
    own = edit_find_tensor(&t, "token_embd.weight");
    edit_add_tensor(&f, "token_embd.weight", own->type, 2, own->dims, own->data, own->n);
    own = edit_find_tensor(&t, "output.weight");
    own = edit_add_tensor(&f, "output.weight", own->type, 2, own->dims, own->data, own->n);
    for (size_t i = 0, bytes = own->n / N_VOCAB; i < N_VOCAB; i++) {
        d2t[i] = (int64_t)(N_VOCAB - 1 - i);
        memcpy(own->data + i * bytes, edit_find_tensor(&t, "output.weight")->data + (N_VOCAB - 1 - i) * bytes, bytes);
    }
    edit_add_tensor(&f, "d2t", RF_TYPE_I64, 1, dims, d2t, sizeof d2t);
    edit_free(&t);
    same_drafter(&f, DFLASH2);
}

static void test_bad_d2t(void **state)
{
    static int64_t d2t[N_VOCAB];
    const uint64_t dims[] = {N_VOCAB};
    edit_tensor *own;
    edit_file f, t;

    (void)state;
    load(&t, TARGET);
    load(&f, DFLASH2);
    own = edit_find_tensor(&t, "output.weight");
    edit_add_tensor(&f, "output.weight", own->type, 2, own->dims, own->data, own->n);
    edit_free(&t);
    d2t[7] = N_VOCAB;
    edit_add_tensor(&f, "d2t", RF_TYPE_I64, 1, dims, d2t, sizeof d2t);
    refused(&f, true, "d2t: row 7 stands for token 384", "");
    load(&f, DFLASH2);
    edit_add_tensor(&f, "d2t", RF_TYPE_I64, 1, dims, d2t, sizeof d2t);
    refused(&f, true, "d2t", "no output.weight");
}

/* The older architecture name: its keys, tensor names, and taps numbered by the layer left. */
static void test_older_drafter(void **state)
{
    static const uint32_t left[] = {0, 4, 2};
    char name[96];
    edit_file f;

    (void)state;
    load(&f, DFLASH1);
    edit_set_string(&f, "general.architecture", "dflash-draft");
    for (size_t i = 0; i < f.n_keys; i++)
        if (strncmp(f.keys[i].name, "dflash.", 7) == 0) {
            snprintf(name, sizeof name, "dflash-draft.%s", f.keys[i].name + 7);
            edit_rename_key(&f, f.keys[i].name, name);
        }
    edit_rename_key(&f, "dflash-draft.block_size", "dflash-draft.dflash.block_size");
    edit_drop_key(&f, "dflash-draft.target_layers");
    edit_set_u32s(&f, "dflash-draft.dflash.target_layer_ids", left, 3);
    edit_drop_key(&f, "tokenizer.ggml.mask_token_id");
    edit_set_u32(&f, "dflash-draft.dflash.mask_token_id", 383);
    edit_rename_tensor(&f, "fc.weight", "dflash_fc.weight");
    edit_rename_tensor(&f, "enc.output_norm.weight", "dflash_hidden_norm.weight");
    edit_rename_tensor(&f, "blk.0.ffn_norm.weight", "blk.0.post_attention_norm.weight");
    edit_rename_tensor(&f, "blk.1.ffn_norm.weight", "blk.1.post_attention_norm.weight");
    same_drafter(&f, DFLASH1);
}

/* A window that some layers have: the layers without one see more. */
static void test_window_pattern(void **state)
{
    static const unsigned char second[] = {0, 1}, none[] = {0, 0};
    outcome both, one;
    edit_file f;

    (void)state;
    run(TARGET, DFLASH2, &both);
    load(&f, DFLASH2);
    edit_set_bools(&f, "dflash.attention.sliding_window_pattern", second, 2);
    edit_save(&f, edited);
    run(TARGET, edited, &one);
    assert_memory_not_equal(&both, &one, sizeof both);
    edit_drop_key(&f, "dflash.attention.sliding_window_pattern");
    edit_save(&f, edited);
    run(TARGET, edited, &one);
    assert_memory_equal(&both, &one, sizeof both);
    edit_set_bools(&f, "dflash.attention.sliding_window_pattern", none, 2);
    edit_save(&f, edited);
    run(TARGET, edited, &both);
    edit_drop_key(&f, "dflash.attention.sliding_window_pattern");
    edit_drop_key(&f, "dflash.attention.sliding_window");
    edit_save(&f, edited);
    run(TARGET, edited, &one);
    assert_memory_equal(&both, &one, sizeof both);
    edit_free(&f);
}

/* A context that no memory holds: a sentence, and nothing left behind (the backend's own scratch may grow once). */
static void test_no_memory(void **state)
{
    size_t begin[RF_N_AXES][2];
    rf_backend *b = rf_cpu_create(1, true, "auto", NULL);
    rf_comm *self = rf_comm_create_self(b);
    const rf_model_sizes sizes = {1, (size_t)1 << 46, 16, RF_TYPE_F32, RF_TYPE_F32};
    const rf_qwen35_options options = {true, NULL, 0};
    uint64_t held[2];
    rf_shard shard;

    (void)state;
    whole_shard(&target, true, NULL, begin, &shard);
    for (size_t i = 0; i < 2; i++) {
        const rf_model_env env = {b, self, self, &shard, sizes};
        rf_error err = {0};

        assert_null(rf_qwen35_create(&env, target_file, &target, &options, NULL, NULL, &err));
        assert_int_equal(err.code, RF_ERR_MEMORY);
        assert_true(err.text[0] && !strchr(err.text, '\n'));
        held[i] = b->ops->stats(b).allocated_bytes;
    }
    rf_comm_destroy(self);
    b->ops->destroy(b);
    assert_true(held[0] == held[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_tensors), cmocka_unit_test(test_wrong_shapes),
        cmocka_unit_test(test_wrong_types),     cmocka_unit_test(test_shape_sentence),  cmocka_unit_test(test_integers),
        cmocka_unit_test(test_unknown_tensors), cmocka_unit_test(test_uneven_blocks),
        cmocka_unit_test(test_missing_keys),    cmocka_unit_test(test_hostile_numbers),
        cmocka_unit_test(test_bounds),          cmocka_unit_test(test_taps),
        cmocka_unit_test(test_bad_d2t),         cmocka_unit_test(test_header_variants),
        cmocka_unit_test(test_sharing),         cmocka_unit_test(test_bf16_vectors),
        cmocka_unit_test(test_own_vocabulary),  cmocka_unit_test(test_older_drafter),
        cmocka_unit_test(test_window_pattern),  cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests_name("model files", tests, set_up, tear_down);
}
