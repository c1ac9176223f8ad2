#include "parts.h"

void rf_regions_phase(rf_regions *r)
{
    r->end = 0;
}

rf_mat rf_region(rf_regions *r, size_t n_cols)
{
    rf_mat m = {r->buf, r->end, n_cols};

    r->end += (r->n_rows * n_cols + 15) / 16 * 16;
    if (r->most < r->end)
        r->most = r->end;
    return m;
}

rf_mat rf_reduce(const rf_parts *p, size_t n_rows, rf_mat x, const rf_row_parallel *w)
{
    p->ops->quantize(p->b, n_rows, w->n_cols, x, p->ops->weight_wants(w->w), p->act);
    p->ops->matmul_nodes(p->b, n_rows, w->w, p->act, p->nodes);             /* [node][row][E] */
    rf_comm_sum_tree(p->inner, w->plan, n_rows, p->n_embd, p->nodes, p->sum); /* [row][E] */
    return rf_whole(p->sum, p->n_embd);
}

rf_mat rf_ffn_forward(const rf_parts *p, size_t n_rows, rf_mat y, const rf_ffn *f, rf_mat gate, rf_mat up)
{
    p->ops->quantize(p->b, n_rows, p->n_embd, y, f->wants, p->act);
    p->ops->matmuls(p->b, n_rows, 2, (rf_product[]){{f->gate, gate}, {f->up, up}}, p->act); /* [row][F] each */
    p->ops->silu_mul(p->b, n_rows, f->n_ff, gate, up, gate);       /* [row][F] */
    return rf_reduce(p, n_rows, gate, &f->down);                   /* [row][E] */
}
