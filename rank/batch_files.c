#include "config.h"

#include "batch_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch_lines.h"
#include "log.h"

#define ROOM_AT_START ((off_t)64 << 10) /* bytes of disk that must be free before work begins */

typedef struct {
    int64_t offset;
    size_t length, number;
    bool too_long, again;
} pending_line;

struct rf_batch_files {
    const char *in_name, *out_name;
    int in, out;
    int64_t end;          /* of the output */
    bool reserved;        /* room behind it was set aside */
    bool unsynced;
    json_t *done;         /* keys of what has a result; values: null */
    json_t *seen;         /* ids of the input so far */
    pending_line *pending;
    size_t n_pending, capacity, next;
    char *text;           /* of the line given out last */
    rf_batch_counts counts;
};

/* ---- What is done already. A result counts for its id; an error for its id and its line together: a line that comes
 * twice, or one without an id, is told apart by where it stands. */

/* A key of `done` or `seen`; to be freed. NULL: no memory. line 0: the id alone counts. */
static char *key_of(const json_t *id, size_t line)
{
    json_t *parts = json_pack("[O, I]", id, (json_int_t)line);
    char *key = parts ? json_dumps(parts, JSON_COMPACT) : NULL;

    json_decref(parts);
    return key;
}

static int remember(json_t *set, const json_t *id, size_t line, rf_error *err)
{
    char *key = key_of(id, line);
    int failed = !key || json_object_set_new(set, key, json_null()) != 0;

    free(key);
    return failed ? rf_fail(err, RF_ERR_MEMORY, "no memory for the ids of a batch") : 0;
}

static int known(const json_t *set, const json_t *id, size_t line, bool *is, rf_error *err)
{
    char *key = key_of(id, line);

    if (!key)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for the ids of a batch");
    *is = json_object_get(set, key) != NULL;
    free(key);
    return 0;
}

/* ---- The output as an earlier run left it */

static int not_ours(const rf_batch_files *f, size_t number, rf_error *err)
{
    return rf_fail(err, RF_ERR_FILE, "%s: line %zu is no result of a batch, so nothing is appended to it: give --output another file",
                   f->out_name, number);
}

static json_t *parse(const rf_line *line, size_t flags)
{
    return line->too_long ? NULL : json_loadb(line->text.data, line->text.length, flags | JSON_ALLOW_NUL, NULL);
}

static bool is_result(const json_t *object)
{
    return json_object_get(object, "id") && (json_object_get(object, "error") ? json_is_integer(json_object_get(object, "line"))
                                                                              : json_is_string(json_object_get(object, "text")));
}

static int read_result(rf_batch_files *f, const rf_line *line, rf_error *err)
{
    json_t *object = parse(line, 0), *at = json_object_get(object, "error") ? json_object_get(object, "line") : NULL;
    int failed = is_result(object) ? remember(f->done, json_object_get(object, "id"), (size_t)json_integer_value(at), err)
                                   : not_ours(f, line->number, err);

    json_decref(object);
    return failed;
}

/* What a write that was cut short can have left: the start of a result, or bytes that never reached the disk. */
static bool torn(const rf_line *line)
{
    static const char start[] = "{\"id\":";
    rf_text text = line->text;
    size_t n = text.length < sizeof start - 1 ? text.length : sizeof start - 1, zeros = 0;
    json_t *whole = parse(line, 0);
    bool other = whole && !is_result(whole);

    json_decref(whole);
    while (zeros < text.length && text.data[zeros] == 0)
        zeros++;
    return zeros == text.length || (!other && memcmp(text.data, start, n) == 0);
}

static int drop_torn(rf_batch_files *f, const rf_line *line, rf_error *err)
{
    if (!torn(line))
        return not_ours(f, line->number, err);
    if (ftruncate(f->out, line->offset) != 0)
        return rf_fail(err, RF_ERR_FILE, "cannot take an unfinished last line away from %s: %s", f->out_name, strerror(errno));
    rf_log_info("%s: the last line was unfinished and has been taken away; its request runs again", f->out_name);
    return 0;
}

static bool blank(rf_text text)
{
    for (size_t i = 0; i < text.length; i++)
        if (!strchr(" \t\r", text.data[i]) || !text.data[i])
            return false;
    return true;
}

static int read_output(rf_batch_files *f, rf_error *err)
{
    rf_lines lines;
    rf_line line;
    int got, failed = 0;

    rf_lines_begin(&lines, f->out, f->out_name);
    while (!failed && (got = rf_lines_next(&lines, &line, err)) != 0) {
        if (got < 0 || !line.whole)
            failed = got < 0 ? -1 : drop_torn(f, &line, err);
        else if (!blank(line.text))
            failed = read_result(f, &line, err);
        if (!failed && line.whole)
            f->end = lines.offset;
    }
    rf_lines_end(&lines);
    return failed;
}

