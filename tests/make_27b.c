/* Writes files of the Qwen3.8-27B shape: true headers, then a hole up to the full length (no weights). For the plan, which reads headers only.
 * usage: make_27b TARGET.gguf DRAFTER.gguf */
#include "config.h"

#include <stdio.h>

#include "gguf_writer.h"

enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q8_0 = 8 };

#define VOCAB 248320
#define EMBD 5120
#define FFN 17408

typedef rf_gguf_writer writer;

static void tensor(writer *w, uint32_t type, const char *name, size_t n_dims, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t dims[3] = {a, b, c}, elements = a * (n_dims > 1 ? b : 1) * (n_dims > 2 ? c : 1);

    rf_gguf_writer_tensor(w, name, n_dims, dims, type,
                          type == TYPE_Q8_0 ? elements / 32 * 34 : elements * (type == TYPE_F16 ? 2 : 4));
}

static void block(writer *w, int i, const char *name, uint32_t type, size_t n_dims, uint64_t a, uint64_t b, uint64_t c)
{
    char full[96];

    snprintf(full, sizeof full, "blk.%d.%s", i, name);
    tensor(w, type, full, n_dims, a, b, c);
}

static int end(writer *w)
{
    rf_error err;

    if (rf_gguf_writer_start_data(w, 0, &err) == 0 && rf_gguf_writer_finish(w, &err) == 0)
        return 0;
    fprintf(stderr, "%s\n", err.text);
    return 1;
}

static void vocabulary(rf_gguf_bytes *k)
{
    rf_gguf_key_string(k, "tokenizer.ggml.model", "gpt2");
    rf_gguf_key_string(k, "tokenizer.ggml.pre", "qwen35");
    rf_gguf_key_array(k, "tokenizer.ggml.tokens", RF_GGUF_STRING, VOCAB);
    for (int i = 0; i < VOCAB; i++) {
        char name[24];

        snprintf(name, sizeof name, "t%d", i);
        rf_gguf_put_string(k, name);
    }
    rf_gguf_key_u32(k, "tokenizer.ggml.mask_token_id", 248070);
}

static void feed_forward(writer *w, int i)
{
    block(w, i, "ffn_gate.weight", TYPE_Q8_0, 2, EMBD, FFN, 0);
    block(w, i, "ffn_up.weight", TYPE_Q8_0, 2, EMBD, FFN, 0);
    block(w, i, "ffn_down.weight", TYPE_Q8_0, 2, FFN, EMBD, 0);
}

static void full_attention(writer *w, int i)
{
    block(w, i, "attn_q.weight", TYPE_Q8_0, 2, EMBD, 2 * 24 * 256, 0);
    block(w, i, "attn_k.weight", TYPE_Q8_0, 2, EMBD, 4 * 256, 0);
    block(w, i, "attn_v.weight", TYPE_Q8_0, 2, EMBD, 4 * 256, 0);
    block(w, i, "attn_output.weight", TYPE_Q8_0, 2, 24 * 256, EMBD, 0);
    block(w, i, "attn_q_norm.weight", TYPE_F32, 1, 256, 0, 0);
    block(w, i, "attn_k_norm.weight", TYPE_F32, 1, 256, 0, 0);
}

static void delta_net(writer *w, int i)
{
    block(w, i, "attn_qkv.weight", TYPE_Q8_0, 2, EMBD, 2 * 16 * 128 + 48 * 128, 0);
    block(w, i, "attn_gate.weight", TYPE_Q8_0, 2, EMBD, 48 * 128, 0);
    block(w, i, "ssm_conv1d.weight", TYPE_F32, 2, 4, 2 * 16 * 128 + 48 * 128, 0);
    block(w, i, "ssm_dt.bias", TYPE_F32, 1, 48, 0, 0);
    block(w, i, "ssm_a", TYPE_F32, 1, 48, 0, 0);
    block(w, i, "ssm_alpha.weight", TYPE_Q8_0, 2, EMBD, 48, 0);
    block(w, i, "ssm_beta.weight", TYPE_Q8_0, 2, EMBD, 48, 0);
    block(w, i, "ssm_norm.weight", TYPE_F32, 1, 128, 0, 0);
    block(w, i, "ssm_out.weight", TYPE_Q8_0, 2, 48 * 128, EMBD, 0);
}

