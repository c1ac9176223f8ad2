/* Hostile GGUF files: whatever the bytes, opening ends in a file or in one sentence and RF_ERR_FILE, soon and in little
 * memory. */
#include "config.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "gguf.h"
#include "gguf_files.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#define MOST_SECONDS 5.0
#else
#define MOST_SECONDS 1.0 /* of the process's own time: the machine may be busy */
#endif
#define MOST_KIB (256L << 10)

static char path[] = "/tmp/rankflash-hostile-XXXXXX";

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Touches what a user of the file would. false: a tensor is not found by its name. */
static bool use(const rf_gguf *f)
{
    static const char *const keys[] = {"qwen35.block_count", "dflash.target_layers", "tokenizer.ggml.tokens", "k", "s"};
    volatile unsigned char sum = 0;
    uint64_t u;
    double d;
    bool b;
    size_t n;
    rf_text text;
    rf_error err;

    for (size_t i = 0; i < rf_gguf_n_tensors(f); i++) {
        const rf_tensor *t = rf_gguf_tensor(f, i);
        const unsigned char *data = t->data;

        if (rf_gguf_find(f, t->name) != t)
            return false;
        sum = (unsigned char)(sum + data[0] + data[t->bytes - 1]);
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        rf_gguf_get_uint(f, keys[i], 100, &u, &err);
        rf_gguf_get_float(f, keys[i], &d, &err);
        rf_gguf_get_bool(f, keys[i], &b, &err);
        if (rf_gguf_get_string(f, keys[i], &text, &err) == 0 && text.length)
            sum = (unsigned char)(sum + (unsigned char)text.data[text.length - 1]);
        if (rf_gguf_array_length(f, keys[i], &n, &err) != 0 || !n)
            continue;
        rf_gguf_array_uint(f, keys[i], n - 1, UINT64_MAX, &u, &err);
        if (rf_gguf_array_string(f, keys[i], n - 1, &text, &err) == 0 && text.length)
            sum = (unsigned char)(sum + (unsigned char)text.data[text.length - 1]);
    }
    rf_gguf_header_hash(f);
    return true;
}

/* NULL, or what is wrong with the way the file was opened or refused. */
static const char *judge(bool *opened, rf_error *err)
{
    double start = cpu_seconds();
    bool used = true;
    rf_gguf *f;

    *err = (rf_error){0};
    f = rf_gguf_open(path, err);
    *opened = f != NULL;
    if (f) {
        used = use(f);
        rf_gguf_close(f);
    }
    if (!used)
        return "a tensor is not found by its name";
    if (cpu_seconds() - start > MOST_SECONDS)
        return "took too long";
    if (*opened)
        return NULL;
    if (err->code != RF_ERR_FILE)
        return "the code is not RF_ERR_FILE";
    if (strncmp(err->text, path, strlen(path)) != 0)
        return "the sentence does not begin with the path";
    for (const char *c = err->text; *c; c++)
        if (*c < ' ' || *c > '~')
            return "there is an unprintable byte in the sentence";
    return NULL;
}

/* true: the file was opened and used. Otherwise *err is one good sentence. */
static bool opens(rf_error *err)
{
    bool opened;
    const char *wrong = judge(&opened, err);

    if (wrong)
        fail_msg("%s (\"%s\")", wrong, err->text);
    return opened;
}

/* The sentence contains `part`. */
static void refused(const rf_gguf_bytes *w, const char *part)
{
    rf_error err;

    gguf_save(w, path);
    if (opens(&err))
        fail_msg("opened, although: %s", part);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not contain \"%s\"", err.text, part);
}

/* ---- One difference from a good file */

typedef struct {
    uint32_t version, alignment_type;
    uint64_t n_tensors, n_keys, alignment;
    const char *key, *names[2];
    size_t key_bytes; /* 0: strlen */
    uint32_t key_type;
    uint64_t dims[2][4];
    uint32_t types[2];
    uint64_t offsets[2];
} recipe;

