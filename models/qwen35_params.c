/* Architecture `qwen35`: the header, read and checked. */
#include <stdio.h>
#include <stdlib.h>

#include "bind.h"
#include "meta.h"
#include "qwen35_impl.h"

static void read_sizes(rf_meta *k, rf_qwen35_params *p)
{
    size_t blocks = rf_meta_count(k, "block_count", 1, 1024);

    p->n_mtp = rf_meta_count_or(k, "nextn_predict_layers", 0, 0, blocks);
    if (p->n_mtp > 1)
        rf_meta_reject(k, "nextn_predict_layers", "%zu MTP blocks; this program knows models with one", p->n_mtp);
    else if (p->n_mtp == blocks)
        rf_meta_reject(k, "block_count", "no block is left for the trunk");
    else
        p->n_layer = blocks - p->n_mtp;
    p->n_embd = rf_meta_count(k, "embedding_length", 1, 1 << 17);
    p->n_ff = rf_meta_count(k, "feed_forward_length", 1, 1 << 20);
    p->n_ctx_train = rf_meta_count(k, "context_length", 1, 1 << 30);
    p->eps = (float)rf_meta_number(k, "attention.layer_norm_rms_epsilon", 1e-12, 0.1);
}

static void read_attention(rf_meta *k, rf_qwen35_params *p)
{
    p->n_head = rf_meta_count(k, "attention.head_count", 1, 1024);
    p->n_head_kv = rf_meta_count_or(k, "attention.head_count_kv", p->n_head, 1, 1024);
    p->head_dim = rf_meta_count(k, "attention.key_length", 2, 1024);
    if (rf_meta_count_or(k, "attention.value_length", p->head_dim, 1, 1024) != p->head_dim)
        rf_meta_reject(k, "attention.value_length", "differs from key_length (%zu), expected the same", p->head_dim);
    if (p->n_head % p->n_head_kv)
        rf_meta_reject(k, "attention.head_count_kv", "%zu does not divide the %zu query heads", p->n_head_kv,
                       p->n_head);
    rf_meta_rope(k, p->head_dim, &p->n_rot, &p->rope_base);
}

static void read_delta(rf_meta *k, rf_qwen35_params *p)
{
    p->conv_kernel = rf_meta_count(k, "ssm.conv_kernel", 2, 16);
    p->state_size = rf_meta_count(k, "ssm.state_size", 1, 1024);
    p->n_key_heads = rf_meta_count(k, "ssm.group_count", 1, 1024);
    p->n_value_heads = rf_meta_count(k, "ssm.time_step_rank", 1, 4096);
    if (p->n_value_heads % p->n_key_heads)
        rf_meta_reject(k, "ssm.time_step_rank", "%zu value heads do not divide among %zu key heads", p->n_value_heads,
                       p->n_key_heads);
    if (rf_meta_count(k, "ssm.inner_size", 1, 1 << 22) != p->n_value_heads * p->state_size)
        rf_meta_reject(k, "ssm.inner_size", "expected %zu value heads of %zu", p->n_value_heads, p->state_size);
}

/* Which layers are full attention: named one by one, or by an interval, or by having KV heads. */
static void read_layers(rf_meta *k, rf_qwen35_params *p)
{
    size_t blocks = p->n_layer + p->n_mtp, interval;

    p->full_attention = calloc(blocks + 1, 1);
    if (!p->full_attention) {
        k->failed = true;
        rf_fail(k->err, RF_ERR_MEMORY, "no memory for %zu layers", blocks);
    } else if (rf_meta_has(k, "attention.recurrent_layers")) {
        rf_meta_flags(k, "attention.recurrent_layers", p->full_attention, p->n_layer, blocks);
        for (size_t i = 0; i < p->n_layer; i++)
            p->full_attention[i] = !p->full_attention[i];
    } else if (!rf_meta_has(k, "full_attention_interval") && rf_meta_is_array(k, "attention.head_count_kv")) {
        rf_meta_flags(k, "attention.head_count_kv", p->full_attention, p->n_layer, blocks);
    } else {
        interval = rf_meta_count(k, "full_attention_interval", 1, 1024);
        for (size_t i = 0; i < p->n_layer; i++)
            p->full_attention[i] = (i + 1) % interval == 0;
    }
}

static bool has_tensor(const rf_gguf *file, size_t block, const char *suffix)
{
    char name[64];

    snprintf(name, sizeof name, "blk.%zu.%s", block, suffix);
    return rf_gguf_find(file, name) != NULL;
}

/* What only the tensors tell: the vocabulary, and which optional tensors are there. */
static void read_tensors(rf_meta *k, rf_qwen35_params *p)
{
    p->n_vocab = rf_bind_n_rows(k->file, "token_embd.weight", 1 << 24, k->err);
    if (!p->n_vocab)
        k->failed = true;
    p->tied = !rf_gguf_find(k->file, "output.weight");
    if (!p->n_mtp)
        return;
    p->mtp_own_embd = has_tensor(k->file, p->n_layer, "nextn.embed_tokens.weight");
    p->mtp_own_head = has_tensor(k->file, p->n_layer, "nextn.shared_head_head.weight");
    p->mtp_own_norm = has_tensor(k->file, p->n_layer, "nextn.shared_head_norm.weight");
}

static int check_tensors(const rf_gguf *file, bool want_mtp, const rf_qwen35_params *p, rf_error *err)
{
    rf_axis axes[RF_N_AXES] = {0};
    size_t n;
    rf_tensor_want *wants = rf_qwen35_tensors(p, want_mtp, &n, err);
    int status;

    if (!wants)
        return -1;
    rf_qwen35_axes(p, want_mtp, axes);
    status = rf_bind_check(file, wants, n, axes, err);
    free(wants);
    return status;
}

int rf_qwen35_params_read(const rf_gguf *file, bool want_mtp, rf_qwen35_params *p, rf_error *err)
{
    rf_meta k = {.file = file, .prefix = "qwen35.", .err = err};

    *p = (rf_qwen35_params){0};
    rf_meta_architecture(&k, "qwen35");
    read_sizes(&k, p);
    read_attention(&k, p);
    read_delta(&k, p);
    if (!k.failed)
        read_layers(&k, p);
    if (!k.failed)
        read_tensors(&k, p);
    if (!k.failed && want_mtp && !p->n_mtp) {
        k.failed = true;
        rf_fail(err, RF_ERR_FILE, "%s: the model has no MTP block, which --spec-type draft-mtp needs",
                rf_gguf_path(file));
    }
    if (!k.failed && check_tensors(file, want_mtp, p, err) == 0)
        return 0;
    rf_qwen35_params_free(p);
    return -1;
}

void rf_qwen35_params_free(rf_qwen35_params *p)
{
    free(p->full_attention);
    *p = (rf_qwen35_params){0};
}
