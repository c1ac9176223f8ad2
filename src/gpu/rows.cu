/* Rows that are copied, kept and taken back; embeddings. */
#include "gpu_internal.h"

namespace RT_SPACE {

#define THREADS 256
#define EMBED_PIECE ((size_t)65536) /* columns that are unpacked at a time: whole blocks of every type */

RT_DEVICE size_t own_column() { return (size_t)rt_block() * rt_n_threads() + rt_thread(); }

RT_KERNEL copy_kernel(size_t n, rt_mat src, rt_mat dst)
{
    size_t i = own_column(), row = rt_block_y();

    if (i < n)
        dst.p[row * dst.stride + i] = src.p[row * src.stride + i];
}

RT_KERNEL gather_kernel(rt_batch_view batch, size_t n, rt_mat src, rt_mat dst)
{
    size_t i = own_column(), row = rt_block_y();

    if (i < n)
        dst.p[row * dst.stride + i] = src.p[(size_t)batch.logit_rows[row] * src.stride + i];
}

/* Where row `row` of the batch is kept: store [n_slots][RF_MAX_BLOCK][n] */
RT_DEVICE size_t kept_row(const rt_batch_view &batch, size_t row)
{
    uint32_t seq = batch.seq_of[row];

    return (size_t)batch.seqs[seq].slot * RF_MAX_BLOCK + (row - batch.first_row[seq]);
}

RT_KERNEL keep_rows_kernel(rt_batch_view batch, size_t n, rt_mat src, float *store)
{
    size_t i = own_column(), row = rt_block_y();

    if (i < n && batch.seqs[batch.seq_of[row]].role == RF_ROLE_GENERATED)
        store[kept_row(batch, row) * n + i] = src.p[row * src.stride + i];
}

RT_KERNEL take_rows_kernel(rt_batch_view batch, size_t n, const float *store, rt_mat dst)
{
    size_t i = own_column(), row = rt_block_y();

    if (i < n)
        dst.p[row * dst.stride + i] = store[kept_row(batch, row) * n + i];
}

RT_KERNEL keep_last_kernel(rt_batch_view batch, size_t n, rt_mat src, float *store)
{
    size_t i = own_column(), seq = rt_block_y();
    size_t last = batch.first_row[seq] + (size_t)batch.seqs[seq].n_rows - 1;

    if (i < n)
        store[(size_t)batch.seqs[seq].slot * n + i] = src.p[last * src.stride + i];
}

RT_KERNEL shift_rows_kernel(rt_batch_view batch, size_t n, const float *store, rt_mat src, rt_mat dst)
{
    size_t i = own_column(), row = rt_block_y();
    uint32_t seq = batch.seq_of[row];

    if (i >= n)
        return;
    dst.p[row * dst.stride + i] = row == batch.first_row[seq] ? store[(size_t)batch.seqs[seq].slot * n + i]
                                                              : src.p[(row - 1) * src.stride + i];
}

/* ---- host */

static rt_launch_spec elements(const char *name, size_t n_rows, size_t n_cols)
{
    return rt_launch_spec{name, grid_of(divide_up(n_cols, THREADS), n_rows), THREADS, 0, false};
}

/* Tables of embeddings stay in the mapped file: the few rows of a batch are unpacked on the host and sent. */
static void embed(rf_backend *b, const rf_batch *batch, const rf_weight_spec *table, float scale, rf_mat x)
{
    const rf_format *f = rf_format_find(table->type);
    size_t row_bytes = table->n_cols / f->block * f->bytes;

    for (size_t r = 0; r < batch->n_rows; r++) {
        const unsigned char *row = static_cast<const unsigned char *>(table->data) + (size_t)batch_of(batch)->tokens[r] * row_bytes;

        for (size_t at = 0; at < table->n_cols; at += EMBED_PIECE) {
            size_t n = table->n_cols - at < EMBED_PIECE ? table->n_cols - at : EMBED_PIECE;
            unsigned char *staged = gpu_stage(gpu_of(b), n * sizeof(float));
            float *y = reinterpret_cast<float *>(staged);

            f->unpack(row + at / f->block * f->bytes, y, n);
            for (size_t i = 0; scale != 1.0f && i < n; i++)
                y[i] *= scale;
            gpu_push(gpu_of(b), mat_of(x).p + r * x.stride + at, staged, n * sizeof(float));
        }
    }
}

static void copy(rf_backend *b, size_t n_rows, size_t n_cols, rf_mat src, rf_mat dst)
{
    launch(gpu_of(b), elements("copy", n_rows, n_cols), copy_kernel, n_cols, mat_of(src), mat_of(dst));
}

static void gather_logit_rows(rf_backend *b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_mat dst)
{
    launch(gpu_of(b), elements("gather_logit_rows", batch->n_logit_rows, n_cols), gather_kernel, batch_of(batch)->view,
           n_cols, mat_of(src), mat_of(dst));
}

static void keep_rows(rf_backend *b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_buf *store)
{
    launch(gpu_of(b), elements("keep_rows", batch->n_rows, n_cols), keep_rows_kernel, batch_of(batch)->view, n_cols,
           mat_of(src), data_of<float>(store));
}

static void take_rows(rf_backend *b, const rf_batch *batch, size_t n_cols, const rf_buf *store, rf_mat dst)
{
    launch(gpu_of(b), elements("take_rows", batch->n_rows, n_cols), take_rows_kernel, batch_of(batch)->view, n_cols,
           data_of<float>(store), mat_of(dst));
}

static void keep_last(rf_backend *b, const rf_batch *batch, size_t n_cols, rf_mat src, rf_buf *store)
{
    launch(gpu_of(b), elements("keep_last", batch->n_seqs, n_cols), keep_last_kernel, batch_of(batch)->view, n_cols,
           mat_of(src), data_of<float>(store));
}

static void shift_rows(rf_backend *b, const rf_batch *batch, size_t n_cols, const rf_buf *store, rf_mat src, rf_mat dst)
{
    launch(gpu_of(b), elements("shift_rows", batch->n_rows, n_cols), shift_rows_kernel, batch_of(batch)->view, n_cols,
           data_of<float>(store), mat_of(src), mat_of(dst));
}

void row_ops(rf_ops *ops)
{
    ops->embed = embed;
    ops->copy = copy;
    ops->gather_logit_rows = gather_logit_rows;
    ops->keep_rows = keep_rows;
    ops->take_rows = take_rows;
    ops->keep_last = keep_last;
    ops->shift_rows = shift_rows;
}

} /* namespace */
