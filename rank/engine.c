#include "engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "signals.h"

struct rf_engine {
    rf_backend *b;
    rf_comm *world, *inner;
    rf_engine_spec spec;
    rf_qwen35 *target;
    rf_dflash *drafter;
    rf_collector *collector;
    rf_batch *batch;
    rf_batch_seq *seqs;      /* [n_slots] the batch being put together */
    int32_t *tokens;         /* [max_rows] */
    size_t n_seqs, n_tokens;
    rf_gumbel_row *gumbel;   /* [n_slots * RF_MAX_BLOCK] */
    size_t n_target_rows;    /* logits rows the last VERIFY or PREFILL left */
    rf_draft_row *draft;     /* [n_slots * RF_MAX_BLOCK] */
    rf_candidate *draft_cand;
    float *selector;         /* [n_slots * RF_MAX_BLOCK][rank], on the leader */
    rf_buf *selector_in;     /* layer mode: where the leader receives it */
    rf_engine_result result;
};

static size_t block_rows(const rf_engine_spec *s)
{
    return s->sizes.n_slots * RF_MAX_BLOCK;
}

static size_t draft_k(const rf_engine_spec *s)
{
    return s->drafter && s->drafter->v2 && s->drafter->selector_top_k > RF_DRAFT_TOP_K ? s->drafter->selector_top_k : RF_DRAFT_TOP_K;
}

static int create_host(rf_engine *e, rf_error *err)
{
    size_t rows = block_rows(&e->spec), rank = e->spec.drafter ? e->spec.drafter->selector_rank : 0;

    e->seqs = calloc(e->spec.sizes.n_slots, sizeof *e->seqs);
    e->tokens = calloc(e->spec.sizes.max_rows, sizeof *e->tokens);
    e->gumbel = calloc(rows, sizeof *e->gumbel);
    e->draft = calloc(rows, sizeof *e->draft);
    e->draft_cand = calloc(rows * draft_k(&e->spec), sizeof *e->draft_cand);
    e->selector = calloc(rows * rank + 1, sizeof *e->selector);
    if (e->seqs && e->tokens && e->gumbel && e->draft && e->draft_cand && e->selector)
        return 0;
    return rf_fail(err, RF_ERR_MEMORY, "no memory for %zu sequences", e->spec.sizes.n_slots);
}

static int create_device(rf_engine *e, rf_error *err)
{
    const rf_engine_spec *s = &e->spec;
    size_t rank = s->drafter ? s->drafter->selector_rank : 0;
    size_t n_vocab = s->drafter && s->drafter->n_draft_vocab > s->target->n_vocab ? s->drafter->n_draft_vocab : s->target->n_vocab;
    rf_model_env env = {e->b, e->world, e->inner, s->shard, s->sizes};
    rf_qwen35_options options = {s->with_mtp, s->drafter ? s->drafter->taps : NULL, s->drafter ? s->drafter->n_taps : 0};
    const rf_ops *ops = e->b->ops;

    e->target = rf_qwen35_create(&env, s->target_file, s->target, &options, s->progress, s->progress_context, err);
    if (!e->target)
        return -1;
    env.sizes = s->drafter_sizes;
    if (s->drafter && !(e->drafter = rf_dflash_create(&env, s->drafter_file, s->drafter, e->target, err)))
        return -1;
    e->batch = ops->batch_create(e->b, s->sizes.n_slots, s->sizes.max_rows, err);
    e->collector = rf_collector_create(e->b, e->world, n_vocab, block_rows(s), s->max_collect, err);
    e->selector_in = ops->buf_create(e->b, (block_rows(s) * rank + 1) * sizeof(float), err);
    return e->batch && e->collector && e->selector_in ? 0 : -1;
}

rf_engine *rf_engine_create(rf_backend *b, rf_comm *world, rf_comm *inner, const rf_engine_spec *spec, rf_error *err)
{
    rf_engine *e = calloc(1, sizeof *e);

    if (!e) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for the engine");
        return NULL;
    }
    e->b = b;
    e->world = world;
    e->inner = inner;
    e->spec = *spec;
    if (create_host(e, err) == 0 && create_device(e, err) == 0)
        return e;
    rf_engine_destroy(e);
    return NULL;
}

void rf_engine_destroy(rf_engine *e)
{
    if (!e)
        return;
    rf_collector_destroy(e->collector);
    e->b->ops->buf_destroy(e->selector_in);
    e->b->ops->batch_destroy(e->batch);
    rf_dflash_destroy(e->drafter);
    rf_qwen35_destroy(e->target);
    free(e->seqs);
    free(e->tokens);
    free(e->gumbel);
    free(e->draft);
    free(e->draft_cand);
    free(e->selector);
    free(e);
}

const rf_engine_result *rf_engine_get(const rf_engine *e)
{
    return &e->result;
}

