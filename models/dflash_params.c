/* Architecture `dflash`: the header, read and checked against the target. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "dflash_impl.h"
#include "log.h"
#include "meta.h"
#include "qwen35_impl.h"

/* Older files nest the drafter's own keys one level deeper. */
static const char *own_key(const rf_dflash_params *p, const char *nested, const char *plain)
{
    return p->older ? nested : plain;
}

static void read_sizes(rf_meta *k, const rf_qwen35_params *target, rf_dflash_params *p)
{
    p->n_layer = rf_meta_count(k, "block_count", 1, 256);
    p->n_embd = rf_meta_count(k, "embedding_length", 1, 1 << 17);
    if (p->n_embd != target->n_embd)
        rf_meta_reject(k, "embedding_length", "%zu, but the target's is %zu: this drafter is for another model",
                       p->n_embd, target->n_embd);
    p->n_ff = rf_meta_count(k, "feed_forward_length", 1, 1 << 20);
    p->eps = (float)rf_meta_number(k, "attention.layer_norm_rms_epsilon", 1e-12, 0.1);
    p->n_head = rf_meta_count(k, "attention.head_count", 1, 1024);
    p->n_head_kv = rf_meta_count_or(k, "attention.head_count_kv", p->n_head, 1, 1024);
    p->head_dim = rf_meta_count(k, "attention.key_length", 2, 1024);
    if (rf_meta_count_or(k, "attention.value_length", p->head_dim, 1, 1024) != p->head_dim)
        rf_meta_reject(k, "attention.value_length", "differs from key_length (%zu), expected the same", p->head_dim);
    if (p->n_head % p->n_head_kv)
        rf_meta_reject(k, "attention.head_count_kv", "%zu does not divide the %zu query heads", p->n_head_kv,
                       p->n_head);
    if (rf_meta_flag_or(k, "attention.causal", false))
        rf_meta_reject(k, "attention.causal", "true: only drafters whose block sees itself whole are supported");
    rf_meta_rope(k, p->head_dim, &p->n_rot, &p->rope_base);
}

static void list_text(const size_t *list, size_t n, char *text, size_t size)
{
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < n && at + 12 < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%zu", i ? ", " : "", list[i]);
}

/* Entering layer L; older files number the layer whose output is tapped, so L = id + 1. */
static void read_taps(rf_meta *k, const rf_qwen35_params *target, rf_dflash_params *p)
{
    const char *key = own_key(p, "dflash.target_layer_ids", "target_layers");
    char text[160];

    p->n_taps = rf_meta_list(k, key, p->taps, sizeof p->taps / sizeof *p->taps, 1 << 20);
    if (k->failed)
        return;
    for (size_t i = 0; p->older && i < p->n_taps; i++)
        p->taps[i]++;
    list_text(p->taps, p->n_taps, text, sizeof text);
    for (size_t i = 0; i < p->n_taps; i++)
        if (p->taps[i] > target->n_layer) {
            rf_meta_reject(k, key,
                           "the drafter reads what enters target layers %s, but the target has layers 0 to %zu and the "
                           "state after them (%zu)",
                           text, target->n_layer - 1, target->n_layer);
            return;
        }
    if (p->older)
        rf_log_info("drafter: reads what enters target layers %s (an older file, numbered by the layer left: ids + 1)",
                    text);
    else
        rf_log_verbose("drafter: reads what enters target layers %s", text);
}

/* The pattern says which layers are windowed; a scalar or none means all. A window shorter than the block would cut the
 * block itself, which no drafter was trained with. */
static void read_windows(rf_meta *k, rf_dflash_params *p)
{
    size_t window = rf_meta_count_or(k, "attention.sliding_window", 0, 0, 1 << 30);
    unsigned char *windowed = malloc(p->n_layer);

    p->window = calloc(p->n_layer, sizeof *p->window);
    if (!p->window || !windowed) {
        k->failed = true;
        rf_fail(k->err, RF_ERR_MEMORY, "no memory for %zu layers", p->n_layer);
        free(windowed);
        return;
    }
    memset(windowed, 1, p->n_layer);
    if (rf_meta_is_array(k, "attention.sliding_window_pattern"))
        rf_meta_flags(k, "attention.sliding_window_pattern", windowed, p->n_layer, p->n_layer);
    for (size_t i = 0; i < p->n_layer; i++)
        p->window[i] = windowed[i] ? window : 0;
    if (window && window < p->block_size)
        rf_meta_reject(k, "attention.sliding_window", "%zu positions are fewer than the block's %zu", window,
                       p->block_size);
    free(windowed);
}

