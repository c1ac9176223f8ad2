/* A batch's parts: lines of any kind, requests and their errors, what counts as done, what a crash leaves. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../rank/batch_files.h"
#include "../rank/batch_lines.h"
#include "../rank/batch_request.h"
#include "check.h"

static char folder[] = "/tmp/rf-batch-XXXXXX";
static char in[64], out[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(in, sizeof in, "%s/in", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(in);
    unlink(out);
    return rmdir(folder);
}

static void put(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void put_text(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

static void assert_holds(const char *path, const char *text)
{
    char got[4096];
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = 0;
    fclose(f);
    assert_string_equal(got, text);
}

/* ---- lines */

static void lines_of_any_kind(void **state)
{
    static const char text[] = "one\n\ntw\0o\r\nthree";
    rf_lines lines;
    rf_line line;
    rf_error err;
    int fd;

    (void)state;
    put(in, text, sizeof text - 1);
    fd = open(in, O_RDONLY);
    rf_lines_begin(&lines, fd, in);
    assert_int_equal(rf_lines_next(&lines, &line, &err), 1);
    assert_true(line.text.length == 3 && line.number == 1 && line.offset == 0 && line.whole && !line.too_long);
    assert_int_equal(rf_lines_next(&lines, &line, &err), 1);
    assert_true(line.text.length == 0 && line.number == 2 && line.offset == 4);
    assert_int_equal(rf_lines_next(&lines, &line, &err), 1);
    assert_true(line.text.length == 5 && line.offset == 5);
    assert_memory_equal(line.text.data, "tw\0o\r", 5);
    assert_int_equal(rf_lines_next(&lines, &line, &err), 1);
    assert_true(line.text.length == 5 && line.number == 4 && line.offset == 11 && !line.whole);
    assert_int_equal(rf_lines_next(&lines, &line, &err), 0);
    assert_int_equal(rf_lines_next(&lines, &line, &err), 0);
    rf_lines_end(&lines);
    close(fd);
}

/* Lengths around the limit, a line of several limits, and what follows it. */
static void lines_that_are_too_long(void **state)
{
    const size_t lengths[] = {RF_LONGEST_LINE - 1, RF_LONGEST_LINE, RF_LONGEST_LINE + 1, 2 * RF_LONGEST_LINE + 12345, 3};
    const size_t n = sizeof lengths / sizeof *lengths;
    int64_t offset = 0;
    rf_lines lines;
    rf_line line;
    rf_error err;
    FILE *f = fopen(in, "wb");
    int fd;

    (void)state;
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(fseek(f, (long)lengths[i], SEEK_CUR), 0); /* a hole: zeros */
        assert_int_equal(fputc('\n', f), '\n');
    }
    assert_int_equal(fclose(f), 0);
    fd = open(in, O_RDONLY);
    rf_lines_begin(&lines, fd, in);
    for (size_t i = 0; i < n; i++) {
        bool longer = lengths[i] > RF_LONGEST_LINE;

        assert_int_equal(rf_lines_next(&lines, &line, &err), 1);
        assert_int_equal(line.too_long, longer);
        assert_true(line.whole);
        assert_int_equal(line.text.length, longer ? RF_LONGEST_LINE : lengths[i]);
        assert_int_equal(line.offset, offset);
        offset += (int64_t)lengths[i] + 1;
    }
    assert_int_equal(rf_lines_next(&lines, &line, &err), 0);
    rf_lines_end(&lines);
    close(fd);
}

/* ---- requests */

static rf_options options_of(bool raw)
{
    rf_options o;

    rf_options_defaults(&o);
    o.raw = raw;
    return o;
}

static void requests(void **state)
{
    static const char text[] = "{\"id\": \"a\", \"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"content\": \"u\\u0000v\", "
                               "\"role\": \"user\"}], \"max_tokens\": 7, \"temperature\": 0.5, \"top_k\": 3, \"top_p\": 0.25, "
                               "\"min_p\": 0, \"seed\": 9007199254740993, \"stop\": [\"x\", \"yz\"]}";
    rf_options o = options_of(false);
    rf_text stops[] = {{"END", 3}};
    rf_request r;
    rf_error err;

    (void)state;
    o.stop = stops;
    o.n_stop = 1;
    assert_int_equal(rf_request_parse(&r, (rf_text){text, sizeof text - 1}, &o, &err), 0);
    assert_string_equal(json_string_value(r.id), "a");
    assert_true(r.n_messages == 2 && r.messages[0].role == RF_CHAT_SYSTEM && r.messages[1].role == RF_CHAT_USER);
    assert_true(r.messages[1].text.length == 3 && memcmp(r.messages[1].text.data, "u\0v", 3) == 0);
    assert_true(r.n_predict == 7 && r.sampling.temperature == 0.5 && r.sampling.top_k == 3 && r.sampling.top_p == 0.25);
    assert_true(r.sampling.min_p == 0 && r.sampling.seed == 9007199254740993u);
    assert_true(r.n_stop == 3 && r.stop[0].length == 3 && r.stop[2].length == 2);
    rf_request_free(&r);
}

