#include "sum_tree.h"

static size_t collect(rf_range node, rf_range owned, rf_range *nodes, size_t found)
{
    size_t left;

    if (node.first >= owned.first + owned.count || node.first + node.count <= owned.first)
        return found;
    if (node.first >= owned.first && node.first + node.count <= owned.first + owned.count) {
        if (nodes)
            nodes[found] = node;
        return found + 1;
    }
    left = rf_tree_split(node.count);
    found = collect((rf_range){node.first, left}, owned, nodes, found);
    return collect((rf_range){node.first + left, node.count - left}, owned, nodes, found);
}

size_t rf_tree_nodes(size_t n_units, rf_range owned, rf_range *nodes)
{
    return n_units && owned.count ? collect((rf_range){0, n_units}, owned, nodes, 0) : 0;
}