static int check_output(rf_batch_files *f, rf_error *err)
{
    struct stat in, out;

    if (fstat(f->out, &out) != 0 || fstat(f->in, &in) != 0)
        return rf_fail(err, RF_ERR_FILE, "%s: %s", f->out_name, strerror(errno));
    if (!S_ISREG(out.st_mode))
        return rf_fail(err, RF_ERR_USAGE, "--output %s is no regular file: a batch that is to go on where it stopped needs one",
                       f->out_name);
    if (in.st_dev == out.st_dev && in.st_ino == out.st_ino)
        return rf_fail(err, RF_ERR_USAGE, "--batch and --output are the same file, %s", f->out_name);
    if (flock(f->out, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return rf_fail(err, RF_ERR_FILE, "another job is writing to %s", f->out_name);
    return 0;
}

static int check_room(rf_batch_files *f, rf_error *err)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < (rlim_t)(f->end + ROOM_AT_START))
        return rf_fail(err, RF_ERR_FILE, "%s: no room for results: files are limited to %llu bytes", f->out_name,
                       (unsigned long long)limit.rlim_cur);
    if (fallocate(f->out, FALLOC_FL_KEEP_SIZE, f->end, ROOM_AT_START) != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return rf_fail(err, RF_ERR_FILE, "%s: no room for results: %s", f->out_name, strerror(errno));
    f->reserved = true;
    return 0;
}

/* A new file's name is as durable as its lines. */
static void sync_folder(const char *name)
{
    const char *slash = strrchr(name, '/');
    char *folder = slash ? strndup(name, (size_t)(slash - name) + 1) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

static int open_output(rf_batch_files *f, rf_error *err)
{
    f->out = open(f->out_name, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (f->out < 0)
        return rf_fail(err, RF_ERR_FILE, "cannot write to %s: %s", f->out_name, strerror(errno));
    if (check_output(f, err) != 0 || read_output(f, err) != 0 || check_room(f, err) != 0)
        return -1;
    sync_folder(f->out_name);
    return 0;
}

/* ---- The input */

/* A pipe is read to its end into a file without a name. */
static int make_seekable(rf_batch_files *f, rf_error *err)
{
    char buffer[1 << 16];
    struct stat st;
    FILE *copy;
    ssize_t n = 0;

    if (fstat(f->in, &st) == 0 && S_ISREG(st.st_mode))
        return 0;
    if (S_ISDIR(st.st_mode))
        return rf_fail(err, RF_ERR_FILE, "%s is a folder", f->in_name);
    copy = tmpfile();
    while (copy && (n = read(f->in, buffer, sizeof buffer)) != 0)
        if (n < 0 ? errno != EINTR : fwrite(buffer, 1, (size_t)n, copy) != (size_t)n)
            break;
    if (!copy || n != 0 || fflush(copy) != 0) {
        rf_fail(err, RF_ERR_FILE, "cannot read %s into a temporary file: %s", f->in_name, strerror(errno));
        if (copy)
            fclose(copy);
        return -1;
    }
    close(f->in);
    f->in = dup(fileno(copy));
    fclose(copy);
    return f->in >= 0 && lseek(f->in, 0, SEEK_SET) == 0 ? 0 : rf_fail(err, RF_ERR_FILE, "%s: %s", f->in_name, strerror(errno));
}

static int open_input(rf_batch_files *f, const char *in, rf_error *err)
{
    f->in = strcmp(in, "-") == 0 ? dup(STDIN_FILENO) : open(in, O_RDONLY | O_CLOEXEC);
    if (f->in < 0)
        return rf_fail(err, RF_ERR_FILE, "cannot open %s: %s", f->in_name, strerror(errno));
    return make_seekable(f, err);
}

static int add_pending(rf_batch_files *f, const rf_line *line, bool again, rf_error *err)
{
    if (f->n_pending == f->capacity) {
        size_t capacity = f->capacity ? f->capacity * 2 : 256;
        pending_line *grown = realloc(f->pending, capacity * sizeof *grown);

        if (!grown)
            return rf_fail(err, RF_ERR_MEMORY, "no memory for the lines of %s", f->in_name);
        f->pending = grown;
        f->capacity = capacity;
    }
    f->pending[f->n_pending++] = (pending_line){line->offset, line->text.length, line->number, line->too_long, again};
    return 0;
}

/* A line without an id (or with a bad one) is known by its number alone: its id counts as null. */
static int sort_line(rf_batch_files *f, const rf_line *line, rf_error *err)
{
    json_t *object = parse(line, JSON_REJECT_DUPLICATES);
    json_t *id = json_object_get(object, "id"), *none = json_null();
    bool again = false, done = false, refused = false;
    int failed = 0;

    if (!(json_is_string(id) && json_string_length(id)) && !json_is_integer(id))
        id = none;
    if (id != none)
        failed = known(f->seen, id, 0, &again, err) != 0 || remember(f->seen, id, 0, err) != 0 ? -1 : 0;
    if (!failed)
        failed = (id != none && !again && known(f->done, id, 0, &done, err) != 0) || known(f->done, id, line->number, &refused, err) != 0 ? -1 : 0;
    if (!failed) {
        f->counts.requests++;
        f->counts.done += done || refused;
        f->counts.failed += !done && refused;
        if (!done && !refused)
            failed = add_pending(f, line, again, err);
    }
    json_decref(object);
    return failed;
}

static int read_input(rf_batch_files *f, rf_error *err)
{
    rf_lines lines;
    rf_line line;
    int got, failed = 0;

    rf_lines_begin(&lines, f->in, f->in_name);
    while (!failed && (got = rf_lines_next(&lines, &line, err)) != 0)
        failed = got < 0 ? -1 : blank(line.text) ? 0 : sort_line(f, &line, err);
    rf_lines_end(&lines);
    return failed;
}

/* ---- */

rf_batch_files *rf_batch_files_open(const char *in, const char *out, rf_error *err)
{
    rf_batch_files *f = calloc(1, sizeof *f);

    if (!f) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for a batch");
        return NULL;
    }
    f->in_name = strcmp(in, "-") == 0 ? "standard input" : in;
    f->out_name = out;
    f->in = f->out = -1;
    f->done = json_object();
    f->seen = json_object();
    if (!f->done || !f->seen)
        rf_fail(err, RF_ERR_MEMORY, "no memory for a batch");
    else if (open_input(f, in, err) == 0 && open_output(f, err) == 0 && read_input(f, err) == 0)
        return f;
    rf_batch_files_close(f);
    return NULL;
}

void rf_batch_files_close(rf_batch_files *f)
{
    if (!f)
        return;
    if (f->reserved && ftruncate(f->out, f->end) != 0)
        rf_log_warn("%s: %s", f->out_name, strerror(errno));
    if (f->out >= 0)
        close(f->out);
    if (f->in >= 0)
        close(f->in);
    json_decref(f->done);
    json_decref(f->seen);
    free(f->pending);
    free(f->text);
    free(f);
}

rf_batch_counts rf_batch_files_counts(const rf_batch_files *f)
{
    return f->counts;
}

int rf_batch_files_next(rf_batch_files *f, rf_batch_line *line, rf_error *err)
{
    const pending_line *p;
    char *grown;

    if (f->next == f->n_pending)
        return 0;
    p = &f->pending[f->next++];
    grown = realloc(f->text, p->length + 1);
    if (!grown)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for line %zu of %s", p->number, f->in_name);
    f->text = grown;
    for (size_t have = 0; have < p->length;) {
        ssize_t n = pread(f->in, f->text + have, p->length - have, (off_t)(p->offset + (int64_t)have));

        if (n > 0)
            have += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return rf_fail(err, RF_ERR_FILE, "cannot read line %zu of %s: %s", p->number, f->in_name,
                           n == 0 ? "the file became shorter" : strerror(errno));
    }
    *line = (rf_batch_line){{f->text, p->length}, p->number, p->too_long, p->again};
    return 1;
}

static int write_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t written = write(fd, bytes, n);

        if (written < 0 && errno != EINTR)
            return -1;
        if (written > 0) {
            bytes += written;
            n -= (size_t)written;
        }
    }
    return 0;
}

int rf_batch_files_put(rf_batch_files *f, json_t *result, rf_error *err)
{
    size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(9), n = result ? json_dumpb(result, NULL, 0, flags) : 0;
    char *line = n ? malloc(n + 1) : NULL;
    int failed;

    if (line) {
        json_dumpb(result, line, n, flags);
        line[n] = '\n';
    }
    json_decref(result);
    if (!line)
        return rf_fail(err, RF_ERR_MEMORY, "no memory for a result");
    failed = write_all(f->out, line, n + 1);
    free(line);
    if (failed) {
        int why = errno;
        bool whole = ftruncate(f->out, f->end) == 0;

        return rf_fail(err, RF_ERR_FILE, "cannot append to %s: %s (%s; the same command goes on from there)", f->out_name, strerror(why),
                       whole ? "its lines are whole" : "its last line is cut off");
    }
    f->end += (int64_t)n + 1;
    f->unsynced = true;
    return 0;
}

int rf_batch_files_sync(rf_batch_files *f, rf_error *err)
{
    if (f->unsynced && fsync(f->out) != 0)
        return rf_fail(err, RF_ERR_FILE, "cannot make the results in %s durable: %s", f->out_name, strerror(errno));
    f->unsynced = false;
    return 0;
}