/* The command line's where the request says nothing; a seed of the id where neither says one. */
static void what_requests_leave_open(void **state)
{
    rf_options o = options_of(true);
    rf_request r, other;
    rf_error err;

    (void)state;
    o.n_predict = 12;
    o.temperature = 0.125;
    assert_int_equal(rf_request_parse(&r, (rf_text){"{\"id\":7,\"prompt\":\"\"}", 20}, &o, &err), 0);
    assert_true(r.n_predict == 12 && r.sampling.temperature == 0.125 && r.sampling.top_k == 40 && !r.messages && r.prompt.length == 0);
    assert_int_equal(rf_request_parse(&other, (rf_text){"{\"id\":8,\"prompt\":\"\"}", 20}, &o, &err), 0);
    assert_true(r.sampling.seed != other.sampling.seed);
    assert_true(r.sampling.seed < (uint64_t)1 << 53);
    assert_true(r.sampling.seed == rf_request_seed(r.id, 0));
    assert_true(rf_request_seed(r.id, 0) != rf_request_seed(r.id, 1));
    rf_request_free(&other);
    o.seed_given = true;
    o.seed = 1;
    assert_int_equal(rf_request_parse(&other, (rf_text){"{\"id\":7,\"prompt\":\"\"}", 20}, &o, &err), 0);
    assert_true(other.sampling.seed == rf_request_seed(r.id, 1));
    rf_request_free(&other);
    rf_request_free(&r);
}

static void requests_that_cannot_be(void **state)
{
    static const struct {
        const char *line, *words;
    } cases[] = {
        {"", "not JSON"},
        {"{\"id\": 1, \"prompt\": \"a\"", "not JSON"},
        {"{\"id\": 1, \"id\": 1, \"prompt\": \"a\"}", "not JSON: duplicate"},
        {"{\"id\": 1, \"prompt\": \"\xff\"}", "not JSON"},
        {"[]", "expected an object"},
        {"{\"prompt\": \"a\"}", "no \"id\""},
        {"{\"id\": null, \"prompt\": \"a\"}", "\"id\": expected"},
        {"{\"id\": \"\", \"prompt\": \"a\"}", "\"id\": expected"},
        {"{\"id\": 1.5, \"prompt\": \"a\"}", "\"id\": expected"},
        {"{\"id\": 1}", "no \"prompt\" and no \"messages\""},
        {"{\"id\": 1, \"prompt\": 5}", "\"prompt\": expected a string"},
        {"{\"id\": 1, \"prompt\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"\"}]}", "give one of them"},
        {"{\"id\": 1, \"messages\": []}", "\"messages\": expected"},
        {"{\"id\": 1, \"messages\": {}}", "\"messages\": expected"},
        {"{\"id\": 1, \"messages\": [1]}", "message 1: expected"},
        {"{\"id\": 1, \"messages\": [{\"role\": \"tool\", \"content\": \"\"}]}", "message 1: expected the role"},
        {"{\"id\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"\", \"name\": \"\"}]}", "message 1: expected {"},
        {"{\"id\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"system\", \"content\": \"\"}]}", "message 2: the system's"},
        {"{\"id\": 1, \"messages\": [{\"role\": \"assistant\", \"content\": \"\"}]}", "not the user's"},
        {"{\"id\": 1, \"prompt\": \"a\", \"n\": -2}", "\"n\": expected a whole number from -1"},
        {"{\"id\": 1, \"prompt\": \"a\", \"n\": 1.5}", "\"n\": expected"},
        {"{\"id\": 1, \"prompt\": \"a\", \"n\": 1, \"max_tokens\": 2}", "mean the same"},
        {"{\"id\": 1, \"prompt\": \"a\", \"max_tokens\": 1, \"n_predict\": 2}", "mean the same"},
        {"{\"id\": 1, \"prompt\": \"a\", \"temp\": -0.1}", "\"temp\": expected"},
        {"{\"id\": 1, \"prompt\": \"a\", \"temp\": 1e300}", "\"temp\": expected"},
        {"{\"id\": 1, \"prompt\": \"a\", \"temp\": 1, \"temperature\": 1}", "mean the same"},
        {"{\"id\": 1, \"prompt\": \"a\", \"top_p\": 1.1}", "\"top_p\": expected a number from 0 to 1"},
        {"{\"id\": 1, \"prompt\": \"a\", \"min_p\": \"1\"}", "\"min_p\": expected"},
        {"{\"id\": 1, \"prompt\": \"a\", \"top_k\": -1}", "\"top_k\": expected"},
        {"{\"id\": 1, \"prompt\": \"a\", \"seed\": -1}", "\"seed\": expected"},
        {"{\"id\": 1, \"prompt\": \"a\", \"seed\": 99999999999999999999}", "not JSON"},
        {"{\"id\": 1, \"prompt\": \"a\", \"stop\": \"\"}", "\"stop\": expected"},
        {"{\"id\": 1, \"prompt\": \"a\", \"stop\": [\"a\", 1]}", "\"stop\": expected"},
        {"{\"id\": 1, \"prompt\": \"a\", \"top_pp\": 1}", "\"top_pp\" is no key"},
        {"{\"id\": 1, \"prompt\": \"a\", \"\\u001b[2J\": 1}", "\"?[2J\" is no key"},
    };
    rf_options o = options_of(false);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rf_request r;
        rf_error err;

        if (rf_request_parse(&r, (rf_text){cases[i].line, strlen(cases[i].line)}, &o, &err) == 0)
            fail_msg("accepted: %s", cases[i].line);
        if (err.code != RF_ERR_USAGE || !strstr(err.text, cases[i].words))
            fail_msg("%s: %s", cases[i].line, err.text);
        rf_request_free(&r);
    }
}

