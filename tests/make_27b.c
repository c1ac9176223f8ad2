/* Writes files of the Qwen3.8-27B shape: true headers, then a hole up to the full length (no weights). For the plan, which reads headers only.
 * usage: make_27b TARGET.gguf DRAFTER.gguf */
#include "config.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { U32 = 4, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };
enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q8_0 = 8 };

#define VOCAB 248320
#define EMBD 5120
#define FFN 17408

typedef struct {
    FILE *keys, *infos;
    char *key_bytes, *info_bytes;
    size_t key_size, info_size;
    uint64_t n_keys, n_tensors, data;
} writer;

static void put(FILE *f, const void *p, size_t n)
{
    if (fwrite(p, 1, n, f) != n)
        exit(1);
}

static void put_u32(FILE *f, uint32_t v)
{
    put(f, &v, sizeof v);
}

static void put_u64(FILE *f, uint64_t v)
{
    put(f, &v, sizeof v);
}

static void put_string(FILE *f, const char *s)
{
    put_u64(f, strlen(s));
    put(f, s, strlen(s));
}

static void key(writer *w, const char *name, uint32_t type)
{
    put_string(w->keys, name);
    put_u32(w->keys, type);
    w->n_keys++;
}

static void key_u32(writer *w, const char *name, uint32_t v)
{
    key(w, name, U32);
    put_u32(w->keys, v);
}

static void key_f32(writer *w, const char *name, float v)
{
    key(w, name, F32);
    put(w->keys, &v, sizeof v);
}

static void key_bool(writer *w, const char *name, unsigned char v)
{
    key(w, name, BOOL);
    put(w->keys, &v, 1);
}

static void key_string(writer *w, const char *name, const char *v)
{
    key(w, name, STRING);
    put_string(w->keys, v);
}

static void key_u32s(writer *w, const char *name, const uint32_t *v, uint64_t n)
{
    key(w, name, ARRAY);
    put_u32(w->keys, U32);
    put_u64(w->keys, n);
    put(w->keys, v, n * sizeof *v);
}

static void tensor(writer *w, uint32_t type, const char *name, uint32_t n_dims, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t elements = a * (n_dims > 1 ? b : 1) * (n_dims > 2 ? c : 1);
    uint64_t bytes = type == TYPE_Q8_0 ? elements / 32 * 34 : elements * (type == TYPE_F16 ? 2 : 4);

    put_string(w->infos, name);
    put_u32(w->infos, n_dims);
    put_u64(w->infos, a);
    if (n_dims > 1)
        put_u64(w->infos, b);
    if (n_dims > 2)
        put_u64(w->infos, c);
    put_u32(w->infos, type);
    put_u64(w->infos, w->data);
    w->data += (bytes + 31) / 32 * 32;
    w->n_tensors++;
}

static void block(writer *w, int i, const char *name, uint32_t type, uint32_t n_dims, uint64_t a, uint64_t b, uint64_t c)
{
    char full[96];

    snprintf(full, sizeof full, "blk.%d.%s", i, name);
    tensor(w, type, full, n_dims, a, b, c);
}

static void begin(writer *w)
{
    memset(w, 0, sizeof *w);
    w->keys = open_memstream(&w->key_bytes, &w->key_size);
    w->infos = open_memstream(&w->info_bytes, &w->info_size);
}

static int end(writer *w, const char *path)
{
    FILE *f = fopen(path, "wb");
    uint64_t size;

    fclose(w->keys);
    fclose(w->infos);
    if (!f)
        return 1;
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, w->n_tensors);
    put_u64(f, w->n_keys);
    put(f, w->key_bytes, w->key_size);
    put(f, w->info_bytes, w->info_size);
    size = (24 + w->key_size + w->info_size + 31) / 32 * 32 + w->data;
    free(w->key_bytes);
    free(w->info_bytes);
    if (fflush(f) != 0 || ftruncate(fileno(f), (off_t)size) != 0 || fclose(f) != 0)
        return 1;
    return 0;
}

