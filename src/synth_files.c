#include "config.h"

#include "synth_files.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "synth_vocabulary.h"

#define CONTEXT 262144
#define ROPE_BASE 1e7f
#define EPSILON 1e-6f
#define MAX_TAPS 5
#define CONV_KERNEL 2
#define CONV_GROUP 16
#define WINDOW 2048
#define PIECE ((size_t)1 << 20) /* bytes made and written at once, about */

/* ---- What the weights are drawn from */

typedef struct {
    const char *suffix;   /* of the tensor's name */
    rf_synth_range range;
} small_tensor;

/* Vectors and small matrices. Norms and the drafter's convolution keep the size of what they work on; the DeltaNet
 * decays have half-lives of one to a few hundred tokens. */
static const small_tensor small_tensors[] = {
    {"norm.weight", {1, 0.06}},     {"ssm_a", {-4, 2}},         {"ssm_dt.bias", {-4.5, 1.3}},
    {"ssm_conv1d.weight", {0, 0.5}}, {"conv_base", {0.5, 0.1}},
};

static int ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);

    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* Matrices keep the size of a vector, 1 / sqrt(inputs); what is added to the residual stream over 2 * depth sublayers
 * shares that size; corrections (decay, convolution) are smaller. The selector's two tables meet in sums of `rank`
 * products. */
static rf_synth_range range_of(const rf_tensor_want *w, size_t depth)
{
    static const char *const residual[] = {"attn_output.weight", "ssm_out.weight", "ffn_down.weight"};
    static const char *const correction[] = {"ssm_alpha.weight", "conv_proj.weight"};
    double spread = 1 / sqrt((double)w->dims[0]);

    for (size_t i = 0; i < sizeof small_tensors / sizeof *small_tensors; i++)
        if (ends_with(w->name, small_tensors[i].suffix))
            return small_tensors[i].range;
    for (size_t i = 0; i < sizeof residual / sizeof *residual; i++)
        if (ends_with(w->name, residual[i]))
            spread /= sqrt(2 * (double)depth);
    for (size_t i = 0; i < sizeof correction / sizeof *correction; i++)
        if (ends_with(w->name, correction[i]))
            spread *= 0.3;
    if (ends_with(w->name, "_predecessor.weight") || ends_with(w->name, "_successor.weight"))
        spread = pow((double)w->dims[0], -0.25);
    return (rf_synth_range){0, spread};
}

/* ---- The files */

static int codebook(const rf_tensor_want *w)
{
    return ends_with(w->name, "_predecessor.weight") || ends_with(w->name, "_successor.weight");
}

/* As published files have it: vectors in F32, codebooks in F16. */
static const rf_format *format_of(const rf_tensor_want *w, const rf_format *matrix, const rf_format *embd)
{
    if (w->vector)
        return rf_format_find(RF_TYPE_F32);
    if (codebook(w))
        return rf_format_find(RF_TYPE_F16);
    if (strcmp(w->name, "token_embd.weight") == 0 || strcmp(w->name, "output.weight") == 0)
        return embd;
    return matrix;
}

/* Every tensor of the table. */
static int add_tensors(rf_synth_file *f, const rf_synth_options *o, rf_error *err)
{
    const rf_format *matrix = rf_synth_format("--type", o->type, err), *embd;

    if (!matrix)
        return -1;
    embd = o->embd_type ? rf_synth_format("--embd-type", o->embd_type, err) : matrix;
    f->formats = embd ? calloc(f->n, sizeof *f->formats) : NULL;
    if (!embd)
        return -1;
    if (!f->formats)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for %zu tensors", f->n);
    for (size_t i = 0; i < f->n; i++) {
        const rf_tensor_want *w = &f->wants[i];
        uint64_t dims[4] = {w->dims[0], w->dims[1], w->dims[2], w->dims[3]};
        size_t elements = 1;
        const rf_format *format = format_of(w, matrix, embd);

        for (size_t d = 0; d < w->n_dims; d++)
            elements *= w->dims[d];
        if (w->dims[0] % format->block)
            return rf_fail(err, RF_ERR_USAGE,
                           "%s has rows of %zu weights, %s has blocks of %zu: change the shape or the type", w->name,
                           w->dims[0], format->name, format->block);
        f->formats[i] = format;
        rf_gguf_writer_tensor(f->writer, w->name, w->n_dims, dims, format->type,
                              elements / format->block * format->bytes);
    }
    return 0;
}