static int target(const char *path)
{
    static const uint32_t sections[4] = {11, 11, 10, 0};
    rf_error err;
    writer *w = rf_gguf_writer_open(path, &err);
    rf_gguf_bytes *k;

    if (!w)
        return 1;
    k = rf_gguf_writer_keys(w);
    rf_gguf_key_string(k, "general.architecture", "qwen35");
    rf_gguf_key_u32(k, "qwen35.block_count", 65);
    rf_gguf_key_u32(k, "qwen35.nextn_predict_layers", 1);
    rf_gguf_key_u32(k, "qwen35.context_length", 262144);
    rf_gguf_key_u32(k, "qwen35.embedding_length", EMBD);
    rf_gguf_key_u32(k, "qwen35.feed_forward_length", FFN);
    rf_gguf_key_u32(k, "qwen35.attention.head_count", 24);
    rf_gguf_key_u32(k, "qwen35.attention.head_count_kv", 4);
    rf_gguf_key_u32(k, "qwen35.attention.key_length", 256);
    rf_gguf_key_u32(k, "qwen35.attention.value_length", 256);
    rf_gguf_key_f32(k, "qwen35.attention.layer_norm_rms_epsilon", 1e-6f);
    rf_gguf_key_u32(k, "qwen35.rope.dimension_count", 64);
    rf_gguf_key_f32(k, "qwen35.rope.freq_base", 1e7f);
    rf_gguf_key_u32s(k, "qwen35.rope.dimension_sections", sections, 4);
    rf_gguf_key_u32(k, "qwen35.ssm.conv_kernel", 4);
    rf_gguf_key_u32(k, "qwen35.ssm.state_size", 128);
    rf_gguf_key_u32(k, "qwen35.ssm.group_count", 16);
    rf_gguf_key_u32(k, "qwen35.ssm.time_step_rank", 48);
    rf_gguf_key_u32(k, "qwen35.ssm.inner_size", 48 * 128);
    rf_gguf_key_u32(k, "qwen35.full_attention_interval", 4);
    vocabulary(k);
    tensor(w, TYPE_Q8_0, "token_embd.weight", 2, EMBD, VOCAB, 0);
    tensor(w, TYPE_F32, "output_norm.weight", 1, EMBD, 0, 0);
    tensor(w, TYPE_Q8_0, "output.weight", 2, EMBD, VOCAB, 0);
    for (int i = 0; i < 65; i++) {
        block(w, i, "attn_norm.weight", TYPE_F32, 1, EMBD, 0, 0);
        block(w, i, "post_attention_norm.weight", TYPE_F32, 1, EMBD, 0, 0);
        if (i == 64 || i % 4 == 3)
            full_attention(w, i);
        else
            delta_net(w, i);
        feed_forward(w, i);
    }
    block(w, 64, "nextn.eh_proj.weight", TYPE_Q8_0, 2, 2 * EMBD, EMBD, 0);
    block(w, 64, "nextn.enorm.weight", TYPE_F32, 1, EMBD, 0, 0);
    block(w, 64, "nextn.hnorm.weight", TYPE_F32, 1, EMBD, 0, 0);
    block(w, 64, "nextn.shared_head_norm.weight", TYPE_F32, 1, EMBD, 0, 0);
    tensor(w, TYPE_F16, "v.blk.0.attn_q.weight", 2, 1152, 1152, 0); /* vision: present, not loaded */
    return end(w);
}

