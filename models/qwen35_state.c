/* Architecture `qwen35`: looking at the state (hashes) and inside the trunk (traces). Not for the hot path. */
#include <stdlib.h>

#include "qwen35_impl.h"
#include "state.h"

static rf_kv_state kv_state(const rf_qwen35 *m, const rf_kv *kv)
{
    return (rf_kv_state){m->b,
                         kv,
                         m->kv_heads,
                         m->heads,
                         m->p.n_head / m->p.n_head_kv,
                         m->p.head_dim,
                         m->env.sizes.type_k,
                         m->env.sizes.type_v};
}

/* KV heads [first_pos, n) of one block. A KV head that a lower rank holds too is that rank's. */
static uint64_t attention_hash(rf_qwen35 *m, const rf_kv *kv, size_t layer, size_t slot, int64_t first_pos, int64_t n)
{
    rf_kv_state s = kv_state(m, kv);

    return rf_kv_state_hash(&s, RF_STATE_TRUNK, layer, slot, first_pos, n);
}

/* Channels of local head h among heads of one kind: d channels a head, taps - 1 columns a channel. */
static uint64_t window_hash(const rf_qwen35 *m, const float *window, size_t first_channel, size_t layer, size_t part)
{
    size_t columns = m->p.conv_kernel - 1, d = m->p.state_size;

    return rf_state_mix(RF_STATE_WINDOW, layer, part, window + first_channel * columns, d * columns * sizeof *window);
}

/* Every value head's state, and the window's channels by head: global numbers, whoever holds them. */
static uint64_t delta_hash(rf_qwen35 *m, const rf_delta *delta, size_t layer, size_t slot)
{
    size_t d = m->p.state_size, nk = m->key_heads.count, nv = m->n_value_heads, share = nk ? nv / nk : 0;
    float *state = malloc(d * d * sizeof *state),
          *window = malloc((m->n_channels * (m->p.conv_kernel - 1) + 1) * sizeof *window);
    uint64_t hash = 0;

    if (state && window) {
        m->ops->window_export(m->b, delta, slot, window);
        for (size_t h = 0; h < nk; h++) {
            hash += window_hash(m, window, h * d, layer, 2 * (m->key_heads.first + h));
            hash += window_hash(m, window, (nk + h) * d, layer, 2 * (m->key_heads.first + h) + 1);
        }
        for (size_t h = 0; h < nv; h++) { /* local order is key-head major, the file's is tiled */
            size_t global = h % share * m->p.n_key_heads + m->key_heads.first + h / share;

            m->ops->delta_export(m->b, delta, slot, h, state);
            hash += rf_state_mix(RF_STATE_DELTA, layer, global, state, d * d * sizeof *state);
            hash += window_hash(m, window, (2 * nk + h) * d, layer, 2 * m->p.n_key_heads + global);
        }
    }
    free(state);
    free(window);
    return hash;
}

uint64_t rf_qwen35_state_hash(rf_qwen35 *m, size_t slot, int64_t n)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < m->n_layers; i++) {
        const qwen35_block *block = &m->blocks[i];
        size_t layer = m->first_layer + i;

        hash += block->full ? attention_hash(m, block->attention.kv, layer, slot, 0, n)
                            : delta_hash(m, block->delta.delta, layer, slot);
    }
    return hash;
}

uint64_t rf_qwen35_mtp_state_hash(rf_qwen35 *m, size_t slot, int64_t n)
{
    if (!m->with_mtp || !m->tail)
        return 0;
    return attention_hash(m, m->mtp.block.attention.kv, m->p.n_layer, slot, 1, n);
}

static int fill(rf_qwen35 *m, rf_kv *kv, size_t slot, int64_t n, rf_error *err)
{
    rf_kv_state s = kv_state(m, kv);

    return rf_kv_state_fill(&s, kv, slot, n, err);
}

int rf_qwen35_fill(rf_qwen35 *m, size_t slot, int64_t n, rf_error *err)
{
    for (size_t i = 0; i < m->n_layers; i++)
        if (m->blocks[i].full && fill(m, m->blocks[i].attention.kv, slot, n, err) != 0)
            return -1;
    return m->with_mtp && m->tail ? fill(m, m->mtp.block.attention.kv, slot, n, err) : 0;
}

void rf_qwen35_trace(rf_qwen35 *m, bool on)
{
    size_t bytes = m->n_layers * m->env.sizes.max_rows * m->p.n_embd * sizeof(float);

    if (on && !m->trace)
        m->trace = m->ops->buf_create(m->b, bytes, NULL);
    m->tracing = on && m->trace;
}

const float *rf_qwen35_trace_rows(rf_qwen35 *m, size_t layer, size_t row)
{
    size_t bytes = m->p.n_embd * sizeof(float), at = ((layer - m->first_layer) * m->env.sizes.max_rows + row) * bytes;

    m->ops->download(m->b, m->trace, at, m->trace_row, bytes);
    return m->trace_row;
}