/* The header is written under the temporary name, whose length is the file's: a reader takes it for whole. */
static rf_gguf *read_back(const rf_synth_file *f, rf_error *err)
{
    return rf_gguf_open(rf_gguf_writer_temporary(f->writer), err);
}

static int unloadable(const rf_error *why, rf_error *err)
{
    rf_error copy = *why;

    return rf_fail(err, RF_ERR_USAGE, "no model of this shape and type can be loaded: %s", copy.text);
}

static int open_writer(rf_synth_file *f, const char *path, rf_error *err)
{
    *f = (rf_synth_file){.path = path, .writer = rf_gguf_writer_open(path, err)};
    return f->writer ? 0 : -1;
}

/* ---- Target */

static void target_keys(rf_gguf_bytes *k, const rf_synth_shape *s)
{
    uint32_t rotated = (uint32_t)s->head_dim / 4, pairs = rotated / 2;
    uint32_t sections[4] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
    int mtp = s->mtp == RF_SYNTH_ON;

    rf_gguf_key_string(k, "general.architecture", "qwen35");
    rf_gguf_key_string(k, "general.name", "random weights");
    rf_gguf_key_u32(k, "qwen35.block_count", (uint32_t)(s->n_layer + mtp));
    if (mtp)
        rf_gguf_key_u32(k, "qwen35.nextn_predict_layers", 1);
    rf_gguf_key_u32(k, "qwen35.context_length", CONTEXT);
    rf_gguf_key_u32(k, "qwen35.embedding_length", (uint32_t)s->n_embd);
    rf_gguf_key_u32(k, "qwen35.feed_forward_length", (uint32_t)s->n_ff);
    rf_gguf_key_u32(k, "qwen35.attention.head_count", (uint32_t)s->n_head);
    rf_gguf_key_u32(k, "qwen35.attention.head_count_kv", (uint32_t)s->n_head_kv);
    rf_gguf_key_u32(k, "qwen35.attention.key_length", (uint32_t)s->head_dim);
    rf_gguf_key_u32(k, "qwen35.attention.value_length", (uint32_t)s->head_dim);
    rf_gguf_key_f32(k, "qwen35.attention.layer_norm_rms_epsilon", EPSILON);
    rf_gguf_key_u32(k, "qwen35.rope.dimension_count", rotated);
    rf_gguf_key_f32(k, "qwen35.rope.freq_base", ROPE_BASE);
    rf_gguf_key_u32s(k, "qwen35.rope.dimension_sections", sections, 4);
    rf_gguf_key_u32(k, "qwen35.ssm.conv_kernel", (uint32_t)s->conv_kernel);
    rf_gguf_key_u32(k, "qwen35.ssm.state_size", (uint32_t)s->state_size);
    rf_gguf_key_u32(k, "qwen35.ssm.group_count", (uint32_t)s->n_key_heads);
    rf_gguf_key_u32(k, "qwen35.ssm.time_step_rank", (uint32_t)s->n_value_heads);
    rf_gguf_key_u32(k, "qwen35.ssm.inner_size", (uint32_t)(s->n_value_heads * s->state_size));
    rf_gguf_key_u32(k, "qwen35.full_attention_interval", (uint32_t)s->interval);
}

static rf_tensor_want *target_tensors(const rf_synth_shape *s, size_t *n, rf_error *err)
{
    unsigned char *full = calloc((size_t)s->n_layer, 1);
    rf_qwen35_params p = {
        .n_layer = (size_t)s->n_layer,
        .n_mtp = s->mtp == RF_SYNTH_ON,
        .n_embd = (size_t)s->n_embd,
        .n_ff = (size_t)s->n_ff,
        .n_vocab = (size_t)s->n_vocab,
        .n_head = (size_t)s->n_head,
        .n_head_kv = (size_t)s->n_head_kv,
        .head_dim = (size_t)s->head_dim,
        .conv_kernel = (size_t)s->conv_kernel,
        .state_size = (size_t)s->state_size,
        .n_key_heads = (size_t)s->n_key_heads,
        .n_value_heads = (size_t)s->n_value_heads,
        .tied = s->tied == RF_SYNTH_ON,
        .mtp_own_norm = true,
        .full_attention = full,
    };
    rf_tensor_want *wants;

    if (!full) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for %d layers", (int)s->n_layer);
        return NULL;
    }
    for (size_t i = 0; i < p.n_layer; i++)
        full[i] = (i + 1) % (size_t)s->interval == 0;
    wants = rf_qwen35_tensors(&p, p.n_mtp, n, err);
    free(full);
    return wants;
}

