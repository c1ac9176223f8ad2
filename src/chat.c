#include "chat.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"

struct rf_chat {
    rf_tokenizer *tokenizer;
    bool parse_special;
    int32_t im_start, im_end;
    const char *answer; /* what starts the answer, after <|im_start|> */
};

static rf_text of(const char *word)
{
    return (rf_text){word, strlen(word)};
}

static bool contains(rf_text text, const char *word)
{
    size_t length = strlen(word);

    for (size_t i = 0; i + length <= text.length; i++)
        if (memcmp(text.data + i, word, length) == 0)
            return true;
    return false;
}

static const char *answer_start(const rf_chat *c, const rf_chat_options *o)
{
    rf_reasoning reasoning = o->reasoning;
    bool possible = rf_tokenizer_special(c->tokenizer, "<think>") >= 0;

    if (reasoning == RF_REASONING_AUTO)
        return possible && contains(o->chat_template, "<think>") ? "assistant\n<think>\n" : "assistant\n";
    if (!possible) {
        rf_log_warn("--reasoning %s changes nothing: the vocabulary has no <think>",
                    reasoning == RF_REASONING_ON ? "on" : "off");
        return "assistant\n";
    }
    return reasoning == RF_REASONING_ON ? "assistant\n<think>\n" : "assistant\n<think>\n\n</think>\n\n";
}

rf_chat *rf_chat_create(rf_tokenizer *t, const rf_chat_options *o, rf_error *err)
{
    rf_chat *c;

    if (!o->chat_template.data) {
        rf_fail(err, RF_ERR_USAGE, "the model file has no chat template: add --raw to send the text as it is");
        return NULL;
    }
    if (!contains(o->chat_template, "<|im_start|>")) {
        rf_fail(err, RF_ERR_USAGE,
                "the model's chat template is not ChatML (no <|im_start|> in it), which is the only one known: "
                "add --raw to send the text as it is");
        return NULL;
    }
    c = calloc(1, sizeof *c);
    if (!c) {
        rf_fail(err, RF_ERR_MEMORY, "out of memory for the chat template");
        return NULL;
    }
    c->tokenizer = t;
    c->parse_special = o->parse_special;
    c->im_start = rf_tokenizer_special(t, "<|im_start|>");
    c->im_end = rf_tokenizer_special(t, "<|im_end|>");
    if (c->im_start < 0 || c->im_end < 0) {
        rf_fail(err, RF_ERR_FILE, "the chat template is ChatML, but the vocabulary has no %s: use --raw",
                c->im_start < 0 ? "<|im_start|>" : "<|im_end|>");
        rf_chat_destroy(c);
        return NULL;
    }
    c->answer = answer_start(c, o);
    return c;
}

void rf_chat_destroy(rf_chat *c)
{
    free(c);
}

static int push(int32_t id, rf_tokens *out, rf_error *err)
{
    return rf_tokens_push(out, id) < 0 ? rf_fail(err, RF_ERR_MEMORY, "out of memory for the prompt") : 0;
}

/* role "user\n" and the text are tokenised as one: the newline may merge with what follows, as it does in the
 * template's text. */
static int message(rf_chat *c, const char *role, rf_text text, rf_tokens *out, rf_error *err)
{
    size_t role_length = strlen(role);
    char *joined = malloc(role_length + 1 + text.length);
    int result;

    if (!joined)
        return rf_fail(err, RF_ERR_MEMORY, "out of memory for the prompt");
    memcpy(joined, role, role_length);
    joined[role_length] = '\n';
    if (text.length)
        memcpy(joined + role_length + 1, text.data, text.length);
    result = push(c->im_start, out, err);
    if (result == 0)
        result = rf_tokenizer_encode(c->tokenizer, (rf_text){joined, role_length + 1 + text.length}, c->parse_special,
                                     out, err);
    free(joined);
    return result < 0 ? -1 : push(c->im_end, out, err);
}

static int newline(rf_chat *c, rf_tokens *out, rf_error *err)
{
    return rf_tokenizer_encode(c->tokenizer, of("\n"), false, out, err);
}

static int answer(rf_chat *c, rf_tokens *out, rf_error *err)
{
    if (newline(c, out, err) < 0 || push(c->im_start, out, err) < 0)
        return -1;
    return rf_tokenizer_encode(c->tokenizer, of(c->answer), true, out, err);
}

static int question(rf_chat *c, rf_text user, rf_tokens *out, rf_error *err)
{
    return message(c, "user", user, out, err) < 0 ? -1 : answer(c, out, err);
}

static int start(const rf_tokenizer *t, rf_tokens *out, rf_error *err)
{
    return rf_tokenizer_bos(t) >= 0 ? push(rf_tokenizer_bos(t), out, err) : 0;
}

int rf_chat_first(rf_chat *c, rf_text system, rf_text user, rf_tokens *out, rf_error *err)
{
    if (start(c->tokenizer, out, err) < 0)
        return -1;
    if (system.data && (message(c, "system", system, out, err) < 0 || newline(c, out, err) < 0))
        return -1;
    return question(c, user, out, err);
}

int rf_chat_next(rf_chat *c, int32_t last, rf_text user, rf_tokens *out, rf_error *err)
{
    if (push(last, out, err) < 0 || (last != c->im_end && push(c->im_end, out, err) < 0) || newline(c, out, err) < 0)
        return -1;
    return question(c, user, out, err);
}

int rf_chat_conversation(rf_chat *c, const rf_chat_message *messages, size_t n, rf_tokens *out, rf_error *err)
{
    static const char *const roles[] = {"system", "user", "assistant"};

    if (start(c->tokenizer, out, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if ((i > 0 && newline(c, out, err) < 0) || message(c, roles[messages[i].role], messages[i].text, out, err) < 0)
            return -1;
    return answer(c, out, err);
}

int rf_raw_first(rf_tokenizer *t, rf_text text, bool parse_special, rf_tokens *out, rf_error *err)
{
    return start(t, out, err) < 0 ? -1 : rf_tokenizer_encode(t, text, parse_special, out, err);
}
