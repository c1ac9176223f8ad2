#include "round.h"

#include <stdlib.h>
#include <string.h>

#include "leader.h"

rf_leader *rf_leader_create(rf_engine *e, rf_comm *world, const rf_engine_spec *spec, const rf_selector *selector, bool hashes, rf_error *err)
{
    rf_leader *l = calloc(1, sizeof *l);

    if (!l) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for the leader");
        return NULL;
    }
    l->engine = e;
    l->world = world;
    l->spec = *spec;
    l->selector = selector;
    l->hashes = hashes;
    if (rf_command_create_for(&l->command, &spec->sizes, err) == 0 && rf_chooser_create(&l->chooser, spec, err) == 0)
        return l;
    rf_leader_destroy(l);
    return NULL;
}

void rf_leader_destroy(rf_leader *l)
{
    if (!l)
        return;
    rf_command_destroy(&l->command);
    rf_chooser_destroy(&l->chooser);
    free(l);
}

void rf_leader_send(rf_leader *l)
{
    rf_command_exchange(&l->command, l->world, true, l->idle);
    l->idle = l->command.head.idle_next != 0;
    rf_engine_run(l->engine, &l->command);
    l->status |= rf_engine_get(l->engine)->status;
}

uint32_t rf_leader_status(const rf_leader *l)
{
    return l->status;
}

static bool interrupted(const rf_leader *l)
{
    return (l->status & 0xff) != 0;
}

void rf_round_reset(rf_leader *l, rf_sequence *s)
{
    rf_command_begin(&l->command, RF_CMD_RESET);
    rf_command_add(&l->command, s->slot, 0, NULL, 0);
    rf_leader_send(l);
    s->n = s->generated = 0;
    s->n_commit = 0;
    s->has_anchor = false;
    s->stop = RF_STOP_NONE;
}

/* A generated token: counted, shown, and the reason to stop there, if any. */
static rf_stop take_token(rf_leader *l, rf_sequence *s, int32_t token, int64_t position, uint64_t hash)
{
    rf_stop stop = s->on_token(s->context, token, position, hash);

    s->generated++;
    s->anchor = token;
    s->has_anchor = true;
    if (stop == RF_STOP_NONE && s->n_predict >= 0 && s->generated >= s->n_predict)
        stop = RF_STOP_LIMIT;
    if (stop == RF_STOP_NONE && position >= (int64_t)l->spec.sizes.n_ctx)
        stop = RF_STOP_CONTEXT;
    if (stop == RF_STOP_NONE && interrupted(l))
        stop = RF_STOP_INTERRUPTED;
    return stop;
}

static void prefill_chunk(rf_leader *l, rf_sequence *s, const int32_t *tokens, size_t n, bool last)
{
    rf_command_seq *q;

    rf_command_begin(&l->command, RF_CMD_PREFILL);
    l->command.head.collect = rf_chooser_wants(&l->chooser, (rf_sequence *const *)&s, 1, l->hashes);
    q = rf_command_add(&l->command, s->slot, s->n, tokens, n);
    q->drafter = (int32_t)s->drafter;
    q->wants_row = last;
    q->seed = s->sampling.seed;
    q->temperature = s->sampling.temperature;
    rf_leader_send(l);
    s->n += (int64_t)n;
}

int rf_round_prefill(rf_leader *l, rf_sequence *s, const int32_t *tokens, size_t n_tokens, size_t chunk,
                     void (*progress)(void *context, size_t done, size_t all), void *context, rf_error *err)
{
    int32_t token;

    s->stop = RF_STOP_NONE;
    s->generated = 0;
    s->has_anchor = false;
    for (size_t done = 0; done < n_tokens;) {
        size_t n = n_tokens - done < chunk ? n_tokens - done : chunk;

        prefill_chunk(l, s, tokens + done, n, done + n == n_tokens);
        done += n;
        if (progress)
            progress(context, done, n_tokens);
        if (interrupted(l)) {
            s->stop = RF_STOP_INTERRUPTED;
            return 0;
        }
    }
    if (s->n_predict == 0) {
        s->stop = RF_STOP_LIMIT;
        return 0;
    }
    rf_chooser_begin(&l->chooser, l, 1);
    if (rf_choose(&l->chooser, l, s, 0, s->n, &token, err) != 0)
        return -1;
    s->stop = take_token(l, s, token, s->n, rf_chooser_hash(&l->chooser, 0));
    return 0;
}