/* two keys, two tensors of 64 bytes */
static const recipe good = {
    .version = 3,
    .alignment_type = RF_GGUF_U32,
    .n_tensors = 2,
    .n_keys = 2,
    .alignment = 32,
    .key = "k",
    .key_type = RF_GGUF_U32,
    .names = {"a", "b"},
    .dims = {{16}, {4, 4}},
    .offsets = {0, 64},
};

static void cook(rf_gguf_bytes *w, const recipe *r)
{
    w->size = 0;
    rf_gguf_put_start(w, r->version, r->n_tensors, r->n_keys);
    rf_gguf_key_scalar(w, "general.alignment", r->alignment_type, r->alignment);
    rf_gguf_put_string(w, r->key);
    rf_gguf_put(w, r->key_type, 4);
    rf_gguf_put(w, 1, 4);
    for (size_t i = 0; i < 2; i++)
        gguf_tensor(w, r->names[i], r->dims[i], r->types[i], r->offsets[i]);
    gguf_data(w, 32, 128);
}

#define REFUSED(sentence, ...)                                                                                         \
    do {                                                                                                               \
        recipe r = good;                                                                                               \
        __VA_ARGS__;                                                                                                   \
        cook(&w, &r);                                                                                                  \
        refused(&w, sentence);                                                                                         \
    } while (0)

static void the_good_one(void **state)
{
    rf_gguf_bytes w = {0};
    rf_error err;

    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        recipe r = good;

        r.version = version;
        cook(&w, &r);
        gguf_save(&w, path);
        if (!opens(&err))
            fail_msg("%s", err.text);
    }
    rf_gguf_bytes_free(&w);
}

static void wrong_heads(void **state)
{
    rf_gguf_bytes w = {0};

    (void)state;
    REFUSED("GGUF version 1; 2 or 3 is expected", r.version = 1);
    REFUSED("GGUF version 4; 2 or 3 is expected", r.version = 4);
    REFUSED("a byte-swapped (big-endian) GGUF file", r.version = 0x03000000u);
    REFUSED("tensors are claimed, more than the file can hold", r.n_tensors = (uint64_t)1 << 40);
    REFUSED("tensors are claimed, more than the file can hold", r.n_tensors = UINT64_MAX);
    REFUSED("keys are claimed, more than the file can hold", r.n_keys = (uint64_t)1 << 40);
    REFUSED("keys are claimed, more than the file can hold", r.n_keys = UINT64_MAX);
    cook(&w, &good);
    memcpy(w.data, "FUGG", 4);
    refused(&w, "a byte-swapped (big-endian) GGUF file; little-endian is expected");
    memcpy(w.data, "GGML", 4);
    refused(&w, "not a GGUF file");
    w.size = 3;
    refused(&w, "too short for a GGUF file");
    rf_gguf_bytes_free(&w);
}

static void wrong_keys(void **state)
{
    static char longer[300];
    rf_gguf_bytes w = {0};

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    REFUSED("key general.alignment occurs twice", r.key = "general.alignment");
    REFUSED("a key's name is empty", r.key = "");
    REFUSED("a key's name is empty or longer than 255 bytes", r.key = longer);
    REFUSED("k: unknown type 13", r.key_type = 13);
    REFUSED("k?: unknown type 4294967295", r.key = "k\n"; r.key_type = UINT32_MAX);
    REFUSED("general.alignment: expected a power of two, the file has 0", r.alignment = 0);
    REFUSED("general.alignment: expected a power of two, the file has 24", r.alignment = 24);
    REFUSED("general.alignment: 2097152 is out of range", r.alignment = 1 << 21);
    REFUSED("general.alignment: -128 is out of range", r.alignment_type = RF_GGUF_I8; r.alignment = 128);
    REFUSED("general.alignment: expected an integer, the file has a number", r.alignment_type = RF_GGUF_F32);
    rf_gguf_bytes_free(&w);
}

