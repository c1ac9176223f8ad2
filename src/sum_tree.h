/* The one shape of every sum over ranks (docs/determinism.md).
 *
 * A row-parallel product is a sum over U units. The tree over the units [first, first + count) is: a leaf if count is 1,
 * else the sum of the trees over its first rf_tree_split(count) units and over the rest. Node sums are formed in float32
 * as left + right. The shape depends on count alone, so a node computed on any rank has the same bits. */
#ifndef RF_SUM_TREE_H
#define RF_SUM_TREE_H

#include <stddef.h>

typedef struct {
    size_t first, count; /* units [first, first + count) */
} rf_range;

/* Units in the first child of a node of `count` >= 2 units: half, the first part taking the odd one. */
static inline size_t rf_tree_split(size_t count)
{
    return (count + 1) / 2;
}

/* The largest tree nodes over [0, n_units) that lie inside `owned`, in ascending order. Returns how many; writes them to
 * nodes when it is not NULL. At most 2 * ceil(log2(n_units)) + 1 (RF_TREE_MAX_NODES covers 2^30 units). */
#define RF_TREE_MAX_NODES 64
size_t rf_tree_nodes(size_t n_units, rf_range owned, rf_range *nodes);

#endif
