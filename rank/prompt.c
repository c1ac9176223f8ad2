#include "config.h"

#include "prompt.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "console.h"
#include "generate.h"
#include "log.h"
#include "signals.h"

#define SIGNAL_POLL_MS 200 /* how often a waiting prompt looks for signals */

typedef struct {
    rf_job *job;
    rf_generator *generator;
    rf_sequence sequence;
    rf_stats total;
    rf_tokens turn;      /* tokens of the turn being put together */
    size_t n_turns;
    bool interactive;
} conversation;

static int begin(conversation *c, rf_job *job, bool interactive, rf_error *err)
{
    const rf_options *o = job->options;
    rf_generator_spec spec = {.tokenizer = job->tokenizer, .stop = o->stop, .n_stop = o->n_stop, .ignore_eog = o->ignore_eos,
                              .check = o->check, .chunk = (size_t)o->batch, .out = stdout};

    memset(c, 0, sizeof *c);
    c->job = job;
    c->interactive = interactive;
    c->generator = rf_generator_create(job->leader, &spec, err);
    if (!c->generator)
        return -1;
    rf_job_sequence(job, 0, &c->sequence);
    rf_round_reset(job->leader, &c->sequence);
    return 0;
}

static void end(conversation *c)
{
    rf_generator_destroy(c->generator);
    rf_tokens_free(&c->turn);
}

/* The turn's tokens; a later turn starts with the token sampled last, which is not processed yet. */
static int encode_turn(conversation *c, rf_text text, rf_error *err)
{
    rf_job *job = c->job;
    bool special = job->options->special;
    int32_t last = c->sequence.has_anchor ? c->sequence.anchor : rf_tokenizer_special(job->tokenizer, "<|im_end|>");

    rf_tokens_clear(&c->turn);
    if (c->sequence.n == 0)
        return job->chat ? rf_chat_first(job->chat, job->options->system, text, &c->turn, err)
                         : rf_raw_first(job->tokenizer, text, special, &c->turn, err);
    if (job->chat)
        return rf_chat_next(job->chat, last, text, &c->turn, err);
    if (c->sequence.has_anchor && rf_tokens_push(&c->turn, c->sequence.anchor) != 0)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for the prompt");
    return rf_tokenizer_encode(job->tokenizer, text, special, &c->turn, err);
}

static void report_turn(conversation *c)
{
    rf_sequence *s = &c->sequence;

    rf_stats_add(&c->total, &s->stats);
    if (c->interactive) {
        rf_log_info("turn %zu: %zu new tokens processed, %" PRId64 " of %zu positions used, %" PRId64 " generated (%s)", c->n_turns,
                    c->turn.count, s->n, c->job->sizes.n_ctx, s->generated, rf_stop_name(s->stop));
        rf_stats_print(&s->stats);
    } else {
        rf_log_info("stopped: %s", rf_stop_name(s->stop));
    }
}

/* One turn; text that does not fit is refused and leaves the conversation as it was. */
static int turn(conversation *c, rf_text text, rf_error *err)
{
    rf_sequence *s = &c->sequence;
    size_t room;

    if (encode_turn(c, text, err) != 0)
        return -1;
    room = c->job->sizes.n_ctx - (size_t)s->n;
    if (!c->turn.count)
        return rf_fail(err, RF_ERR_USAGE, "the prompt is empty");
    if (c->turn.count > room)
        return rf_fail(err, RF_ERR_USAGE, "the prompt has %zu tokens, but %zu of the context's %zu positions are left%s", c->turn.count, room,
                       c->job->sizes.n_ctx, c->interactive ? " (/reset starts anew)" : " (-c sets the context)");
    c->n_turns++;
    s->n_predict = c->job->options->n_predict;
    memset(&s->stats, 0, sizeof s->stats);
    if (rf_generate(c->generator, s, c->turn.id, c->turn.count, err) != 0)
        return -1;
    report_turn(c);
    return 0;
}