static void wrong_tensors(void **state)
{
    static char longer[300];
    rf_gguf_bytes w = {0};

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    REFUSED("tensor a occurs twice", r.names[1] = "a");
    REFUSED("a tensor's name is not 1 to 64 printable", r.names[1] = "");
    REFUSED("a tensor's name is longer than 64 bytes", r.names[1] = longer);
    REFUSED("a tensor's name is longer than 64 bytes", r.names[1] = longer + sizeof longer - 66);
    REFUSED("a tensor's name is not 1 to 64 printable", r.names[1] = "b\n");
    REFUSED("a tensor's name is not 1 to 64 printable", r.names[1] = "b\xff");
    REFUSED("tensor b has 0 dimensions, 1 to 4 are expected", r.dims[1][0] = 0);
    REFUSED("tensor a has an impossible dimension (9223372036854775808)", r.dims[0][0] = (uint64_t)1 << 63);
    REFUSED("tensor a has an impossible dimension (4294967296)", r.dims[0][0] = r.dims[0][1] = (uint64_t)1 << 32);
    REFUSED("tensor a is impossibly large", r.dims[0][0] = (uint64_t)1 << 62);
    REFUSED("tensor a has unknown block type 4", r.types[0] = 4);
    REFUSED("tensor a has unknown block type 4294967295", r.types[0] = UINT32_MAX);
    REFUSED("tensor a has rows of 16, but Q8_0 comes in blocks of 32", r.types[0] = RF_TYPE_Q8_0);
    REFUSED("tensor b starts at 33, which is no multiple of the alignment 32", r.offsets[1] = 33);
    REFUSED("tensor b ends beyond the file", r.offsets[1] = 96);
    REFUSED("tensor b ends beyond the file", r.offsets[1] = UINT64_MAX - 31);
    REFUSED("tensor b ends beyond the file", r.dims[1][1] = 5);
    REFUSED("tensors a and b overlap", r.offsets[1] = 32);
    REFUSED("overlap", r.offsets[1] = 0);
    REFUSED("overlap", r.offsets[0] = 64; r.offsets[1] = 32);
    rf_gguf_bytes_free(&w);
}

static void wrong_arrays(void **state)
{
    static const struct {
        uint32_t element;
        uint64_t count;
        const char *sentence;
    } cases[] = {
        {RF_GGUF_ARRAY, 1, "k: unknown type 9 of array elements"},
        {13, 1, "k: unknown type 13 of array elements"},
        {RF_GGUF_U8, 17, "an array is longer than the file"},
        {RF_GGUF_F64, 3, "an array is longer than the file"},
        {RF_GGUF_F64, (uint64_t)1 << 61, "an array is longer than the file"}, /* times 8 is 0 */
        {RF_GGUF_STRING, 3, "an array is longer than the file"},
        {RF_GGUF_STRING, UINT64_MAX, "an array is longer than the file"},
        {RF_GGUF_STRING, 2, "a string is longer than the file"},
    };
    rf_gguf_bytes w = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        w.size = 0;
        rf_gguf_put_start(&w, 3, 0, 1);
        rf_gguf_key_array(&w, "k", cases[i].element, cases[i].count);
        rf_gguf_put(&w, 0, 8);
        rf_gguf_put(&w, UINT64_MAX, 8); /* the length of the second string */
        refused(&w, cases[i].sentence);
    }
    rf_gguf_bytes_free(&w);
}

/* Every beginning of a small file. */
static void cut_anywhere(void **state)
{
    rf_gguf_bytes w = {0};
    rf_error err;
    size_t whole;

    (void)state;
    cook(&w, &good);
    whole = w.size;
    for (w.size = 1; w.size < whole; w.size++) {
        gguf_save(&w, path);
        if (opens(&err))
            fail_msg("opened with %zu of %zu bytes", w.size, whole);
    }
    rf_gguf_bytes_free(&w);
}