static void messages_need_the_template(void **state)
{
    static const char text[] = "{\"id\":1,\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}";
    rf_options o = options_of(true);
    rf_request r;
    rf_error err;

    (void)state;
    assert_int_equal(rf_request_parse(&r, (rf_text){text, sizeof text - 1}, &o, &err), -1);
    assert_non_null(strstr(err.text, "--raw"));
    assert_int_equal(json_integer_value(r.id), 1);
    rf_request_free(&r);
}

/* ---- files */

static rf_batch_files *open_files(void)
{
    rf_error err;
    rf_batch_files *f = rf_batch_files_open(in, out, &err);

    if (!f)
        fail_msg("%s", err.text);
    return f;
}

static void refused(const char *input, const char *output, rf_code code, const char *words)
{
    rf_error err;

    if (rf_batch_files_open(input, output, &err))
        fail_msg("opened: %s", words);
    assert_int_equal(err.code, code);
    if (!strstr(err.text, words))
        fail_msg("%s", err.text);
}

static void assert_next(rf_batch_files *f, size_t number, bool again)
{
    rf_batch_line line;
    rf_error err;

    assert_int_equal(rf_batch_files_next(f, &line, &err), 1);
    assert_int_equal(line.number, number);
    assert_int_equal(line.again, again);
}

static void assert_no_more(rf_batch_files *f)
{
    rf_batch_line line;
    rf_error err;

    assert_int_equal(rf_batch_files_next(f, &line, &err), 0);
}

static void what_is_done(void **state)
{
    static const char results[] = "{\"id\":\"1\",\"text\":\"\"}\n{\"id\":3,\"line\":5,\"error\":\"\"}\n\n{\"id\":null,\"line\":2,\"error\":\"\"}\n"
                                  "{\"id\":\"gone\",\"text\":\"\"}\n{\"id\":\"1\",\"line\":9,\"error\":\"twice\"}\n";
    rf_batch_files *f;
    rf_batch_counts c;

    (void)state;
    /*             1: as a string    2: no JSON  3: another id 4: the same again 5: done        6  7, 8: blank  9: again, said 10 */
    put_text(in, "{\"id\":\"1\"}\nnothing\n{\"id\":1}\n{\"id\":1}\n{\"id\":3}\n{\"x\":1}\n\n \t\r\n{\"id\":\"1\"}\n{\"id\":2}");
    put_text(out, results);
    f = open_files();
    c = rf_batch_files_counts(f);
    assert_int_equal(c.requests, 8);
    assert_int_equal(c.done, 4);
    assert_int_equal(c.failed, 3);
    assert_next(f, 3, false);
    assert_next(f, 4, true);
    assert_next(f, 6, false);
    assert_next(f, 10, false);
    assert_no_more(f);
    rf_batch_files_close(f);
    assert_holds(out, results);
}