static int signal_of(const conversation *c)
{
    int here = rf_signal_seen();

    return here ? here : (int)(rf_leader_status(c->job->leader) & 0xff);
}

static void report_total(conversation *c)
{
    if (rf_leader_status(c->job->leader) & RF_STATUS_NONFINITE)
        rf_log_warn("the target's hidden states held NaN or infinity; the drafter read 0 or +-65504 in their place");
    if (c->interactive)
        rf_log_info("all %zu turns:", c->n_turns);
    rf_stats_print(&c->total);
    if (c->job->options->json)
        rf_stats_print_json(&c->total, rf_drafter_name(c->sequence.drafter), rf_stop_name(c->sequence.stop));
}

int rf_prompt_once(rf_job *job, int *signal_seen, rf_error *err)
{
    conversation c;
    int failed;

    if (begin(&c, job, false, err) != 0)
        return -1;
    failed = turn(&c, job->options->prompt, err);
    if (!failed) {
        if (isatty(STDOUT_FILENO) && !rf_generator_at_line_start(c.generator))
            fputc('\n', stdout);
        report_total(&c);
    }
    *signal_seen = signal_of(&c);
    end(&c);
    return failed;
}

typedef enum { COMMAND_NONE, COMMAND_DONE, COMMAND_QUIT } command_result;

static bool is(rf_text line, const char *word)
{
    return line.length == strlen(word) && memcmp(line.data, word, line.length) == 0;
}

static command_result run_command(conversation *c, rf_text line)
{
    if (is(line, "/quit"))
        return COMMAND_QUIT;
    if (is(line, "/help")) {
        rf_log_info("/help  this text\n/reset  forget the conversation\n/stats  speed and acceptance so far\n/quit  end\n"
                    "A line ending in \\ goes on in the next.");
        return COMMAND_DONE;
    }
    if (is(line, "/stats")) {
        rf_stats_print(&c->total);
        return COMMAND_DONE;
    }
    if (is(line, "/reset")) {
        rf_round_reset(c->job->leader, &c->sequence);
        rf_log_info("conversation forgotten");
        return COMMAND_DONE;
    }
    return COMMAND_NONE;
}

/* false: end of input or a signal */
static bool next_line(conversation *c, rf_console *console, rf_text *line, rf_error *err)
{
    rf_console_marker(stdout);
    rf_leader_idle(c->job->leader);
    for (;;) {
        switch (rf_console_read_line(console, SIGNAL_POLL_MS, line, err)) {
        case RF_CONSOLE_LINE:
            return true;
        case RF_CONSOLE_EOF:
            return false;
        case RF_CONSOLE_FAILED:
            rf_log_error("standard input: %s", err->text);
            return false;
        case RF_CONSOLE_TIMEOUT:
            if (rf_signal_seen())
                return false;
        }
    }
}

static int answer(conversation *c, rf_text line, rf_error *err)
{
    if (turn(c, line, err) != 0) {
        if (err->code != RF_ERR_USAGE)
            return -1;
        rf_log_error("%s", err->text); /* this turn does not fit; the conversation goes on */
        return 0;
    }
    if (!rf_generator_at_line_start(c->generator))
        fputc('\n', stdout);
    fflush(stdout);
    return 0;
}

int rf_prompt_converse(rf_job *job, int *signal_seen, rf_error *err)
{
    conversation c;
    rf_console *console;
    rf_text line;
    int failed = 0;

    if (begin(&c, job, true, err) != 0)
        return -1;
    console = rf_console_create(STDIN_FILENO, err);
    if (!console) {
        end(&c);
        return -1;
    }
    while (!failed && !signal_of(&c) && next_line(&c, console, &line, err)) {
        command_result command = run_command(&c, line);

        if (command == COMMAND_QUIT)
            break;
        if (command == COMMAND_NONE && line.length)
            failed = answer(&c, line, err);
    }
    if (!failed)
        report_total(&c);
    *signal_seen = signal_of(&c);
    rf_console_destroy(console);
    end(&c);
    return failed;
}