static void read_drafting(rf_meta *k, const rf_qwen35_params *target, rf_dflash_params *p)
{
    p->block_size = rf_meta_count(k, own_key(p, "dflash.block_size", "block_size"), 2, 256);
    p->logit_scale = (float)rf_meta_number_or(k, "logit_scale", 1, 1e-6, 1e6);
    p->logit_cap = (float)rf_meta_number_or(k, "final_logit_softcapping", 0, 0, 1e6);
    p->embedding_scale = (float)rf_meta_number_or(k, "embedding_scale", 1, 1e-6, 1e6);
    p->v2 = rf_gguf_find(k->file, "selector_hidden.weight") != NULL;
    if (p->v2) {
        p->conv_kernel = rf_meta_count(k, own_key(p, "dflash.conv_kernel_size", "conv_kernel_size"), 1, 16);
        p->conv_group = rf_meta_count(k, own_key(p, "dflash.conv_group_size", "conv_group_size"), 1, p->n_embd);
        p->selector_rank = rf_meta_count(k, own_key(p, "dflash.selector_rank", "selector_rank"), 1, 4096);
        p->selector_top_k = rf_meta_count(k, own_key(p, "dflash.selector_top_k", "selector_top_k"), 1, 64);
        if (p->n_embd % p->conv_group)
            rf_meta_reject(k, "conv_group_size", "%zu does not divide the embedding length %zu", p->conv_group,
                           p->n_embd);
    }
    if (p->older && rf_meta_has(k, "dflash.mask_token_id")) {
        p->mask_token = (int32_t)rf_meta_count(k, "dflash.mask_token_id", 0, target->n_vocab - 1);
    } else {
        rf_meta tokenizer = {.file = k->file, .prefix = "tokenizer.ggml.", .failed = k->failed, .err = k->err};

        p->mask_token = (int32_t)rf_meta_count(&tokenizer, "mask_token_id", 0, target->n_vocab - 1);
        k->failed = tokenizer.failed;
    }
}

static int check_d2t(const rf_gguf *file, const rf_tensor *t, size_t n_vocab, rf_error *err)
{
    for (size_t i = 0; i < t->dims[0]; i++) {
        int64_t token;

        memcpy(&token, (const char *)t->data + i * sizeof token, sizeof token);
        if (token < 0 || (uint64_t)token >= n_vocab)
            return rf_fail(err, RF_ERR_FILE, "%s: d2t: row %zu stands for token %lld, but the target has %zu tokens",
                           rf_gguf_path(file), i, (long long)token, n_vocab);
    }
    return 0;
}

/* Own embedding, output matrix and the table from its rows to tokens are optional; the target's serve otherwise. */
static void read_vocabulary(rf_meta *k, const rf_qwen35_params *target, rf_dflash_params *p)
{
    const rf_tensor *d2t = rf_gguf_find(k->file, "d2t");

    p->n_target_vocab = target->n_vocab;
    p->own_embd = rf_gguf_find(k->file, "token_embd.weight") != NULL;
    p->own_output = rf_gguf_find(k->file, "output.weight") != NULL;
    p->has_d2t = d2t != NULL;
    p->n_draft_vocab = target->n_vocab;
    if (p->own_output)
        p->n_draft_vocab = rf_bind_n_rows(k->file, "output.weight", target->n_vocab, k->err);
    if (!p->n_draft_vocab)
        k->failed = true;
    else if (d2t && !p->own_output)
        rf_meta_reject(k, "d2t", "a table from draft rows to tokens, but no output.weight of its own");
    else if (!d2t && p->n_draft_vocab != target->n_vocab)
        rf_meta_reject(k, "output.weight", "%zu rows for %zu tokens, and no d2t table", p->n_draft_vocab,
                       target->n_vocab);
    else if (!p->own_output && rf_meta_count_or(k, "vocab_size", target->n_vocab, 1, 1 << 24) != target->n_vocab)
        rf_meta_reject(k, "vocab_size", "differs from the target's %zu tokens: this drafter is for another model",
                       target->n_vocab);
}

static int check_tensors(const rf_gguf *file, const rf_dflash_params *p, rf_error *err)
{
    rf_axis axes[RF_N_AXES] = {0};
    size_t n;
    rf_tensor_want *wants = rf_dflash_tensors(p, &n, err);
    int status;

    if (!wants)
        return -1;
    rf_dflash_axes(p, axes);
    status = rf_bind_check(file, wants, n, axes, err);
    free(wants);
    if (status == 0 && p->has_d2t)
        status = check_d2t(file, rf_gguf_find(file, "d2t"), p->n_target_vocab, err);
    return status;
}

int rf_dflash_params_read(const rf_gguf *file, const rf_qwen35_params *target, rf_dflash_params *p, rf_error *err)
{
    rf_meta k = {.file = file, .err = err};

    *p = (rf_dflash_params){0};
    p->older = rf_meta_architecture_is(&k, "dflash-draft");
    k.prefix = p->older ? "dflash-draft." : "dflash.";
    if (!p->older)
        rf_meta_architecture(&k, "dflash");
    read_sizes(&k, target, p);
    if (!k.failed)
        read_drafting(&k, target, p);
    if (!k.failed)
        read_taps(&k, target, p);
    if (!k.failed)
        read_windows(&k, p);
    if (!k.failed)
        read_vocabulary(&k, target, p);
    if (!k.failed && check_tensors(file, p, err) == 0)
        return 0;
    rf_dflash_params_free(p);
    return -1;
}

void rf_dflash_params_free(rf_dflash_params *p)
{
    free(p->window);
    *p = (rf_dflash_params){0};
}