rf_qwen35 *rf_engine_target(rf_engine *e)
{
    return e->target;
}

rf_dflash *rf_engine_drafter(rf_engine *e)
{
    return e->drafter;
}

static bool leads(const rf_engine *e)
{
    return rf_comm_rank(e->world) == 0;
}

static uint32_t status_word(rf_engine *e)
{
    uint32_t status = (uint32_t)rf_signal_seen();

    if (e->drafter && rf_dflash_replaced_nonfinite(e->drafter))
        status |= RF_STATUS_NONFINITE;
    return status;
}

/* ---- putting a batch together */

static void batch_begin(rf_engine *e)
{
    e->n_seqs = e->n_tokens = 0;
}

static void batch_add(rf_engine *e, const rf_command_seq *s, int64_t first_pos, size_t n_rows, rf_role role, rf_wants_logits wants)
{
    e->seqs[e->n_seqs++] = (rf_batch_seq){s->slot, (int32_t)n_rows, first_pos, (int32_t)role, (int32_t)wants};
}

static void batch_tokens(rf_engine *e, const int32_t *tokens, size_t n)
{
    memcpy(e->tokens + e->n_tokens, tokens, n * sizeof *tokens);
    e->n_tokens += n;
}

/* false: nothing in it */
static bool batch_end(rf_engine *e)
{
    if (e->n_seqs)
        e->b->ops->batch_set(e->b, e->batch, e->n_seqs, e->seqs, e->tokens);
    return e->n_seqs > 0;
}

/* ---- commit: what the last verify accepted */

static void commit(rf_engine *e, const rf_command *c)
{
    batch_begin(e);
    for (int32_t i = 0; i < c->head.n_seqs; i++)
        if (c->seqs[i].n_commit)
            batch_add(e, &c->seqs[i], c->seqs[i].first_pos, (size_t)c->seqs[i].n_commit, RF_ROLE_GENERATED, RF_LOGITS_NONE);
    if (batch_end(e))
        rf_qwen35_commit(e->target, e->batch);
    batch_begin(e);
    for (int32_t i = 0; i < c->head.n_seqs; i++)
        if (c->seqs[i].n_commit && c->seqs[i].drafter == RF_DRAFTER_DFLASH)
            batch_add(e, &c->seqs[i], c->seqs[i].first_pos, (size_t)c->seqs[i].n_commit, RF_ROLE_GENERATED, RF_LOGITS_NONE);
    if (batch_end(e))
        rf_dflash_inject_kept(e->drafter, e->batch);
}

/* ---- target: prefill, verify, more of a row */

static void collect_target(rf_engine *e, const rf_command *c, size_t n_rows)
{
    e->n_target_rows = n_rows;
    rf_collect_rows(e->collector, rf_qwen35_logits(e->target), n_rows, rf_qwen35_vocab(e->target), c->head.collect, e->gumbel,
                    status_word(e), &e->result.rows);
    e->result.status = e->result.rows.status;
}

/* Row i of a sequence that starts at position n predicts the token at n + 1 + i. A temperature of 0 draws nothing: 1 keeps it finite. */
static size_t gumbel_rows(rf_engine *e, const rf_command_seq *s, size_t at, int64_t first_position, size_t n)
{
    for (size_t i = 0; i < n; i++)
        e->gumbel[at + i] = (rf_gumbel_row){s->seed, first_position + (int64_t)i, s->temperature > 0 ? s->temperature : 1};
    return at + n;
}

static void run_prefill(rf_engine *e, const rf_command *c)
{
    const rf_command_seq *s = &c->seqs[0];
    size_t n = (size_t)s->n_tokens;

    batch_begin(e);
    batch_add(e, s, s->first_pos, n, RF_ROLE_GIVEN, s->wants_row ? RF_LOGITS_LAST : RF_LOGITS_NONE);
    batch_tokens(e, c->tokens, n);
    batch_end(e);
    rf_qwen35_forward(e->target, e->batch);
    gumbel_rows(e, s, 0, s->first_pos + (int64_t)n, 1);
    collect_target(e, c, s->wants_row ? 1 : 0);
    if (s->drafter == RF_DRAFTER_MTP) {
        e->seqs[0].wants = RF_LOGITS_NONE; /* the row's logits stay for WIDEN and MASS */
        batch_end(e);
        rf_qwen35_mtp_prefill(e->target, e->batch);
    } else if (s->drafter == RF_DRAFTER_DFLASH) {
        rf_dflash_inject(e->drafter, e->batch);
    }
}

