/* A network's numbers out of a hostile header: each key is read with its range, failures are sticky, and the sentence
 * names file key and expectation. Keys are prefix + name ("qwen35." + "block_count"). */
#ifndef RF_META_H
#define RF_META_H

#include "gguf.h"

typedef struct {
    const rf_gguf *file;
    const char *prefix;
    bool failed;
    rf_error *err;
} rf_meta;

bool rf_meta_has(const rf_meta *m, const char *name);
/* An integer of any width in [min, max]. A per-layer array may stand where a number is expected if all its non-zero
 * elements are alike (head_count_kv with zeros on recurrent layers). Absent or wrong: failure, and min is returned. */
size_t rf_meta_count(rf_meta *m, const char *name, size_t min, size_t max);
size_t rf_meta_count_or(rf_meta *m, const char *name, size_t absent, size_t min, size_t max);
/* A finite float (or integer) in [min, max]. */
double rf_meta_number(rf_meta *m, const char *name, double min, double max);
double rf_meta_number_or(rf_meta *m, const char *name, double absent, double min, double max);
bool rf_meta_flag_or(rf_meta *m, const char *name, bool absent);
/* Per-layer truth values (booleans or integers, 1 for not zero): the first n of n to `most` elements into out. */
void rf_meta_flags(rf_meta *m, const char *name, unsigned char *out, size_t n, size_t most);
bool rf_meta_is_array(const rf_meta *m, const char *name);
/* 1 .. most integers in [0, max]; returns how many. */
size_t rf_meta_list(rf_meta *m, const char *name, size_t *out, size_t most, size_t max);
/* Fails unless general.architecture is `name`. */
void rf_meta_architecture(rf_meta *m, const char *name);
bool rf_meta_architecture_is(const rf_meta *m, const char *name);
/* rope.*: rotated dimensions (even, at most head_dim, which is the default) and base. For text all sections share one
 * position, so the sections (three or four, if given) change nothing; scaled ropes are refused. */
void rf_meta_rope(rf_meta *m, size_t head_dim, size_t *n_rot, double *base);
/* Fails with a sentence about key `name` (once). */
void rf_meta_reject(rf_meta *m, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