/* ---- The micro pair */

typedef struct {
    size_t at, bytes;
    const char *what;
} field;

typedef struct {
    unsigned char *bytes; /* owned */
    size_t size, at, header;
    field *fields; /* owned */
    size_t n_fields;
    int fd; /* a copy in `path`, open for writing */
} specimen;

static uint64_t value_at(const specimen *s, size_t at, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | s->bytes[at + i];
    return value;
}

/* The walk trusts the file: it is ours. */
static uint64_t walk(specimen *s, size_t bytes, const char *what)
{
    s->fields = realloc(s->fields, (s->n_fields + 1) * sizeof *s->fields);
    assert_non_null(s->fields);
    s->fields[s->n_fields++] = (field){s->at, bytes, what};
    s->at += bytes;
    return value_at(s, s->at - bytes, bytes);
}

static void walk_value(specimen *s, uint64_t type)
{
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

    if (type == RF_GGUF_STRING) {
        s->at += walk(s, 8, "a string's length");
    } else if (type == RF_GGUF_ARRAY) {
        uint64_t element = walk(s, 4, "an array's type"), count = walk(s, 8, "an array's count");

        for (uint64_t i = 0; i < count; i++)
            walk_value(s, element);
    } else {
        s->at += bytes[type];
    }
}

static void walk_header(specimen *s)
{
    uint64_t n_tensors, n_keys, n_dims;

    s->at = 4;
    walk(s, 4, "the version");
    n_tensors = walk(s, 8, "the number of tensors");
    n_keys = walk(s, 8, "the number of keys");
    for (uint64_t i = 0; i < n_keys; i++) {
        s->at += walk(s, 8, "a key's length");
        walk_value(s, walk(s, 4, "a key's type"));
    }
    for (uint64_t i = 0; i < n_tensors; i++) {
        s->at += walk(s, 8, "a name's length");
        n_dims = walk(s, 4, "a number of dimensions");
        for (uint64_t k = 0; k < n_dims; k++)
            walk(s, 8, "a dimension");
        walk(s, 4, "a block type");
        walk(s, 8, "an offset");
    }
    s->header = s->at;
}

static void specimen_open(specimen *s, const char *name)
{
    char from[1024];
    FILE *f;
    long size;

    *s = (specimen){0};
    snprintf(from, sizeof from, "%s/micro/%s", RF_TEST_DATA, name);
    f = fopen(from, "rb");
    if (!f)
        fail_msg("%s cannot be opened", from);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size = ftell(f);
    assert_true(size > 0);
    s->size = (size_t)size;
    rewind(f);
    s->bytes = malloc(s->size);
    assert_non_null(s->bytes);
    assert_int_equal(fread(s->bytes, 1, s->size, f), s->size);
    fclose(f);
    s->fd = open(path, O_RDWR | O_TRUNC);
    assert_true(s->fd >= 0);
    assert_int_equal(pwrite(s->fd, s->bytes, s->size, 0), s->size);
    walk_header(s);
}

static void specimen_close(specimen *s)
{
    close(s->fd);
    free(s->bytes);
    free(s->fields);
}

static void patch(const specimen *s, size_t at, uint64_t value, size_t bytes)
{
    unsigned char little[8];

    for (size_t i = 0; i < 8; i++)
        little[i] = (unsigned char)(value >> (8 * i));
    assert_int_equal(pwrite(s->fd, little, bytes, (off_t)at), bytes);
}

static void restore(const specimen *s, size_t at, size_t bytes)
{
    assert_int_equal(pwrite(s->fd, s->bytes + at, bytes, (off_t)at), bytes);
}

static const char *const micro_files[] = {"micro-F32.gguf", "micro-DFlash1-F32.gguf", "micro-DFlash2-F32.gguf"};
#define N_MICRO (sizeof micro_files / sizeof *micro_files)

