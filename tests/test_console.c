/* The prompt's input, through pipes. */
#include "config.h"

#include "console.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

typedef struct {
    int write_fd, read_fd;
    rf_console *console;
} prompt;

static prompt open_prompt(void)
{
    int fds[2];
    rf_error err = {0};
    prompt p;

    assert_int_equal(pipe(fds), 0);
    p = (prompt){fds[1], fds[0], rf_console_create(fds[0], &err)};
    assert_non_null(p.console);
    return p;
}

static void type(const prompt *p, const char *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t written = write(p->write_fd, bytes + done, n - done);

        assert_true(written > 0);
        done += (size_t)written;
    }
}

static void end(prompt *p)
{
    close(p->write_fd);
    p->write_fd = -1;
}

static void close_prompt(prompt *p)
{
    rf_console_destroy(p->console);
    if (p->write_fd >= 0)
        close(p->write_fd);
    close(p->read_fd);
}

static rf_console_result next(const prompt *p, int timeout_ms, rf_text *line)
{
    rf_error err = {0};

    return rf_console_read_line(p->console, timeout_ms, line, &err);
}

static void expect_line(const prompt *p, const char *bytes, size_t n)
{
    rf_text line;

    assert_int_equal(next(p, 10000, &line), RF_CONSOLE_LINE);
    assert_int_equal(line.length, n);
    if (n)
        assert_memory_equal(line.data, bytes, n);
}

static void expect(const prompt *p, rf_console_result result)
{
    rf_text line;

    assert_int_equal(next(p, result == RF_CONSOLE_TIMEOUT ? 20 : 10000, &line), result);
}

#define TYPE(p, literal) type(p, literal, sizeof literal - 1)
#define LINE(p, literal) expect_line(p, literal, sizeof literal - 1)

static void lines(void **state)
{
    prompt p = open_prompt();

    (void)state;
    TYPE(&p, "one\n\ntwo\nthr");
    LINE(&p, "one");
    LINE(&p, "");
    LINE(&p, "two");
    expect(&p, RF_CONSOLE_TIMEOUT);
    TYPE(&p, "ee\n");
    LINE(&p, "three");
    end(&p);
    expect(&p, RF_CONSOLE_EOF);
    expect(&p, RF_CONSOLE_EOF);
    close_prompt(&p);
}

static void last_partial_line(void **state)
{
    prompt p = open_prompt();

    (void)state;
    TYPE(&p, "Where is Kenya?");
    end(&p);
    LINE(&p, "Where is Kenya?");
    expect(&p, RF_CONSOLE_EOF);
    close_prompt(&p);
}

static void continued_lines(void **state)
{
    prompt p = open_prompt();

    (void)state;
    TYPE(&p, "a\\\nb\\\n\nc\\d\nopen\\\n");
    LINE(&p, "a\nb\n");
    LINE(&p, "c\\d");
    expect(&p, RF_CONSOLE_TIMEOUT);
    TYPE(&p, "closed\nx\\\ny\\\n");
    LINE(&p, "open\nclosed");
    end(&p);
    LINE(&p, "x\ny");
    expect(&p, RF_CONSOLE_EOF);
    close_prompt(&p);
}

static void backslash_at_the_very_end(void **state)
{
    prompt p = open_prompt();

    (void)state;
    TYPE(&p, "abc\\");
    end(&p);
    LINE(&p, "abc");
    expect(&p, RF_CONSOLE_EOF);
    close_prompt(&p);
}

static void any_bytes(void **state)
{
    prompt p = open_prompt();

    (void)state;
    TYPE(&p, "a\0b\xff\xc3\x28\n\0\n\r\n");
    LINE(&p, "a\0b\xff\xc3\x28");
    LINE(&p, "\0");
    LINE(&p, "\r");
    close_prompt(&p);
}

