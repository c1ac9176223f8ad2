#include "config.h"

#include "console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define READ_SIZE ((size_t)64 << 10)

struct rf_console {
    int fd; /* -1: it was closed from the start */
    int stop_fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    char *buffer; /* [begin, end) is read and not yet taken; [begin, scanned) has no newline */
    size_t begin, scanned, end, capacity;
    bool ended;     /* no more will come */
    rf_error error; /* RF_OK: the input's end */
    /* The caller's: */
    char *line; /* what has been taken of the line so far */
    size_t line_length, line_capacity;
    bool line_begun; /* it holds the lines before a `\` */
    bool line_given; /* it was returned: the next call starts afresh */
};

/* ---- The thread */

/* Makes room for READ_SIZE more bytes. Called under the lock. */
static int make_room(rf_console *c)
{
    size_t held = c->end - c->begin, capacity = c->capacity;
    char *grown;

    if (c->begin > 0 && c->begin >= held) { /* as much gone as is left: moving is paid for by what was taken */
        memmove(c->buffer, c->buffer + c->begin, held);
        c->scanned -= c->begin;
        c->end = held;
        c->begin = 0;
    }
    if (capacity - c->end >= READ_SIZE)
        return 0;
    capacity = capacity ? capacity * 2 : 2 * READ_SIZE;
    grown = realloc(c->buffer, capacity);
    if (!grown)
        return -1;
    c->buffer = grown;
    c->capacity = capacity;
    return 0;
}

/* Nothing more will come; error_number: why, 0 for the input's end. */
static void end_input(rf_console *c, int error_number)
{
    pthread_mutex_lock(&c->lock);
    if (error_number)
        rf_fail(&c->error, RF_ERR_FILE, "cannot read standard input: %s", strerror(error_number));
    c->ended = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* Takes over what was read. 0, or -1 when memory runs out. */
static int keep(rf_console *c, const char *chunk, size_t n)
{
    int result;

    pthread_mutex_lock(&c->lock);
    result = make_room(c);
    if (result == 0) {
        memcpy(c->buffer + c->end, chunk, n);
        c->end += n;
        pthread_cond_signal(&c->changed);
    } else {
        rf_fail(&c->error, RF_ERR_MEMORY, "out of memory for the text on standard input");
    }
    pthread_mutex_unlock(&c->lock);
    return result;
}

/* Waits for input. false: stop. */
static bool wait_readable(rf_console *c)
{
    struct pollfd fds[2] = {{.fd = c->fd, .events = POLLIN}, {.fd = c->stop_fd, .events = POLLIN}};

    while (poll(fds, 2, -1) < 0)
        if (errno != EINTR && errno != EAGAIN)
            return false;
    return !fds[1].revents;
}

static void *drain(void *argument)
{
    rf_console *c = argument;
    char chunk[READ_SIZE];
    int error_number = 0;

    while (c->fd >= 0 && wait_readable(c)) {
        ssize_t n = read(c->fd, chunk, sizeof chunk);

        if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
            continue;
        if (n < 0 && errno != EIO) /* EIO: the terminal went away, an end of input like another */
            error_number = errno;
        if (n <= 0 || keep(c, chunk, (size_t)n) < 0)
            break;
    }
    end_input(c, error_number);
    return NULL;
}

static int start_thread(rf_console *c)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all); /* signals are the main thread's business */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&c->thread, NULL, drain, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

rf_console *rf_console_create(int fd, rf_error *err)
{
    rf_console *c = calloc(1, sizeof *c);
    pthread_condattr_t attributes;

    if (!c) {
        rf_fail(err, RF_ERR_MEMORY, "out of memory for the prompt");
        return NULL;
    }
    /* Closed, the number would soon be that of another file, such as the one opened next. */
    c->fd = fcntl(fd, F_GETFD) < 0 ? -1 : fd;
    c->stop_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (c->stop_fd < 0 || start_thread(c) != 0) {
        rf_fail(err, RF_ERR_MEMORY, "cannot start the thread that reads standard input");
        if (c->stop_fd >= 0)
            close(c->stop_fd);
        pthread_cond_destroy(&c->changed);
        pthread_mutex_destroy(&c->lock);
        free(c);
        return NULL;
    }
    return c;
}