/* Cut shorter and shorter: at every 4 KiB, and at every seventh byte of the header. */
static void truncated(void **state)
{
    rf_error err;

    (void)state;
    for (size_t i = 0; i < N_MICRO; i++) {
        specimen s;

        specimen_open(&s, micro_files[i]);
        if (!opens(&err))
            fail_msg("%s", err.text);
        for (size_t size = s.size - 1; size > 0;) {
            assert_int_equal(ftruncate(s.fd, (off_t)size), 0);
            if (opens(&err))
                fail_msg("%s was opened with %zu of %zu bytes", micro_files[i], size, s.size);
            if (size > s.header + 4096)
                size = (size - 1) / 4096 * 4096;
            else
                size = size > 7 ? size - 7 : 0;
        }
        specimen_close(&s);
    }
}

/* Every count, length, type, dimension and offset of a header, at values that overflow somebody's arithmetic. */
static void fields_out_of_range(void **state)
{
    static const uint64_t values[] = {(uint64_t)1 << 31, (uint64_t)1 << 32, (uint64_t)1 << 62, (uint64_t)1 << 63,
                                      UINT64_MAX};
    rf_error err;

    (void)state;
    for (size_t i = 0; i < N_MICRO; i++) {
        specimen s;

        specimen_open(&s, micro_files[i]);
        for (size_t k = 0; k < s.n_fields; k++) {
            const field *f = &s.fields[k];

            patch(&s, f->at, 0, f->bytes);
            opens(&err); /* some may: the type F32 is 0 */
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                uint64_t value = values[v] >= (uint64_t)1 << 32 && f->bytes == 4 ? UINT32_MAX - v : values[v];

                patch(&s, f->at, value, f->bytes);
                if (opens(&err))
                    fail_msg("%s: opened with %s at byte %zu being %llu", micro_files[i], f->what, f->at,
                             (unsigned long long)value);
            }
            restore(&s, f->at, f->bytes);
        }
        if (!opens(&err)) /* all was restored */
            fail_msg("%s", err.text);
        specimen_close(&s);
    }
}