/* ---- drafting */

static size_t drafts_wanted(const rf_leader *l, const rf_sequence *s)
{
    int64_t m = (int64_t)s->n_max, cap = RF_MAX_BLOCK - 1, room;

    if (s->drafter == RF_DRAFTER_NONE)
        return 0;
    if (s->drafter == RF_DRAFTER_DFLASH && (int64_t)l->spec.drafter->block_size - 1 < cap)
        cap = (int64_t)l->spec.drafter->block_size - 1;
    room = (int64_t)l->spec.sizes.n_ctx - (s->n + (int64_t)s->n_commit) - 1;
    m = m < cap ? m : cap;
    m = m < room ? m : room;
    if (s->n_predict >= 0 && s->n_predict - s->generated - 1 < m)
        m = s->n_predict - s->generated - 1;
    return m > 0 ? (size_t)m : 0;
}

static void add_round(rf_leader *l, rf_sequence *s, size_t m)
{
    bool fresh = s->n_commit > 0;
    rf_command_seq *q = rf_command_add(&l->command, s->slot, s->n, fresh ? s->fresh : &s->anchor, fresh ? s->n_commit : 1);

    q->drafter = (int32_t)s->drafter;
    q->n_commit = (int32_t)s->n_commit;
    q->n_draft = (int32_t)m;
}

static void committed(rf_sequence *s)
{
    s->n += (int64_t)s->n_commit;
    s->n_commit = 0;
}

/* Draws draft number s->n_drafts among n scored candidates; false: below p_min, drafting ends. */
static bool take_draft(rf_sequence *s, const float *scores, const int32_t *tokens, size_t n)
{
    size_t chosen = rf_sampler_draft(&s->sampling, s->n + 1 + (int64_t)s->n_drafts, scores, tokens, n);

    if (s->p_min > 0 && rf_draft_probability(scores, n, chosen) < s->p_min)
        return false;
    s->drafts[s->n_drafts++] = tokens[chosen];
    return true;
}

static size_t present(const rf_candidate *cand, size_t n)
{
    size_t k = 0;

    while (k < n && cand[k].id >= 0)
        k++;
    return k;
}

/* The walk of the selector (v1: every row's best) over one sequence's rows. */
static void walk(const rf_leader *l, rf_sequence *s, const rf_draft_row *rows, size_t n)
{
    const rf_dflash_params *p = l->spec.drafter;
    size_t k = p->v2 ? p->selector_top_k : RF_DRAFT_TOP_K;
    float scores[RF_MAX_DRAFT_K];
    int32_t tokens[RF_MAX_DRAFT_K], prev = s->anchor;
    rf_candidate cand[RF_MAX_DRAFT_K];

    for (size_t i = 0; i < n; i++) {
        size_t have = present(rows[i].cand, k);

        for (size_t j = 0; j < have; j++) {
            tokens[j] = rf_selector_token(l->selector, rows[i].cand[j].id);
            cand[j] = (rf_candidate){rows[i].cand[j].logit, tokens[j]};
        }
        rf_selector_scores(l->selector, prev, rows[i].selector, cand, have, scores);
        if (!have || !take_draft(s, scores, tokens, have))
            return;
        prev = s->drafts[s->n_drafts - 1];
    }
}

static bool take_mtp(rf_sequence *s, const rf_draft_row *row)
{
    float scores[RF_DRAFT_TOP_K];
    int32_t tokens[RF_DRAFT_TOP_K];
    size_t have = present(row->cand, RF_DRAFT_TOP_K);

    for (size_t j = 0; j < have; j++) {
        scores[j] = row->cand[j].logit;
        tokens[j] = row->cand[j].id;
    }
    return have && take_draft(s, scores, tokens, have);
}