/* An error counts for the line it was found in: after an edit of the input it is no one else's. */
static void errors_do_not_wander(void **state)
{
    rf_batch_files *f;

    (void)state;
    put_text(in, "{\"id\":\"a\"}\n{\"id\":\"b\"}\n");
    put_text(out, "{\"id\":\"b\",\"line\":3,\"error\":\"\"}\n{\"id\":null,\"line\":1,\"error\":\"\"}\n");
    f = open_files();
    assert_next(f, 1, false);
    assert_next(f, 2, false);
    assert_no_more(f);
    rf_batch_files_close(f);
}

static void put_result(rf_batch_files *f, const char *id)
{
    rf_error err;

    assert_int_equal(rf_batch_files_put(f, json_pack("{s:s, s:s}", "id", id, "text", "t"), &err), 0);
    assert_int_equal(rf_batch_files_sync(f, &err), 0);
}

static void torn_lines(void **state)
{
    static const struct {
        const char *tail;
        size_t n;
    } tails[] = {{"{", 1}, {"{\"id\":\"b\",\"te", 13}, {"{\"id\":\"b\",\"text\":\"t\"}", 22}, {"\0\0\0", 3}};

    (void)state;
    put_text(in, "{\"id\":\"a\"}\n{\"id\":\"b\"}\n");
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        char bytes[64] = "{\"id\":\"a\",\"text\":\"t\"}\n";
        size_t n = strlen(bytes);
        rf_batch_files *f;

        memcpy(bytes + n, tails[i].tail, tails[i].n);
        put(out, bytes, n + tails[i].n);
        f = open_files();
        assert_next(f, 2, false);
        put_result(f, "b");
        rf_batch_files_close(f);
        assert_holds(out, "{\"id\":\"a\",\"text\":\"t\"}\n{\"id\":\"b\",\"text\":\"t\"}\n");
    }
}

/* A file that is something else stays what it is. */
static void other_files(void **state)
{
    static const char *const others[] = {"dear diary\n", "dear diary", "{\"id\":1}\n", "{\"id\":1,\"prompt\":\"a\"}",
                                         "{\"id\":1,\"text\":\"\"}\nx", "{\"id\":1,\"error\":\"\"}\n", "[]\n"};
    struct stat st;

    (void)state;
    put_text(in, "{\"id\":1}\n");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        put_text(out, others[i]);
        refused(in, out, RF_ERR_FILE, "is no result of a batch");
        assert_holds(out, others[i]);
    }
    refused(in, in, RF_ERR_USAGE, "the same file");
    refused(in, "/dev/null", RF_ERR_USAGE, "no regular file");
    refused(in, folder, RF_ERR_FILE, "cannot write to");
    refused(folder, out, RF_ERR_FILE, "is a folder");
    unlink(out);
    refused("/nonexistent/in", out, RF_ERR_FILE, "cannot open");
    assert_int_equal(stat(out, &st), -1); /* an output is not made for an input that is not there */
}

static void one_job_at_a_time(void **state)
{
    rf_batch_files *f;

    (void)state;
    unlink(out);
    put_text(in, "{\"id\":1}\n");
    f = open_files();
    refused(in, out, RF_ERR_FILE, "another job is writing to");
    rf_batch_files_close(f);
    f = open_files();
    rf_batch_files_close(f);
    assert_holds(out, "");
}

static void an_input_that_shrinks(void **state)
{
    rf_batch_files *f;
    rf_batch_line line;
    rf_error err;

    (void)state;
    put_text(in, "{\"id\":1}\n{\"id\":2}\n");
    f = open_files();
    assert_next(f, 1, false);
    assert_int_equal(truncate(in, 12), 0);
    assert_int_equal(rf_batch_files_next(f, &line, &err), -1);
    assert_non_null(strstr(err.text, "became shorter"));
    rf_batch_files_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_any_kind),        cmocka_unit_test(lines_that_are_too_long),    cmocka_unit_test(requests),
        cmocka_unit_test(what_requests_leave_open), cmocka_unit_test(requests_that_cannot_be),    cmocka_unit_test(messages_need_the_template),
        cmocka_unit_test(what_is_done),             cmocka_unit_test(errors_do_not_wander),       cmocka_unit_test(torn_lines),
        cmocka_unit_test(other_files),              cmocka_unit_test(one_job_at_a_time),          cmocka_unit_test(an_input_that_shrinks),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