static void run_verify(rf_engine *e, const rf_command *c)
{
    const int32_t *tokens = c->tokens;
    size_t rows = 0;

    commit(e, c);
    batch_begin(e);
    for (int32_t i = 0; i < c->head.n_seqs; i++) {
        const rf_command_seq *s = &c->seqs[i];
        size_t n = (size_t)s->n_tokens;

        batch_add(e, s, s->first_pos + s->n_commit, n, RF_ROLE_GENERATED, RF_LOGITS_ALL);
        batch_tokens(e, tokens, n);
        rows = gumbel_rows(e, s, rows, s->first_pos + s->n_commit + 1, n);
        tokens += n;
    }
    batch_end(e);
    rf_qwen35_forward(e->target, e->batch);
    collect_target(e, c, rows);
}

static rf_mat row_of(rf_mat m, size_t row)
{
    return (rf_mat){m.buf, m.offset + row * m.stride, m.stride};
}

static void run_widen(rf_engine *e, const rf_command *c)
{
    rf_collect_rows(e->collector, row_of(rf_qwen35_logits(e->target), (size_t)c->head.row), 1, rf_qwen35_vocab(e->target), c->head.collect,
                    e->gumbel + c->head.row, status_word(e), &e->result.rows);
}

static void run_mass(rf_engine *e, const rf_command *c)
{
    rf_collect_mass(e->collector, rf_qwen35_logits(e->target), (size_t)c->head.row, rf_qwen35_vocab(e->target), c->head.max,
                    status_word(e), &e->result.rows);
}

/* ---- round: drafts */

/* Collects the candidates of a drafting forward and files them under their sequences. first[i] of the rows just run: the command's
 * sequence of the batch's sequence i; every batch sequence has n_rows wanted rows for drafts 0, 1, ... */
static void collect_drafts(rf_engine *e, rf_mat logits, rf_range ids, size_t k, const size_t *seq_of, const size_t *n_rows, size_t n)
{
    size_t rows = 0, at = e->result.n_draft_rows;
    rf_collected got = {0};

    for (size_t i = 0; i < n; i++)
        rows += n_rows[i];
    rf_collect_rows(e->collector, logits, rows, ids, (rf_collect){(int32_t)k, 0, 0}, NULL, status_word(e), &got);
    if (!leads(e))
        return;
    memcpy(e->draft_cand + at * k, got.cand, rows * k * sizeof *got.cand);
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < n_rows[i]; r++, at++)
            e->draft[at] = (rf_draft_row){seq_of[i], r, e->draft_cand + at * k, NULL};
    e->result.n_draft_rows = at;
    e->result.draft = e->draft;
    e->result.draft_k = k;
    e->result.status |= got.status;
}

/* DFlash2: r = selector_hidden . o of every row, on the leader. In layer mode it comes from the last rank. */
static void fetch_selector(rf_engine *e, size_t first_row, size_t rows)
{
    size_t rank = e->spec.drafter->selector_rank, bytes = rows * rank * sizeof(float);
    int tail = rf_comm_size(e->world) - 1;
    bool remote = e->spec.shard->split == RF_SPLIT_LAYER && tail != 0;
    rf_buf *from = remote ? e->selector_in : rf_dflash_selector_rows(e->drafter);

    if (!e->spec.drafter->v2)
        return;
    if (remote && rf_comm_rank(e->world) == tail)
        rf_comm_send(e->world, 0, rf_dflash_selector_rows(e->drafter), bytes);
    if (!leads(e))
        return;
    if (remote)
        rf_comm_recv(e->world, tail, e->selector_in, bytes);
    e->b->ops->download(e->b, from, 0, e->selector, bytes);
    for (size_t i = 0; i < rows; i++)
        e->draft[first_row + i].selector = e->selector + i * rank;
}

static void draft_dflash(rf_engine *e, const rf_command *c)
{
    size_t seq_of[RF_MAX_SLOTS], n_rows[RF_MAX_SLOTS], n = 0, rows = 0, first = e->result.n_draft_rows;
    const int32_t *tokens = c->tokens;

    batch_begin(e);
    for (int32_t i = 0; i < c->head.n_seqs; tokens += c->seqs[i++].n_tokens) {
        const rf_command_seq *s = &c->seqs[i];

        if (s->drafter != RF_DRAFTER_DFLASH || !s->n_draft)
            continue;
        batch_add(e, s, s->first_pos + s->n_commit, (size_t)s->n_draft + 1, RF_ROLE_GENERATED, RF_LOGITS_ALL_BUT_FIRST);
        batch_tokens(e, tokens + s->n_tokens - 1, 1); /* the anchor is the last token of the list */
        for (int32_t m = 0; m < s->n_draft; m++)
            batch_tokens(e, &e->spec.drafter->mask_token, 1);
        seq_of[n] = (size_t)i;
        n_rows[n++] = (size_t)s->n_draft;
        rows += (size_t)s->n_draft;
    }
    if (!batch_end(e))
        return;
    rf_dflash_draft(e->drafter, e->batch);
    collect_drafts(e, rf_dflash_logits(e->drafter), rf_dflash_vocab(e->drafter), draft_k(&e->spec), seq_of, n_rows, n);
    fetch_selector(e, first, rows);
}