int rf_synth_target(rf_synth_file *f, const rf_synth_options *o, const rf_gguf *vocabulary, rf_qwen35_params *params,
                    rf_error *err)
{
    rf_gguf *back;
    rf_error why;
    int status;

    *params = (rf_qwen35_params){0};
    if (open_writer(f, o->target, err) < 0)
        return -1;
    f->wants = target_tensors(&o->shape, &f->n, err);
    if (!f->wants || add_tensors(f, o, err) < 0)
        return -1;
    target_keys(rf_gguf_writer_keys(f->writer), &o->shape);
    if (rf_synth_copy_vocabulary(vocabulary, (size_t)o->shape.n_vocab, rf_gguf_writer_keys(f->writer), err) < 0 ||
        rf_gguf_writer_start_data(f->writer, 1, err) < 0)
        return -1;
    back = read_back(f, &why);
    status = back ? rf_qwen35_params_read(back, o->shape.mtp == RF_SYNTH_ON, params, &why) : -1;
    rf_gguf_close(back);
    return status < 0 ? unloadable(&why, err) : 0;
}

/* ---- Drafter */

/* What enters a tenth of the way up, what enters the layer before the last, and evenly between: 6, 20, 34, 48, 62 of 64
 * layers. */
static size_t taps_of(size_t n_layer, uint32_t taps[MAX_TAPS])
{
    size_t first = n_layer / 10, last = n_layer > 2 ? n_layer - 2 : 0, n = last - first + 1;

    n = n < MAX_TAPS ? n : MAX_TAPS;
    for (size_t i = 0; i < n; i++)
        taps[i] = (uint32_t)(first + (n > 1 ? (last - first) * i / (n - 1) : 0));
    return n;
}

static void drafter_keys(rf_gguf_bytes *k, const rf_synth_shape *s, uint32_t mask)
{
    uint32_t taps[MAX_TAPS];
    size_t n_taps = taps_of((size_t)s->n_layer, taps);

    rf_gguf_key_string(k, "general.architecture", "dflash");
    rf_gguf_key_string(k, "general.name", "random weights");
    rf_gguf_key_u32(k, "dflash.block_count", (uint32_t)s->draft_layers);
    rf_gguf_key_u32(k, "dflash.context_length", CONTEXT);
    rf_gguf_key_u32(k, "dflash.embedding_length", (uint32_t)s->n_embd);
    rf_gguf_key_u32(k, "dflash.feed_forward_length", (uint32_t)s->n_ff);
    rf_gguf_key_u32(k, "dflash.attention.head_count", (uint32_t)s->draft_heads);
    rf_gguf_key_u32(k, "dflash.attention.head_count_kv", (uint32_t)s->draft_heads_kv);
    rf_gguf_key_u32(k, "dflash.attention.key_length", (uint32_t)s->draft_head_dim);
    rf_gguf_key_u32(k, "dflash.attention.value_length", (uint32_t)s->draft_head_dim);
    rf_gguf_key_f32(k, "dflash.attention.layer_norm_rms_epsilon", EPSILON);
    rf_gguf_key_u32(k, "dflash.rope.dimension_count", (uint32_t)s->draft_head_dim);
    rf_gguf_key_f32(k, "dflash.rope.freq_base", ROPE_BASE);
    rf_gguf_key_bool(k, "dflash.attention.causal", 0);
    rf_gguf_key_u32(k, "dflash.attention.sliding_window", WINDOW);
    rf_gguf_key_u32(k, "dflash.vocab_size", (uint32_t)s->n_vocab);
    rf_gguf_key_u32(k, "dflash.block_size", (uint32_t)s->draft_block);
    rf_gguf_key_u32s(k, "dflash.target_layers", taps, n_taps);
    rf_gguf_key_u32(k, "dflash.conv_kernel_size", CONV_KERNEL);
    rf_gguf_key_u32(k, "dflash.conv_group_size", CONV_GROUP);
    rf_gguf_key_u32(k, "dflash.selector_rank", (uint32_t)s->selector_rank);
    rf_gguf_key_u32(k, "dflash.selector_top_k", (uint32_t)s->selector_top_k);
    rf_gguf_key_u32(k, "tokenizer.ggml.mask_token_id", mask);
}