/* Files the rows of the last drafting command; live[i] is the command's sequence i. going[i] counts MTP drafts still wanted. */
static void take_rows(rf_leader *l, rf_sequence *const *live, size_t *going)
{
    const rf_engine_result *r = rf_engine_get(l->engine);

    for (size_t at = 0; at < r->n_draft_rows;) {
        size_t i = r->draft[at].seq, n = 1;

        while (at + n < r->n_draft_rows && r->draft[at + n].seq == i)
            n++;
        if (live[i]->drafter == RF_DRAFTER_DFLASH)
            walk(l, live[i], r->draft + at, n);
        else
            going[i] = take_mtp(live[i], r->draft + at) ? going[i] - 1 : 0;
        at += n;
    }
}

static void mtp_chain(rf_leader *l, rf_sequence *const *live, size_t n, size_t *going)
{
    for (;;) {
        rf_sequence *chain[RF_MAX_SLOTS];
        size_t still[RF_MAX_SLOTS], index[RF_MAX_SLOTS], c = 0;

        rf_command_begin(&l->command, RF_CMD_MTP_NEXT);
        for (size_t i = 0; i < n; i++) {
            rf_command_seq *q;

            if (!going[i])
                continue;
            q = rf_command_add(&l->command, live[i]->slot, live[i]->n + (int64_t)live[i]->n_drafts,
                               &live[i]->drafts[live[i]->n_drafts - 1], 1);
            q->drafter = RF_DRAFTER_MTP;
            q->n_draft = 1;
            chain[c] = live[i];
            still[c] = going[i];
            index[c++] = i;
        }
        if (!c)
            return;
        rf_leader_send(l);
        take_rows(l, chain, still);
        for (size_t i = 0; i < c; i++)
            going[index[i]] = still[i];
    }
}

/* Commits the last round of every live sequence and drafts; a sequence that drafts nothing leaves n_drafts 0. When none drafts and none
 * needs its tokens (MTP entries), nothing is sent: verify commits. */
static void draft(rf_leader *l, rf_sequence *const *live, size_t n)
{
    size_t going[RF_MAX_SLOTS], wanted[RF_MAX_SLOTS];
    bool send = false;

    rf_command_begin(&l->command, RF_CMD_ROUND);
    for (size_t i = 0; i < n; i++) {
        live[i]->n_drafts = 0;
        wanted[i] = drafts_wanted(l, live[i]);
        going[i] = live[i]->drafter == RF_DRAFTER_MTP ? wanted[i] : 0;
        send = send || wanted[i] || live[i]->drafter == RF_DRAFTER_MTP;
    }
    if (!send)
        return;
    for (size_t i = 0; i < n; i++)
        add_round(l, live[i], wanted[i]);
    rf_leader_send(l);
    for (size_t i = 0; i < n; i++)
        committed(live[i]);
    take_rows(l, live, going);
    mtp_chain(l, live, n, going);
    for (size_t i = 0; i < n; i++)
        if (live[i]->n_drafts < live[i]->n_min)
            live[i]->n_drafts = 0;
}

/* ---- verifying */

static void verify(rf_leader *l, rf_sequence *const *live, size_t n)
{
    size_t rows = 0;

    rf_command_begin(&l->command, RF_CMD_VERIFY);
    l->command.head.collect = rf_chooser_wants(&l->chooser, live, n, l->hashes);
    for (size_t i = 0; i < n; i++) {
        rf_sequence *s = live[i];
        int32_t tokens[RF_MAX_BLOCK];
        rf_command_seq *q;

        tokens[0] = s->anchor;
        memcpy(tokens + 1, s->drafts, s->n_drafts * sizeof *tokens);
        q = rf_command_add(&l->command, s->slot, s->n, tokens, s->n_drafts + 1);
        q->drafter = (int32_t)s->drafter;
        q->n_commit = (int32_t)s->n_commit;
        q->seed = s->sampling.seed;
        q->temperature = s->sampling.temperature;
        rows += s->n_drafts + 1;
    }
    rf_leader_send(l);
    for (size_t i = 0; i < n; i++)
        committed(live[i]);
    rf_chooser_begin(&l->chooser, l, rows);
}

