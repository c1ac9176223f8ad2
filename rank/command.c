#include "command.h"

#include <stdlib.h>
#include <string.h>

static size_t seqs_bytes(size_t n)
{
    return n * sizeof(rf_command_seq);
}

int rf_command_create(rf_command *c, size_t max_seqs, size_t max_tokens, rf_error *err)
{
    size_t bytes = sizeof(rf_command_head) + seqs_bytes(max_seqs) + max_tokens * sizeof(int32_t);

    memset(c, 0, sizeof *c);
    c->max_seqs = max_seqs;
    c->max_tokens = max_tokens;
    c->seqs = calloc(max_seqs, sizeof *c->seqs);
    c->tokens = calloc(max_tokens, sizeof *c->tokens);
    c->bytes = calloc(1, bytes > RF_COMMAND_BYTES ? bytes : RF_COMMAND_BYTES);
    if (c->seqs && c->tokens && c->bytes)
        return 0;
    rf_command_destroy(c);
    return rf_fail(err, RF_ERR_MEMORY, "no memory for commands of %zu tokens", max_tokens);
}

int rf_command_create_for(rf_command *c, const rf_model_sizes *sizes, rf_error *err)
{
    size_t slots = sizes->n_slots < RF_MAX_SLOTS ? sizes->n_slots : RF_MAX_SLOTS, block = slots * RF_MAX_BLOCK;

    return rf_command_create(c, slots, sizes->max_rows > block ? sizes->max_rows : block, err);
}

void rf_command_destroy(rf_command *c)
{
    free(c->seqs);
    free(c->tokens);
    free(c->bytes);
    memset(c, 0, sizeof *c);
}

void rf_command_begin(rf_command *c, rf_command_kind kind)
{
    memset(&c->head, 0, sizeof c->head);
    c->head.kind = (int32_t)kind;
}

rf_command_seq *rf_command_add(rf_command *c, int32_t slot, int64_t first_pos, const int32_t *tokens, size_t n_tokens)
{
    rf_command_seq *s = &c->seqs[c->head.n_seqs++];

    memset(s, 0, sizeof *s);
    s->slot = slot;
    s->first_pos = first_pos;
    s->n_tokens = (int32_t)n_tokens;
    if (n_tokens)
        memcpy(c->tokens + c->head.n_tokens, tokens, n_tokens * sizeof *tokens);
    c->head.n_tokens += (int32_t)n_tokens;
    return s;
}

static size_t pack(const rf_command *c)
{
    size_t n_seqs = seqs_bytes((size_t)c->head.n_seqs), n_tokens = (size_t)c->head.n_tokens * sizeof(int32_t);
    unsigned char *p = c->bytes;

    memcpy(p, &c->head, sizeof c->head);
    p += sizeof c->head;
    memcpy(p, c->seqs, n_seqs);
    memcpy(p + n_seqs, c->tokens, n_tokens);
    return sizeof c->head + n_seqs + n_tokens;
}

static size_t unpack_head(rf_command *c)
{
    memcpy(&c->head, c->bytes, sizeof c->head);
    return sizeof c->head + seqs_bytes((size_t)c->head.n_seqs) + (size_t)c->head.n_tokens * sizeof(int32_t);
}

static void unpack_rest(rf_command *c)
{
    const unsigned char *p = c->bytes + sizeof c->head;
    size_t n_seqs = seqs_bytes((size_t)c->head.n_seqs);

    memcpy(c->seqs, p, n_seqs);
    memcpy(c->tokens, p + n_seqs, (size_t)c->head.n_tokens * sizeof(int32_t));
}

void rf_command_exchange(rf_command *c, rf_comm *world, bool leader, bool idle)
{
    size_t bytes = leader ? pack(c) : 0;

    if (idle)
        rf_comm_bcast_idle(world, c->bytes, RF_COMMAND_BYTES);
    else
        rf_comm_bcast(world, 0, c->bytes, RF_COMMAND_BYTES);
    if (!leader)
        bytes = unpack_head(c);
    if (bytes > RF_COMMAND_BYTES)
        rf_comm_bcast(world, 0, c->bytes + RF_COMMAND_BYTES, bytes - RF_COMMAND_BYTES);
    if (!leader)
        unpack_rest(c);
}