/* SplitMix64: the same mutations every time. */
static uint64_t next_random(uint64_t *random)
{
    uint64_t z = *random += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Changes one to four places of the header and opens the file; half of the places are fields. */
static bool mutate(const specimen *s, uint64_t *random)
{
    size_t at[4], bytes[4], n = 1 + next_random(random) % 4;
    rf_error err;
    bool opened;

    for (size_t i = 0; i < n; i++) {
        const field *f = &s->fields[next_random(random) % s->n_fields];
        uint64_t value = next_random(random), kind = next_random(random) % 4;

        at[i] = kind < 2 ? f->at : next_random(random) % s->header;
        bytes[i] = kind < 2 ? f->bytes : 1;
        if (kind == 0) /* near the value that was there */
            value = value_at(s, f->at, f->bytes) + value % 33 - 16;
        patch(s, at[i], kind == 1 ? value >> (value & 63) : value, bytes[i]);
    }
    opened = opens(&err);
    for (size_t i = 0; i < n; i++)
        restore(s, at[i], bytes[i]);
    return opened;
}

static void mutations(void **state)
{
    uint64_t random = 20240607;
    rf_error err;

    (void)state;
    for (size_t i = 0; i < N_MICRO; i++) {
        size_t opened = 0, n = 1500;
        specimen s;

        specimen_open(&s, micro_files[i]);
        for (size_t k = 0; k < n; k++)
            opened += mutate(&s, &random);
        assert_in_range(opened, 1, n - 1); /* neither all harmless nor all refused: the loop reaches past the parser */
        if (!opens(&err))
            fail_msg("%s", err.text);
        specimen_close(&s);
    }
}

/* ---- Headers as large as they may be: time and memory */

/* Judges in a child of its own, whose memory is bounded too. */
static bool opens_in_child(void)
{
    struct rusage usage;
    int status;
    pid_t child = fork();

    if (child == 0) {
        rf_error err;
        bool opened;
        const char *wrong = judge(&opened, &err);

        if (wrong)
            print_error("%s (\"%s\")\n", wrong, err.text);
        _exit(wrong ? 2 : opened ? 0 : 1);
    }
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_true(WIFEXITED(status));
    assert_in_range(WEXITSTATUS(status), 0, 1);
#ifndef SANITIZED
    if (usage.ru_maxrss > MOST_KIB)
        fail_msg("took %ld KiB", usage.ru_maxrss);
#endif
    return WEXITSTATUS(status) == 0;
}

static void many_tensors(rf_gguf_bytes *w, size_t n, bool same_names)
{
    static const uint64_t dims[4] = {8};
    char name[65]; /* long beginnings in common: the dearest to compare */

    w->size = 0;
    rf_gguf_put_start(w, 3, n, 0);
    memset(name, 'x', sizeof name);
    for (size_t i = 0; i < n; i++) {
        snprintf(name + 50, 15, "%zu", same_names ? 7 : i);
        gguf_tensor(w, name, dims, RF_TYPE_F32, 32 * i);
    }
    gguf_data(w, 32, 32 * n);
    gguf_save(w, path);
}

static void greatest_headers(void **state)
{
    rf_gguf_bytes w = {0};
    size_t n = (size_t)1 << 17;

    (void)state;
    many_tensors(&w, n, false);
    assert_true(opens_in_child());
    many_tensors(&w, n, true);
    assert_false(opens_in_child());
    many_tensors(&w, n + 1, false);
    refused(&w, "131073 tensors are claimed, at most 131072 are expected");
    w.size = 0;
    rf_gguf_put_start(&w, 3, 0, 1 << 16);
    for (size_t i = 0; i < 1 << 16; i++) {
        char name[32];

        snprintf(name, sizeof name, "key.%zu", i);
        rf_gguf_key_scalar(&w, name, RF_GGUF_BOOL, 1);
    }
    gguf_save(&w, path);
    assert_true(opens_in_child());
    rf_gguf_bytes_free(&w);
}

/* Strings of no length, as many as a header can hold; in a file that goes on behind it. */
static void millions_of_strings(void **state)
{
    rf_gguf_bytes w = {0};
    size_t n = ((size_t)64 << 20) / 8 - 8;

    (void)state;
    rf_gguf_put_start(&w, 3, 0, 1);
    rf_gguf_key_array(&w, "k", RF_GGUF_STRING, n);
    gguf_save(&w, path);
    assert_int_equal(truncate(path, (off_t)(w.size + 8 * n)), 0);
    assert_true(opens_in_child());
    w.size -= 8;
    rf_gguf_put(&w, 1u << 30, 8);
    gguf_save(&w, path);
    assert_int_equal(truncate(path, (off_t)1 << 34), 0); /* sparse: takes no room */
    assert_false(opens_in_child());
    w.size = 0;
    rf_gguf_put_start(&w, 3, 0, 1); /* one array of bytes that is longer than a header may be */
    rf_gguf_key_array(&w, "k", RF_GGUF_U8, (uint64_t)1 << 33);
    gguf_save(&w, path);
    assert_int_equal(truncate(path, (off_t)1 << 34), 0);
    assert_false(opens_in_child());
    rf_gguf_bytes_free(&w);
}

static int make_path(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int drop_path(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_good_one),     cmocka_unit_test(wrong_heads),         cmocka_unit_test(wrong_keys),
        cmocka_unit_test(wrong_tensors),    cmocka_unit_test(wrong_arrays),        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(truncated),        cmocka_unit_test(fields_out_of_range), cmocka_unit_test(mutations),
        cmocka_unit_test(greatest_headers), cmocka_unit_test(millions_of_strings),
    };

    return cmocka_run_group_tests(tests, make_path, drop_path);
}