void rf_console_destroy(rf_console *c)
{
    if (!c)
        return;
    while (eventfd_write(c->stop_fd, 1) < 0 && errno == EINTR)
        continue;
    pthread_join(c->thread, NULL);
    close(c->stop_fd);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->buffer);
    free(c->line);
    free(c);
}

/* ---- The caller */

/* Waits until something changes, at most until the deadline (NULL: none). Under the lock. false: time is up. */
static bool wait_changed(rf_console *c, const struct timespec *deadline)
{
    if (!deadline)
        return pthread_cond_wait(&c->changed, &c->lock) == 0;
    return pthread_cond_timedwait(&c->changed, &c->lock, deadline) != ETIMEDOUT;
}

/* Appends n bytes from the buffer to the line. 0, or -1 when memory runs out. Under the lock. */
static int take(rf_console *c, size_t n)
{
    size_t wanted = c->line_length + n + 1; /* room for the newline that a `\` leaves */

    if (wanted > c->line_capacity) {
        size_t capacity = wanted > 2 * c->line_capacity ? wanted : 2 * c->line_capacity;
        char *grown = realloc(c->line, capacity);

        if (!grown)
            return -1;
        c->line = grown;
        c->line_capacity = capacity;
    }
    if (n)
        memcpy(c->line + c->line_length, c->buffer + c->begin, n);
    c->line_length += n;
    c->begin += n;
    c->scanned = c->begin;
    return 0;
}

/* Moves the next whole piece of input (a line, or the rest at the end) to c->line. Under the lock. */
static rf_console_result next_piece(rf_console *c, const struct timespec *deadline, bool *more)
{
    for (;;) {
        char *newline = c->end > c->scanned ? memchr(c->buffer + c->scanned, '\n', c->end - c->scanned) : NULL;
        size_t n = newline ? (size_t)(newline - c->buffer) - c->begin : c->end - c->begin;

        *more = false;
        if (newline || (c->ended && n > 0)) {
            if (take(c, n) < 0)
                return RF_CONSOLE_FAILED;
            if (newline)
                c->scanned = ++c->begin;
            if (c->line_length > 0 && n > 0 && c->line[c->line_length - 1] == '\\') {
                c->line[c->line_length - 1] = '\n';
                *more = true;
            }
            return RF_CONSOLE_LINE;
        }
        c->scanned = c->end;
        if (c->ended)
            return RF_CONSOLE_EOF;
        if (!wait_changed(c, deadline))
            return RF_CONSOLE_TIMEOUT;
    }
}

/* The input is over. A line that a `\` left open is finished, without the newline that was to join it to more. */
static rf_console_result finish(rf_console *c)
{
    if (c->error.code != RF_OK)
        return RF_CONSOLE_FAILED;
    if (!c->line_begun)
        return RF_CONSOLE_EOF;
    c->line_begun = false;
    c->line_length--;
    return RF_CONSOLE_LINE;
}

static rf_console_result read_line(rf_console *c, const struct timespec *deadline)
{
    for (;;) {
        bool more;
        rf_console_result result = next_piece(c, deadline, &more);

        if (result == RF_CONSOLE_EOF)
            return finish(c);
        if (result != RF_CONSOLE_LINE)
            return result;
        c->line_begun = more;
        if (!more)
            return RF_CONSOLE_LINE;
    }
}

static struct timespec deadline_after(int ms)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

rf_console_result rf_console_read_line(rf_console *c, int timeout_ms, rf_text *line, rf_error *err)
{
    struct timespec deadline = timeout_ms >= 0 ? deadline_after(timeout_ms) : (struct timespec){0};
    rf_console_result result;

    pthread_mutex_lock(&c->lock);
    if (c->line_given) {
        c->line_given = false;
        c->line_length = 0;
    }
    result = read_line(c, timeout_ms >= 0 ? &deadline : NULL);
    if (result == RF_CONSOLE_FAILED) {
        if (c->error.code != RF_OK)
            rf_fail(err, c->error.code, "%s", c->error.text);
        else
            rf_fail(err, RF_ERR_MEMORY, "out of memory for the text on standard input");
    }
    pthread_mutex_unlock(&c->lock);
    if (result == RF_CONSOLE_LINE) {
        c->line_given = true;
        *line = (rf_text){c->line, c->line_length};
    }
    return result;
}

void rf_console_marker(FILE *out)
{
    fputs(isatty(fileno(out)) ? "> " : "> \n", out);
    fflush(out);
}
