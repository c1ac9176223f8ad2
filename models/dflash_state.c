/* Architecture `dflash`: looking at the state. Not for the hot path. */
#include "dflash_impl.h"
#include "state.h"

/* A windowed layer never reads further back than its window. */
uint64_t rf_dflash_state_hash(rf_dflash *m, size_t slot, int64_t n)
{
    uint64_t hash = 0;

    if (!m->tail)
        return 0;
    for (size_t i = 0; i < m->p.n_layer; i++) {
        const dflash_layer *l = &m->layers[i];
        rf_kv_state s = {m->b, l->kv, m->kv_heads, m->heads, m->p.n_head / m->p.n_head_kv, m->p.head_dim,
                         m->env.sizes.type_k, m->env.sizes.type_v};
        int64_t first = l->attention.window && n > (int64_t)l->attention.window ? n - (int64_t)l->attention.window : 0;

        hash += rf_kv_state_hash(&s, RF_STATE_DRAFTER, i, slot, first, n);
    }
    return hash;
}