typedef void (*mtp_step)(rf_qwen35 *, const rf_batch *);

/* One pass of the MTP head over the sequences that `committed` selects; collects first drafts where any is wanted. */
static void draft_mtp(rf_engine *e, const rf_command *c, bool committed, mtp_step step)
{
    size_t seq_of[RF_MAX_SLOTS], n_rows[RF_MAX_SLOTS], n = 0;
    const int32_t *tokens = c->tokens;

    batch_begin(e);
    for (int32_t i = 0; i < c->head.n_seqs; tokens += c->seqs[i++].n_tokens) {
        const rf_command_seq *s = &c->seqs[i];

        if (s->drafter != RF_DRAFTER_MTP || (s->n_commit > 0) != committed)
            continue;
        batch_add(e, s, s->first_pos + (committed ? 1 : 0), (size_t)s->n_tokens, RF_ROLE_GENERATED,
                  s->n_draft ? RF_LOGITS_LAST : RF_LOGITS_NONE);
        batch_tokens(e, tokens, (size_t)s->n_tokens);
        if (s->n_draft) {
            seq_of[n] = (size_t)i;
            n_rows[n++] = 1;
        }
    }
    if (!batch_end(e))
        return;
    step(e->target, e->batch);
    if (n)
        collect_drafts(e, rf_qwen35_logits(e->target), rf_qwen35_vocab(e->target), draft_k(&e->spec), seq_of, n_rows, n);
}

static void run_round(rf_engine *e, const rf_command *c)
{
    e->result.n_draft_rows = 0;
    e->result.status = 0;
    commit(e, c);
    draft_mtp(e, c, true, rf_qwen35_mtp_commit);
    draft_mtp(e, c, false, rf_qwen35_mtp_first);
    draft_dflash(e, c);
}

static void run_mtp_next(rf_engine *e, const rf_command *c)
{
    e->result.n_draft_rows = 0;
    e->result.status = 0;
    draft_mtp(e, c, false, rf_qwen35_mtp_next);
}

/* ---- the rest */

static void run_reset(rf_engine *e, const rf_command *c)
{
    for (int32_t i = 0; i < c->head.n_seqs; i++) {
        rf_qwen35_reset(e->target, (size_t)c->seqs[i].slot);
        if (e->drafter)
            rf_dflash_reset(e->drafter, (size_t)c->seqs[i].slot);
    }
}

static void run_state_hash(rf_engine *e, const rf_command *c)
{
    const rf_command_seq *s = &c->seqs[0];
    uint64_t hash = rf_qwen35_state_hash(e->target, (size_t)s->slot, s->first_pos);

    if (s->drafter == RF_DRAFTER_MTP)
        hash += rf_qwen35_mtp_state_hash(e->target, (size_t)s->slot, s->first_pos);
    if (e->drafter && s->drafter == RF_DRAFTER_DFLASH)
        hash += rf_dflash_state_hash(e->drafter, (size_t)s->slot, s->first_pos);
    rf_collect_sum(e->collector, hash, status_word(e), &e->result.rows);
}

static void run_stats(rf_engine *e)
{
    rf_collect_sum(e->collector, e->b->ops->stats(e->b).weight_bytes_read, status_word(e), &e->result.rows);
}

typedef struct {
    rf_engine *engine;
    const rf_command *command;
} engine_step;

static void run_command(void *context)
{
    rf_engine *e = ((engine_step *)context)->engine;
    const rf_command *c = ((engine_step *)context)->command;

    switch ((rf_command_kind)c->head.kind) {
    case RF_CMD_RESET:
        run_reset(e, c);
        break;
    case RF_CMD_PREFILL:
        run_prefill(e, c);
        break;
    case RF_CMD_ROUND:
        run_round(e, c);
        break;
    case RF_CMD_MTP_NEXT:
        run_mtp_next(e, c);
        break;
    case RF_CMD_VERIFY:
        run_verify(e, c);
        break;
    case RF_CMD_WIDEN:
        run_widen(e, c);
        break;
    case RF_CMD_MASS:
        run_mass(e, c);
        break;
    case RF_CMD_STATE_HASH:
        run_state_hash(e, c);
        break;
    case RF_CMD_STATS:
        run_stats(e);
        break;
    case RF_CMD_QUIT:
        break;
    }
}

bool rf_engine_run(rf_engine *e, const rf_command *c)
{
    engine_step step = {e, c};

    if (c->head.kind == RF_CMD_QUIT)
        return false;
    e->b->ops->step(e->b, run_command, &step);
    return true;
}
