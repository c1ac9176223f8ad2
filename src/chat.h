/* ChatML: what is put around a user's text to make it a turn of a conversation, as token ids.
 *
 *   <|im_start|>system\n{system}<|im_end|>\n      if there is a system text
 *   <|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n
 *   <think>\n                                     reasoning on
 *   <think>\n\n</think>\n\n                       reasoning off
 *
 * Control tokens are put by the template. Those written in a user's or system's text stay text unless parse_special. */
#ifndef RF_CHAT_H
#define RF_CHAT_H

#include "modes.h"
#include "tokenizer.h"

typedef struct rf_chat rf_chat;

typedef struct {
    rf_text chat_template;  /* tokenizer.chat_template of the file, absent: NULL */
    rf_reasoning reasoning; /* auto: on if the template mentions <think>, else nothing. Nothing if the vocabulary lacks
                               <think>. */
    bool parse_special;     /* --special */
} rf_chat_options;

/* t must outlive the chat. NULL and *err if the template is not ChatML (the sentence says --raw). */
rf_chat *rf_chat_create(rf_tokenizer *t, const rf_chat_options *options, rf_error *err);
void rf_chat_destroy(rf_chat *c);

/* Append a conversation's first turn; system may be absent. 0, or -1 with *err. */
int rf_chat_first(rf_chat *c, rf_text system, rf_text user, rf_tokens *out, rf_error *err);
/* Append a later turn. `last` is the token sampled last, not yet processed by the network: the turn starts with it,
 * then
 * <|im_end|> if it is another token, then "\n". */
int rf_chat_next(rf_chat *c, int32_t last, rf_text user, rf_tokens *out, rf_error *err);

typedef enum { RF_CHAT_SYSTEM, RF_CHAT_USER, RF_CHAT_ASSISTANT } rf_chat_role;
typedef struct {
    rf_chat_role role;
    rf_text text;
} rf_chat_message;

/* Append a whole conversation that waits for its answer: n >= 1 messages, the last one the user's. 0, or -1 with *err. */
int rf_chat_conversation(rf_chat *c, const rf_chat_message *messages, size_t n, rf_tokens *out, rf_error *err);

/* --raw: the text alone (after the bos token if the file wants one). */
int rf_raw_first(rf_tokenizer *t, rf_text text, bool parse_special, rf_tokens *out, rf_error *err);

#endif
