#include "pretokenizer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "utf8.h"

struct rf_pretokenizer {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* NULL: no JIT */
};

typedef struct {
    const char *name, *pattern;
} rule_row;

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const rule_row rules[] = {
    {"qwen2", CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+" TAIL},
    {"qwen35", CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+" TAIL},
};

static const rule_row *find_rule(rf_text name)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strlen(rules[i].name) == name.length && memcmp(rules[i].name, name.data, name.length) == 0)
            return &rules[i];
    return NULL;
}

static int compile(rf_pretokenizer *p, const rule_row *rule, uint32_t match_limit, rf_error *err)
{
    int error_code;
    PCRE2_SIZE error_at;

    /* Anchored at compile time: as a match option it would switch the JIT off. */
    p->code = pcre2_compile((PCRE2_SPTR)rule->pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED,
                            &error_code, &error_at, NULL);
    if (!p->code) {
        PCRE2_UCHAR reason[120];

        pcre2_get_error_message(error_code, reason, sizeof reason);
        return rf_fail(err, RF_ERR_FILE, "splitting rule \"%s\": PCRE2 refuses it at character %zu: %s", rule->name,
                       (size_t)error_at, (const char *)reason);
    }
    p->match = pcre2_match_data_create(1, NULL);
    p->context = pcre2_match_context_create(NULL);
    if (!p->match || !p->context)
        return rf_fail(err, RF_ERR_MEMORY, "out of memory for the tokenizer's splitting rule");
    pcre2_set_match_limit(p->context, match_limit ? match_limit : UINT32_MAX);
    if (pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0) {
        p->stack = pcre2_jit_stack_create((size_t)32 << 10, (size_t)1 << 20, NULL);
        if (p->stack)
            pcre2_jit_stack_assign(p->context, NULL, p->stack);
    }
    return 0;
}

rf_pretokenizer *rf_pretokenizer_create(rf_text rule_name, uint32_t match_limit, rf_error *err)
{
    const rule_row *rule = find_rule(rule_name);
    rf_pretokenizer *p;

    if (!rule) {
        char name[64];

        rf_fail(err, RF_ERR_FILE, "tokenizer.ggml.pre is \"%s\": expected qwen2 or qwen35",
                rf_text_printable(rule_name, name, sizeof name));
        return NULL;
    }
    p = calloc(1, sizeof *p);
    if (!p) {
        rf_fail(err, RF_ERR_MEMORY, "out of memory for the tokenizer's splitting rule");
        return NULL;
    }
    if (compile(p, rule, match_limit, err) < 0) {
        rf_pretokenizer_destroy(p);
        return NULL;
    }
    return p;
}

void rf_pretokenizer_destroy(rf_pretokenizer *p)
{
    if (!p)
        return;
    pcre2_jit_stack_free(p->stack);
    pcre2_match_context_free(p->context);
    pcre2_match_data_free(p->match);
    pcre2_code_free(p->code);
    free(p);
}

size_t rf_pretokenizer_next(rf_pretokenizer *p, rf_text text, size_t start)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text.data;
    /* The caller has checked the UTF-8 once; a check in every match would make long texts quadratic. */
    int found = pcre2_match(p->code, subject, text.length, start, PCRE2_NO_UTF_CHECK, p->match, p->context);

    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found =
            pcre2_match(p->code, subject, text.length, start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, p->match, p->context);
    if (found > 0) {
        size_t end = pcre2_get_ovector_pointer(p->match)[1];

        if (end > start)
            return end;
    }
    return start + rf_utf8_length(text.data + start, text.length - start);
}