/* More than a pipe holds: the thread must have taken it all before a line is asked for. */
static void long_line_is_drained_at_once(void **state)
{
    prompt p = open_prompt();
    size_t n = 200000;
    char *bytes = malloc(n);

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)('a' + i % 26);
    alarm(20); /* a write that blocks for good ends the test */
    for (int i = 0; i < 10; i++) {
        type(&p, bytes, n);
        TYPE(&p, "\n");
    }
    end(&p);
    alarm(0);
    for (int i = 0; i < 10; i++)
        expect_line(&p, bytes, n);
    expect(&p, RF_CONSOLE_EOF);
    free(bytes);
    close_prompt(&p);
}

static void many_small_lines(void **state)
{
    prompt p = open_prompt();
    char text[32];

    (void)state;
    for (int i = 0; i < 50000; i++)
        type(&p, text, (size_t)snprintf(text, sizeof text, "line %d\n", i));
    end(&p);
    for (int i = 0; i < 50000; i++)
        expect_line(&p, text, (size_t)snprintf(text, sizeof text, "line %d", i));
    expect(&p, RF_CONSOLE_EOF);
    close_prompt(&p);
}

static void *type_later(void *argument)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    TYPE((prompt *)argument, "late\n");
    return NULL;
}

static void waiting(void **state)
{
    prompt p = open_prompt();
    pthread_t thread;
    rf_text line;

    (void)state;
    assert_int_equal(next(&p, 0, &line), RF_CONSOLE_TIMEOUT);
    assert_int_equal(pthread_create(&thread, NULL, type_later, &p), 0);
    assert_int_equal(next(&p, -1, &line), RF_CONSOLE_LINE);
    assert_int_equal(line.length, 4);
    pthread_join(thread, NULL);
    close_prompt(&p); /* the writer's end is open: the thread must stop all the same */
}

static void no_input_at_all(void **state)
{
    int fd = open("/dev/null", O_RDONLY);
    rf_error err = {0};
    rf_console *console = rf_console_create(fd, &err);
    rf_text line;

    (void)state;
    assert_non_null(console);
    assert_int_equal(rf_console_read_line(console, 10000, &line, &err), RF_CONSOLE_EOF);
    rf_console_destroy(console);
    close(fd);
    console = rf_console_create(fd, &err); /* a closed descriptor ends, too */
    assert_non_null(console);
    assert_int_equal(rf_console_read_line(console, 10000, &line, &err), RF_CONSOLE_EOF);
    rf_console_destroy(console);
}

static void what_cannot_be_read(void **state)
{
    int fd = open("/", O_RDONLY | O_DIRECTORY);
    rf_error err = {0};
    rf_console *console = rf_console_create(fd, &err);
    rf_text line;

    (void)state;
    assert_non_null(console);
    assert_int_equal(rf_console_read_line(console, 10000, &line, &err), RF_CONSOLE_FAILED);
    assert_int_equal(err.code, RF_ERR_FILE);
    assert_non_null(strstr(err.text, "standard input"));
    rf_console_destroy(console);
    close(fd);
}

/* On a terminal the marker stays on the line where the user types. */
static void marker_on_a_terminal(void **state)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    char got[8] = "";
    FILE *out;

    (void)state;
    assert_true(master >= 0);
    assert_int_equal(grantpt(master) | unlockpt(master), 0);
    out = fopen(ptsname(master), "w");
    assert_non_null(out);
    rf_console_marker(out);
    assert_int_equal(read(master, got, sizeof got), 2);
    assert_memory_equal(got, "> ", 2);
    fclose(out);
    close(master);
}

static void marker_elsewhere(void **state)
{
    char got[8] = "";
    FILE *out = tmpfile();

    (void)state;
    assert_non_null(out);
    rf_console_marker(out);
    rewind(out);
    assert_int_equal(fread(got, 1, sizeof got, out), 3);
    assert_memory_equal(got, "> \n", 3);
    fclose(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(last_partial_line),
        cmocka_unit_test(continued_lines),
        cmocka_unit_test(backslash_at_the_very_end),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(long_line_is_drained_at_once),
        cmocka_unit_test(many_small_lines),
        cmocka_unit_test(waiting),
        cmocka_unit_test(no_input_at_all),
        cmocka_unit_test(what_cannot_be_read),
        cmocka_unit_test(marker_on_a_terminal),
        cmocka_unit_test(marker_elsewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
