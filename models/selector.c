/* DFlash2's candidate selector: rows of the two codebooks are read from the mapped file as they are needed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dflash_impl.h"

struct rf_selector {
    const rf_tensor *predecessor, *successor; /* [R, V]; NULL for DFlash (v1) */
    const rf_tensor *d2t;                     /* NULL: draft rows are tokens */
    size_t rank;
    float *weighted;                          /* [R] predecessor[prev] * r */
    float *row;                               /* [R] */
};

rf_selector *rf_selector_create(const rf_gguf *file, const rf_dflash_params *p, rf_error *err)
{
    rf_selector *s = calloc(1, sizeof *s);

    if (s) {
        s->rank = p->v2 ? p->selector_rank : 0;
        s->predecessor = p->v2 ? rf_gguf_find(file, "selector_predecessor.weight") : NULL;
        s->successor = p->v2 ? rf_gguf_find(file, "selector_successor.weight") : NULL;
        s->d2t = p->has_d2t ? rf_gguf_find(file, "d2t") : NULL;
        s->weighted = calloc(s->rank + 1, sizeof *s->weighted);
        s->row = calloc(s->rank + 1, sizeof *s->row);
        if (s->weighted && s->row)
            return s;
        rf_selector_destroy(s);
    }
    rf_fail(err, RF_ERR_MEMORY, "no memory for the candidate selector");
    return NULL;
}

void rf_selector_destroy(rf_selector *s)
{
    if (!s)
        return;
    free(s->weighted);
    free(s->row);
    free(s);
}

int32_t rf_selector_token(const rf_selector *s, int32_t draft_row)
{
    int64_t token;

    if (!s->d2t)
        return draft_row;
    memcpy(&token, (const char *)s->d2t->data + (size_t)draft_row * sizeof token, sizeof token);
    return (int32_t)token;
}

static void read_row(const rf_tensor *t, size_t row, size_t n, float *out)
{
    const rf_format *f = t->format;

    f->unpack((const char *)t->data + row * (n / f->block) * f->bytes, out, n);
}

void rf_selector_scores(const rf_selector *s, int32_t prev, const float *r_row, const rf_candidate *cand, size_t n,
                        float *score)
{
    if (s->rank) {
        read_row(s->predecessor, (size_t)prev, s->rank, s->row);
        for (size_t r = 0; r < s->rank; r++)
            s->weighted[r] = s->row[r] * r_row[r];
    }
    for (size_t i = 0; i < n; i++) {
        float sum = 0;

        if (s->rank)
            read_row(s->successor, (size_t)cand[i].id, s->rank, s->row);
        for (size_t r = 0; r < s->rank; r++)
            sum = fmaf(s->weighted[r], s->row[r], sum);
        score[i] = cand[i].logit + sum;
    }
}