/* Whether draft j stands, given the token drawn in its place; a simulated acceptance replaces that token. */
static bool stands(const rf_sequence *s, size_t j, int32_t *token)
{
    if (j >= s->n_drafts)
        return false;
    if (!s->simulated)
        return *token == s->drafts[j];
    if (j < s->simulated_accepts)
        *token = s->drafts[j];
    return j < s->simulated_accepts;
}

/* Draws along the rows of one sequence until a draft differs or the sequence stops; what was drawn is committed by the next command. */
static int accept(rf_leader *l, rf_sequence *s, size_t first_row, rf_error *err)
{
    for (size_t j = 0;; j++) {
        int64_t position = s->n + 1 + (int64_t)j;
        int32_t token;
        bool stood;

        if (rf_choose(&l->chooser, l, s, first_row + j, position, &token, err) != 0)
            return -1;
        stood = stands(s, j, &token);
        s->fresh[j] = token;
        s->n_commit = j + 1;
        s->stop = take_token(l, s, token, position, rf_chooser_hash(&l->chooser, first_row + j));
        if (s->stop != RF_STOP_NONE || !stood) {
            rf_stats_round(&s->stats, s->n_drafts, j);
            return 0;
        }
    }
}

int rf_round_run(rf_leader *l, rf_sequence *const *seqs, size_t n, rf_error *err)
{
    rf_sequence *live[RF_MAX_SLOTS];
    size_t n_live = 0, row = 0;

    for (size_t i = 0; i < n; i++)
        if (seqs[i]->stop == RF_STOP_NONE)
            live[n_live++] = seqs[i];
    if (!n_live)
        return 0;
    draft(l, live, n_live);
    verify(l, live, n_live);
    for (size_t i = 0; i < n_live; i++) {
        size_t rows = live[i]->n_drafts + 1;

        if (accept(l, live[i], row, err) != 0)
            return -1;
        row += rows;
    }
    return 0;
}

void rf_round_settle(rf_leader *l, rf_sequence *const *seqs, size_t n)
{
    bool any = false;

    rf_command_begin(&l->command, RF_CMD_ROUND);
    for (size_t i = 0; i < n; i++)
        if (seqs[i]->n_commit) {
            add_round(l, seqs[i], 0);
            any = true;
        }
    if (any)
        rf_leader_send(l);
    for (size_t i = 0; i < n; i++)
        committed(seqs[i]);
}

/* ---- the rest */

uint64_t rf_leader_state_hash(rf_leader *l, const rf_sequence *s)
{
    rf_command_seq *q;

    rf_command_begin(&l->command, RF_CMD_STATE_HASH);
    q = rf_command_add(&l->command, s->slot, s->n, NULL, 0);
    q->drafter = (int32_t)s->drafter;
    rf_leader_send(l);
    return rf_engine_get(l->engine)->rows.mass;
}

uint64_t rf_leader_weight_bytes_read(rf_leader *l)
{
    rf_command_begin(&l->command, RF_CMD_STATS);
    rf_leader_send(l);
    return rf_engine_get(l->engine)->rows.mass;
}

void rf_leader_idle(rf_leader *l)
{
    rf_command_begin(&l->command, RF_CMD_STATS);
    l->command.head.idle_next = 1;
    rf_leader_send(l);
}

void rf_leader_quit(rf_leader *l, int exit_code)
{
    rf_command_begin(&l->command, RF_CMD_QUIT);
    l->command.head.exit_code = exit_code;
    rf_leader_send(l);
}