static void drafter_block(writer *w, int i)
{
    block(w, i, "attn_norm.weight", TYPE_F32, 1, EMBD, 0, 0);
    block(w, i, "ffn_norm.weight", TYPE_F32, 1, EMBD, 0, 0);
    block(w, i, "attn_q.weight", TYPE_Q8_0, 2, EMBD, 32 * 128, 0);
    block(w, i, "attn_k.weight", TYPE_Q8_0, 2, EMBD, 8 * 128, 0);
    block(w, i, "attn_v.weight", TYPE_Q8_0, 2, EMBD, 8 * 128, 0);
    block(w, i, "attn_output.weight", TYPE_Q8_0, 2, 32 * 128, EMBD, 0);
    block(w, i, "attn_q_norm.weight", TYPE_F32, 1, 128, 0, 0);
    block(w, i, "attn_k_norm.weight", TYPE_F32, 1, 128, 0, 0);
    feed_forward(w, i);
    block(w, i, "attn_conv_base", TYPE_F32, 3, EMBD, 2, 2);
    block(w, i, "ffn_conv_base", TYPE_F32, 3, EMBD, 2, 2);
    block(w, i, "attn_conv_proj.weight", TYPE_Q8_0, 2, EMBD, 4 * EMBD / 16, 0);
    block(w, i, "ffn_conv_proj.weight", TYPE_Q8_0, 2, EMBD, 4 * EMBD / 16, 0);
}

static int drafter(const char *path)
{
    static const uint32_t taps[5] = {6, 20, 34, 48, 62};
    rf_error err;
    writer *w = rf_gguf_writer_open(path, &err);
    rf_gguf_bytes *k;

    if (!w)
        return 1;
    k = rf_gguf_writer_keys(w);
    rf_gguf_key_string(k, "general.architecture", "dflash");
    rf_gguf_key_u32(k, "dflash.block_count", 5);
    rf_gguf_key_u32(k, "dflash.context_length", 262144);
    rf_gguf_key_u32(k, "dflash.embedding_length", EMBD);
    rf_gguf_key_u32(k, "dflash.feed_forward_length", FFN);
    rf_gguf_key_u32(k, "dflash.attention.head_count", 32);
    rf_gguf_key_u32(k, "dflash.attention.head_count_kv", 8);
    rf_gguf_key_u32(k, "dflash.attention.key_length", 128);
    rf_gguf_key_u32(k, "dflash.attention.value_length", 128);
    rf_gguf_key_f32(k, "dflash.attention.layer_norm_rms_epsilon", 1e-6f);
    rf_gguf_key_u32(k, "dflash.rope.dimension_count", 128);
    rf_gguf_key_f32(k, "dflash.rope.freq_base", 1e7f);
    rf_gguf_key_bool(k, "dflash.attention.causal", 0);
    rf_gguf_key_u32(k, "dflash.attention.sliding_window", 2048);
    rf_gguf_key_u32(k, "dflash.vocab_size", VOCAB);
    rf_gguf_key_u32(k, "dflash.block_size", 8);
    rf_gguf_key_u32s(k, "dflash.target_layers", taps, 5);
    rf_gguf_key_u32(k, "dflash.conv_kernel_size", 2);
    rf_gguf_key_u32(k, "dflash.conv_group_size", 16);
    rf_gguf_key_u32(k, "dflash.selector_rank", 256);
    rf_gguf_key_u32(k, "dflash.selector_top_k", 16);
    rf_gguf_key_u32(k, "tokenizer.ggml.mask_token_id", 248070);
    tensor(w, TYPE_Q8_0, "fc.weight", 2, 5 * EMBD, EMBD, 0);
    tensor(w, TYPE_F32, "enc.output_norm.weight", 1, EMBD, 0, 0);
    tensor(w, TYPE_F32, "output_norm.weight", 1, EMBD, 0, 0);
    tensor(w, TYPE_Q8_0, "selector_hidden.weight", 2, EMBD, 256, 0);
    tensor(w, TYPE_F16, "selector_predecessor.weight", 2, 256, VOCAB, 0);
    tensor(w, TYPE_F16, "selector_successor.weight", 2, 256, VOCAB, 0);
    for (int i = 0; i < 5; i++)
        drafter_block(w, i);
    return end(w);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: make_27b TARGET.gguf DRAFTER.gguf\n");
        return 2;
    }
    return target(argv[1]) || drafter(argv[2]);
}