static rf_tensor_want *drafter_tensors(const rf_synth_shape *s, size_t *n, rf_error *err)
{
    uint32_t taps[MAX_TAPS];
    rf_dflash_params p = {
        .n_layer = (size_t)s->draft_layers,
        .n_embd = (size_t)s->n_embd,
        .n_ff = (size_t)s->n_ff,
        .n_head = (size_t)s->draft_heads,
        .n_head_kv = (size_t)s->draft_heads_kv,
        .head_dim = (size_t)s->draft_head_dim,
        .n_taps = taps_of((size_t)s->n_layer, taps),
        .v2 = true,
        .conv_kernel = CONV_KERNEL,
        .conv_group = CONV_GROUP,
        .selector_rank = (size_t)s->selector_rank,
        .n_target_vocab = (size_t)s->n_vocab,
    };

    if (s->n_embd % CONV_GROUP) {
        rf_fail(err, RF_ERR_USAGE, "--embd %d: with a drafter, expected a multiple of %d", (int)s->n_embd, CONV_GROUP);
        return NULL;
    }
    return rf_dflash_tensors(&p, n, err);
}

int rf_synth_drafter(rf_synth_file *f, const rf_synth_options *o, const rf_gguf *vocabulary,
                     const rf_qwen35_params *target, rf_error *err)
{
    rf_dflash_params params = {0};
    rf_gguf *back;
    rf_error why;
    uint32_t mask;
    int status;

    if (open_writer(f, o->drafter, err) < 0 ||
        rf_synth_mask_token(vocabulary, (size_t)o->shape.n_vocab, &mask, err) < 0)
        return -1;
    f->wants = drafter_tensors(&o->shape, &f->n, err);
    if (!f->wants || add_tensors(f, o, err) < 0)
        return -1;
    drafter_keys(rf_gguf_writer_keys(f->writer), &o->shape, mask);
    if (rf_gguf_writer_start_data(f->writer, 1, err) < 0)
        return -1;
    back = read_back(f, &why);
    status = back ? rf_dflash_params_read(back, target, &params, &why) : -1;
    rf_gguf_close(back);
    rf_dflash_params_free(&params);
    return status < 0 ? unloadable(&why, err) : 0;
}

/* ---- Weights */

/* One tensor, by all threads of the region; buffer is the thread's own, of one piece. */
static void fill_tensor(const rf_synth_file *f, size_t i, uint64_t seed, size_t depth, unsigned char *buffer)
{
    const rf_tensor_want *w = &f->wants[i];
    const rf_format *format = f->formats[i];
    size_t blocks = w->dims[0] / format->block, step = PIECE / format->bytes;
    rf_synth_source source;

    for (size_t d = 1; d < w->n_dims; d++)
        blocks *= w->dims[d];
    rf_synth_source_init(&source, format, seed, w->name, range_of(w, depth));
#pragma omp for schedule(dynamic) nowait
    for (size_t first = 0; first < blocks; first += step) {
        size_t n = blocks - first < step ? blocks - first : step;

        rf_synth_blocks(&source, first, n, buffer);
        rf_gguf_writer_data(f->writer, i, first * format->bytes, buffer, n * format->bytes);
    }
}

int rf_synth_fill(rf_synth_file *f, const rf_synth_options *o, rf_error *err)
{
    size_t depth = 1, n_threads = (size_t)(o->threads ? o->threads : omp_get_max_threads());
    unsigned char *buffers = malloc(n_threads * PIECE);
    rf_gguf_writer *w = f->writer;

    if (!buffers)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for %zu threads with %zu bytes each", n_threads, PIECE);
    for (size_t i = 0; i < f->n; i++)
        depth = f->wants[i].layer + 1 > depth ? f->wants[i].layer + 1 : depth;
#pragma omp parallel num_threads((int)n_threads)
    for (size_t i = 0; i < f->n; i++)
        fill_tensor(f, i, o->seed, depth, buffers + (size_t)omp_get_thread_num() * PIECE);
    free(buffers);
    f->writer = NULL;
    return rf_gguf_writer_finish(w, err);
}

void rf_synth_file_free(rf_synth_file *f)
{
    rf_gguf_writer_cancel(f->writer);
    free(f->wants);
    free(f->formats);
    *f = (rf_synth_file){0};
}
