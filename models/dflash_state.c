/* Architecture `dflash`: looking at the state. Not for the hot path. */
#include "dflash_impl.h"
#include "state.h"

static rf_kv_state kv_state(const rf_dflash *m, const rf_kv *kv)
{
    return (rf_kv_state){m->b, kv, m->kv_heads, m->heads, m->p.n_head / m->p.n_head_kv, m->p.head_dim,
                         m->env.sizes.type_k, m->env.sizes.type_v};
}

/* A windowed layer never reads further back than its window. */
uint64_t rf_dflash_state_hash(rf_dflash *m, size_t slot, int64_t n)
{
    uint64_t hash = 0;

    if (!m->tail)
        return 0;
    for (size_t i = 0; i < m->p.n_layer; i++) {
        const dflash_layer *l = &m->layers[i];
        rf_kv_state s = kv_state(m, l->kv);
        int64_t first = l->attention.window && n > (int64_t)l->attention.window ? n - (int64_t)l->attention.window : 0;

        hash += rf_kv_state_hash(&s, RF_STATE_DRAFTER, i, slot, first, n);
    }
    return hash;
}

int rf_dflash_fill(rf_dflash *m, size_t slot, int64_t n, rf_error *err)
{
    for (size_t i = 0; m->tail && i < m->p.n_layer; i++) {
        rf_kv_state s = kv_state(m, m->layers[i].kv);

        if (rf_kv_state_fill(&s, m->layers[i].kv, slot, n, err) != 0)
            return -1;
    }
    return 0;
}