static void vocabulary(writer *w)
{
    key_string(w, "tokenizer.ggml.model", "gpt2");
    key_string(w, "tokenizer.ggml.pre", "qwen35");
    key(w, "tokenizer.ggml.tokens", ARRAY);
    put_u32(w->keys, STRING);
    put_u64(w->keys, VOCAB);
    for (int i = 0; i < VOCAB; i++) {
        char name[24];

        snprintf(name, sizeof name, "t%d", i);
        put_string(w->keys, name);
    }
    key_u32(w, "tokenizer.ggml.mask_token_id", 248070);
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
    writer w;

    begin(&w);
    key_string(&w, "general.architecture", "qwen35");
    key_u32(&w, "qwen35.block_count", 65);
    key_u32(&w, "qwen35.nextn_predict_layers", 1);
    key_u32(&w, "qwen35.context_length", 262144);
    key_u32(&w, "qwen35.embedding_length", EMBD);
    key_u32(&w, "qwen35.feed_forward_length", FFN);
    key_u32(&w, "qwen35.attention.head_count", 24);
    key_u32(&w, "qwen35.attention.head_count_kv", 4);
    key_u32(&w, "qwen35.attention.key_length", 256);
    key_u32(&w, "qwen35.attention.value_length", 256);
    key_f32(&w, "qwen35.attention.layer_norm_rms_epsilon", 1e-6f);
    key_u32(&w, "qwen35.rope.dimension_count", 64);
    key_f32(&w, "qwen35.rope.freq_base", 1e7f);
    key_u32s(&w, "qwen35.rope.dimension_sections", sections, 4);
    key_u32(&w, "qwen35.ssm.conv_kernel", 4);
    key_u32(&w, "qwen35.ssm.state_size", 128);
    key_u32(&w, "qwen35.ssm.group_count", 16);
    key_u32(&w, "qwen35.ssm.time_step_rank", 48);
    key_u32(&w, "qwen35.ssm.inner_size", 48 * 128);
    key_u32(&w, "qwen35.full_attention_interval", 4);
    vocabulary(&w);
    tensor(&w, TYPE_Q8_0, "token_embd.weight", 2, EMBD, VOCAB, 0);
    tensor(&w, TYPE_F32, "output_norm.weight", 1, EMBD, 0, 0);
    tensor(&w, TYPE_Q8_0, "output.weight", 2, EMBD, VOCAB, 0);
    for (int i = 0; i < 65; i++) {
        block(&w, i, "attn_norm.weight", TYPE_F32, 1, EMBD, 0, 0);
        block(&w, i, "post_attention_norm.weight", TYPE_F32, 1, EMBD, 0, 0);
        if (i == 64 || i % 4 == 3)
            full_attention(&w, i);
        else
            delta_net(&w, i);
        feed_forward(&w, i);
    }
    block(&w, 64, "nextn.eh_proj.weight", TYPE_Q8_0, 2, 2 * EMBD, EMBD, 0);
    block(&w, 64, "nextn.enorm.weight", TYPE_F32, 1, EMBD, 0, 0);
    block(&w, 64, "nextn.hnorm.weight", TYPE_F32, 1, EMBD, 0, 0);
    block(&w, 64, "nextn.shared_head_norm.weight", TYPE_F32, 1, EMBD, 0, 0);
    tensor(&w, TYPE_F16, "v.blk.0.attn_q.weight", 2, 1152, 1152, 0); /* vision: present, not loaded */
    return end(&w, path);
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
    writer w;

    begin(&w);
    key_string(&w, "general.architecture", "dflash");
    key_u32(&w, "dflash.block_count", 5);
    key_u32(&w, "dflash.context_length", 262144);
    key_u32(&w, "dflash.embedding_length", EMBD);
    key_u32(&w, "dflash.feed_forward_length", FFN);
    key_u32(&w, "dflash.attention.head_count", 32);
    key_u32(&w, "dflash.attention.head_count_kv", 8);
    key_u32(&w, "dflash.attention.key_length", 128);
    key_u32(&w, "dflash.attention.value_length", 128);
    key_f32(&w, "dflash.attention.layer_norm_rms_epsilon", 1e-6f);
    key_u32(&w, "dflash.rope.dimension_count", 128);
    key_f32(&w, "dflash.rope.freq_base", 1e7f);
    key_bool(&w, "dflash.attention.causal", 0);
    key_u32(&w, "dflash.attention.sliding_window", 2048);
    key_u32(&w, "dflash.vocab_size", VOCAB);
    key_u32(&w, "dflash.block_size", 8);
    key_u32s(&w, "dflash.target_layers", taps, 5);
    key_u32(&w, "dflash.conv_kernel_size", 2);
    key_u32(&w, "dflash.conv_group_size", 16);
    key_u32(&w, "dflash.selector_rank", 256);
    key_u32(&w, "dflash.selector_top_k", 16);
    key_u32(&w, "tokenizer.ggml.mask_token_id", 248070);
    tensor(&w, TYPE_Q8_0, "fc.weight", 2, 5 * EMBD, EMBD, 0);
    tensor(&w, TYPE_F32, "enc.output_norm.weight", 1, EMBD, 0, 0);
    tensor(&w, TYPE_F32, "output_norm.weight", 1, EMBD, 0, 0);
    tensor(&w, TYPE_Q8_0, "selector_hidden.weight", 2, EMBD, 256, 0);
    tensor(&w, TYPE_F16, "selector_predecessor.weight", 2, 256, VOCAB, 0);
    tensor(&w, TYPE_F16, "selector_successor.weight", 2, 256, VOCAB, 0);
    for (int i = 0; i < 5; i++)
        drafter_block(&w, i);
    return end(&w, path);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: make_27b TARGET.gguf DRAFTER.gguf\n");
        return 2;
    }
    return target(argv[1]) || drafter(argv[2]);
}
