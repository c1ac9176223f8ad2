/* Good GGUF files of both versions and in parts, their keys, and what a getter says to a missing or wrong one. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "gguf.h"
#include "gguf_files.h"

static char folder[] = "/tmp/rankflash-gguf-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[1024];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static rf_gguf *must_open(const char *path)
{
    rf_error err = {0};
    rf_gguf *f = rf_gguf_open(path, &err);

    if (!f)
        fail_msg("%s", err.text);
    return f;
}

/* name: in the folder. The sentence contains `part`. */
static void must_refuse(const char *name, const char *part)
{
    rf_error err = {0};

    if (rf_gguf_open(path_of(name), &err))
        fail_msg("%s was opened, although: %s", name, part);
    assert_int_equal(err.code, RF_ERR_FILE);
    assert_null(strchr(err.text, '\n'));
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not contain \"%s\"", err.text, part);
}

static void says(int status, const rf_error *err, const char *sentence)
{
    assert_int_equal(status, -1);
    assert_int_equal(err->code, RF_ERR_FILE);
    if (!strstr(err->text, sentence))
        fail_msg("\"%s\" does not contain \"%s\"", err->text, sentence);
}

static uint64_t bits_of_double(double d)
{
    uint64_t bits;

    memcpy(&bits, &d, sizeof bits);
    return bits;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* A file with a key of every type and three tensors, aligned to 64. */
static rf_gguf *every_type(uint32_t version)
{
    static const uint64_t a[4] = {32, 2}, b[4] = {3}, c[4] = {2, 1, 2, 2};
    rf_gguf_bytes w = {0};
    rf_gguf *f;
    size_t data;

    rf_gguf_put_start(&w, version, 3, 19);
    rf_gguf_key_scalar(&w, "general.alignment", RF_GGUF_U16, 64);
    rf_gguf_key_scalar(&w, "u8", RF_GGUF_U8, 200);
    rf_gguf_key_scalar(&w, "i8", RF_GGUF_I8, 100);
    rf_gguf_key_scalar(&w, "i8.negative", RF_GGUF_I8, 0x80);
    rf_gguf_key_scalar(&w, "i16.negative", RF_GGUF_I16, 0xfffe);
    rf_gguf_key_scalar(&w, "u32", RF_GGUF_U32, 4000000000u);
    rf_gguf_key_scalar(&w, "i32.negative", RF_GGUF_I32, 0xffffffffu);
    rf_gguf_key_scalar(&w, "u64", RF_GGUF_U64, UINT64_MAX);
    rf_gguf_key_scalar(&w, "i64", RF_GGUF_I64, 1);
    rf_gguf_key_scalar(&w, "f32", RF_GGUF_F32, bits_of_float(1.5f));
    rf_gguf_key_scalar(&w, "f64", RF_GGUF_F64, bits_of_double(-0.1));
    rf_gguf_key_scalar(&w, "nan", RF_GGUF_F32, 0x7fc00000u);
    rf_gguf_key_scalar(&w, "bool", RF_GGUF_BOOL, 1);
    rf_gguf_key_string(&w, "string", "some text");
    rf_gguf_key_array(&w, "strings", RF_GGUF_STRING, 3);
    rf_gguf_put_string(&w, "one");
    rf_gguf_put_string(&w, "");
    rf_gguf_put_string(&w, "three");
    rf_gguf_key_array(&w, "bools", RF_GGUF_BOOL, 2);
    rf_gguf_put(&w, 0x0100, 2);
    rf_gguf_key_array(&w, "i16s", RF_GGUF_I16, 2);
    rf_gguf_put(&w, 0x7ffffff9u, 4); /* -7, 32767 */
    rf_gguf_key_array(&w, "f64s", RF_GGUF_F64, 1);
    rf_gguf_put(&w, bits_of_double(0.25), 8);
    rf_gguf_key_array(&w, "empty", RF_GGUF_U32, 0);
    gguf_tensor(&w, "a.weight", a, RF_TYPE_Q8_0, 64);
    gguf_tensor(&w, "b", b, RF_TYPE_F32, 0);
    gguf_tensor(&w, "c", c, RF_TYPE_F16, 192);
    data = gguf_data(&w, 64, 192 + 16);
    gguf_save(&w, path_of("every.gguf"));
    f = must_open(path_of("every.gguf"));
    assert_int_equal(rf_gguf_header_bytes(f), data);
    assert_int_equal(rf_gguf_file_size(f), w.size);
    rf_gguf_bytes_free(&w);
    return f;
}

static void getters_of_numbers(rf_gguf *f)
{
    uint64_t u;
    double d;
    bool b;
    rf_error err = {0};

    assert_int_equal(rf_gguf_get_uint(f, "u8", 200, &u, &err), 0);
    assert_int_equal(u, 200);
    assert_int_equal(rf_gguf_get_uint(f, "i8", UINT64_MAX, &u, &err), 0);
    assert_int_equal(u, 100);
    assert_int_equal(rf_gguf_get_uint(f, "u32", UINT64_MAX, &u, &err), 0);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(rf_gguf_get_uint(f, "u64", UINT64_MAX, &u, &err), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(rf_gguf_get_uint(f, "i64", 1, &u, &err), 0);
    assert_int_equal(u, 1);
    assert_int_equal(rf_gguf_get_float(f, "f32", &d, &err), 0);
    assert_true(d == 1.5);
    assert_int_equal(rf_gguf_get_float(f, "f64", &d, &err), 0);
    assert_true(d == -0.1);
    assert_int_equal(rf_gguf_get_float(f, "i16.negative", &d, &err), 0);
    assert_true(d == -2);
    assert_int_equal(rf_gguf_get_float(f, "u8", &d, &err), 0);
    assert_true(d == 200);
    assert_int_equal(rf_gguf_get_bool(f, "bool", &b, &err), 0);
    assert_true(b);
}

static void getters_of_arrays(rf_gguf *f)
{
    uint64_t u;
    int64_t i;
    size_t n;
    double d;
    rf_text text;
    rf_error err = {0};

    assert_int_equal(rf_gguf_get_string(f, "string", &text, &err), 0);
    assert_int_equal(text.length, 9);
    assert_memory_equal(text.data, "some text", 9);
    assert_int_equal(rf_gguf_array_length(f, "strings", &n, &err), 0);
    assert_int_equal(n, 3);
    assert_int_equal(rf_gguf_array_string(f, "strings", 2, &text, &err), 0);
    assert_int_equal(text.length, 5);
    assert_memory_equal(text.data, "three", 5);
    assert_int_equal(rf_gguf_array_string(f, "strings", 1, &text, &err), 0);
    assert_int_equal(text.length, 0);
    assert_int_equal(rf_gguf_array_uint(f, "bools", 0, 1, &u, &err), 0);
    assert_int_equal(u, 0);
    assert_int_equal(rf_gguf_array_uint(f, "bools", 1, 1, &u, &err), 0);
    assert_int_equal(u, 1);
    assert_int_equal(rf_gguf_array_int(f, "i16s", 0, -7, 7, &i, &err), 0);
    assert_int_equal(i, -7);
    assert_int_equal(rf_gguf_array_int(f, "i16s", 1, -7, 32767, &i, &err), 0);
    assert_int_equal(i, 32767);
    assert_int_equal(rf_gguf_array_float(f, "f64s", 0, &d, &err), 0);
    assert_true(d == 0.25);
    assert_int_equal(rf_gguf_array_length(f, "empty", &n, &err), 0);
    assert_int_equal(n, 0);
    assert_true(rf_gguf_is_array(f, "empty") && rf_gguf_has(f, "u8"));
    assert_false(rf_gguf_is_array(f, "u8") || rf_gguf_is_array(f, "nothing") || rf_gguf_has(f, "nothing"));
}

static void good_keys(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        rf_gguf *f = every_type(version);

        getters_of_numbers(f);
        getters_of_arrays(f);
        rf_gguf_close(f);
    }
}

static void missing_and_wrong_keys(void **state)
{
    rf_gguf *f = every_type(3);
    uint64_t u = 7;
    int64_t i;
    size_t n;
    double d;
    bool b;
    rf_text text;
    rf_error err = {0};

    (void)state;
    says(rf_gguf_get_uint(f, "qwen35.block_count", 9, &u, &err), &err, "every.gguf: qwen35.block_count: missing");
    says(rf_gguf_get_uint(f, "string", 9, &u, &err), &err, "string: expected an integer, the file has a string");
    says(rf_gguf_get_uint(f, "f32", 9, &u, &err), &err, "f32: expected an integer, the file has a number");
    says(rf_gguf_get_uint(f, "bool", 9, &u, &err), &err, "bool: expected an integer, the file has a boolean");
    says(rf_gguf_get_uint(f, "empty", 9, &u, &err), &err, "empty: expected an integer, the file has an array");
    says(rf_gguf_get_uint(f, "u8", 199, &u, &err), &err, "u8: 200 is out of range (0 to 199 is expected)");
    says(rf_gguf_get_uint(f, "i8.negative", 199, &u, &err), &err, "i8.negative: -128 is out of range");
    says(rf_gguf_get_uint(f, "i16.negative", 199, &u, &err), &err, "i16.negative: -2 is out of range");
    says(rf_gguf_get_uint(f, "i32.negative", UINT64_MAX, &u, &err), &err, "i32.negative: -1 is out of range");
    says(rf_gguf_get_float(f, "nan", &d, &err), &err, "nan: not a finite number");
    says(rf_gguf_get_float(f, "bool", &d, &err), &err, "bool: expected a number, the file has a boolean");
    says(rf_gguf_get_float(f, "nothing", &d, &err), &err, "nothing: missing");
    says(rf_gguf_get_bool(f, "u8", &b, &err), &err, "u8: expected a boolean, the file has an integer");
    says(rf_gguf_get_string(f, "strings", &text, &err), &err, "strings: expected a string, the file has an array");
    says(rf_gguf_array_length(f, "u8", &n, &err), &err, "u8: expected an array, the file has an integer");
    says(rf_gguf_array_string(f, "strings", 3, &text, &err), &err, "strings: element 3 is wanted, the array has 3");
    says(rf_gguf_array_string(f, "i16s", 0, &text, &err), &err, "i16s: expected strings, the file has an integer");
    says(rf_gguf_array_uint(f, "strings", 0, 9, &u, &err), &err, "strings: expected an integer, the file has a string");
    says(rf_gguf_array_int(f, "i16s", 0, -6, 7, &i, &err), &err, "i16s: element 0 is out of range (-6 to 7");
    says(rf_gguf_array_float(f, "strings", 0, &d, &err), &err, "strings: expected a number, the file has a string");
    assert_int_equal(u, 7);
    assert_int_equal(rf_gguf_get_uint(f, "nothing", 9, &u, NULL), -1);
    rf_gguf_close(f);
}

static void tensors(void **state)
{
    rf_gguf *f = every_type(3);
    const rf_tensor *a = rf_gguf_find(f, "a.weight"), *b = rf_gguf_find(f, "b"), *c = rf_gguf_find(f, "c");

    (void)state;
    assert_int_equal(rf_gguf_n_tensors(f), 3);
    assert_ptr_equal(rf_gguf_tensor(f, 0), a);
    assert_ptr_equal(rf_gguf_tensor(f, 1), b);
    assert_ptr_equal(rf_gguf_tensor(f, 2), c);
    assert_null(rf_gguf_find(f, "a"));
    assert_null(rf_gguf_find(f, ""));
    assert_string_equal(a->name, "a.weight");
    assert_int_equal(a->n_dims, 2);
    assert_true(a->dims[0] == 32 && a->dims[1] == 2 && a->dims[2] == 1 && a->dims[3] == 1);
    assert_string_equal(a->format->name, "Q8_0");
    assert_int_equal(a->bytes, 68);
    assert_int_equal(((const unsigned char *)a->data)[0], 64);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(((const unsigned char *)b->data)[2], 2);
    assert_int_equal(c->n_dims, 4);
    assert_int_equal(c->bytes, 16);
    assert_int_equal(((const unsigned char *)c->data)[15], 192 + 15);
    rf_gguf_close(f);
}

/* The file of version 3 that every test of one difference starts from: a tensor of 8 floats, a key. */
static uint64_t hash_of(uint32_t value, unsigned char first_datum)
{
    static const uint64_t dims[4] = {8};
    rf_gguf_bytes w = {0};
    rf_gguf *f;
    uint64_t hash;
    size_t data;

    rf_gguf_put_start(&w, 3, 1, 1);
    rf_gguf_key_scalar(&w, "key", RF_GGUF_U32, value);
    gguf_tensor(&w, "t", dims, RF_TYPE_F32, 0);
    data = gguf_data(&w, 32, 32);
    w.data[data] = first_datum;
    gguf_save(&w, path_of("hash.gguf"));
    f = must_open(path_of("hash.gguf"));
    hash = rf_gguf_header_hash(f);
    rf_gguf_close(f);
    rf_gguf_bytes_free(&w);
    return hash;
}

static void header_hash(void **state)
{
    (void)state;
    assert_true(hash_of(1, 0) == hash_of(1, 0));
    assert_true(hash_of(1, 0) != hash_of(2, 0));
    assert_true(hash_of(1, 0) == hash_of(1, 99)); /* the data is not hashed */
}

/* The files of the project, with counts from an independent reader. */
static void real_files(void **state)
{
    static const struct {
        const char *name;
        size_t n_tensors, n_tokens;
    } files[] = {
        {"micro/micro-F32.gguf", 96, 0},
        {"micro/micro-DFlash1-F32.gguf", 25, 0},
        {"micro/micro-DFlash2-F32.gguf", 36, 0},
        {"tokenizer/qwen3-vocab.gguf", 0, 151936},
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[1024];
        rf_gguf *f;
        size_t n;

        snprintf(path, sizeof path, "%s/%s", RF_TEST_DATA, files[i].name);
        f = must_open(path);
        assert_int_equal(rf_gguf_n_tensors(f), files[i].n_tensors);
        if (files[i].n_tokens) {
            assert_int_equal(rf_gguf_array_length(f, "tokenizer.ggml.tokens", &n, NULL), 0);
            assert_int_equal(n, files[i].n_tokens);
        }
        for (size_t k = 0; k < rf_gguf_n_tensors(f); k++)
            assert_ptr_equal(rf_gguf_find(f, rf_gguf_tensor(f, k)->name), rf_gguf_tensor(f, k));
        rf_gguf_close(f);
    }
}

/* ---- Split sets */

static void write_part(const char *file, uint32_t number, uint32_t count, uint32_t total, const char *tensor)
{
    static const uint64_t dims[4] = {8};
    rf_gguf_bytes w = {0};
    size_t data;

    rf_gguf_put_start(&w, 3, tensor ? 1 : 0, 4);
    rf_gguf_key_scalar(&w, "split.no", RF_GGUF_U16, number);
    rf_gguf_key_scalar(&w, "split.count", RF_GGUF_U16, count);
    rf_gguf_key_scalar(&w, "split.tensors.count", RF_GGUF_I32, total);
    rf_gguf_key_scalar(&w, "part.key", RF_GGUF_U32, number);
    if (tensor)
        gguf_tensor(&w, tensor, dims, RF_TYPE_F32, 0);
    data = gguf_data(&w, 32, tensor ? 32 : 0);
    if (tensor)
        w.data[data] = (unsigned char)(100 + number);
    gguf_save(&w, path_of(file));
    rf_gguf_bytes_free(&w);
}

static void write_three(void)
{
    write_part("m-00001-of-00003.gguf", 0, 3, 2, NULL);
    write_part("m-00002-of-00003.gguf", 1, 3, 2, "two");
    write_part("m-00003-of-00003.gguf", 2, 3, 2, "three");
}

static void split_set(void **state)
{
    rf_gguf *f;
    uint64_t first, u;

    (void)state;
    write_three();
    f = must_open(path_of("m-00001-of-00003.gguf"));
    assert_int_equal(rf_gguf_n_tensors(f), 2);
    assert_int_equal(*(const unsigned char *)rf_gguf_find(f, "two")->data, 101);
    assert_int_equal(*(const unsigned char *)rf_gguf_find(f, "three")->data, 102);
    assert_string_equal(rf_gguf_tensor(f, 1)->name, "three");
    assert_int_equal(rf_gguf_get_uint(f, "part.key", 9, &u, NULL), 0);
    assert_int_equal(u, 0);
    assert_int_equal(rf_gguf_file_size(f) - rf_gguf_header_bytes(f), 64);
    first = rf_gguf_header_hash(f);
    rf_gguf_close(f);
    write_part("m-00003-of-00003.gguf", 2, 3, 2, "drei");
    f = must_open(path_of("m-00001-of-00003.gguf"));
    assert_true(rf_gguf_header_hash(f) != first); /* of all parts */
    rf_gguf_close(f);
}

static void broken_sets(void **state)
{
    (void)state;
    write_three();
    must_refuse("m-00002-of-00003.gguf",
                "m-00002-of-00003.gguf: one of 3 parts; give the first, NAME-00001-of-00003.gguf");
    write_part("m.gguf", 0, 3, 2, NULL);
    must_refuse("m.gguf", "m.gguf: one of 3 parts; give the first");
    write_part("m-00003-of-00003.gguf", 1, 3, 2, "three");
    must_refuse("m-00001-of-00003.gguf", "m-00003-of-00003.gguf: says it is part 2 of 3");
    write_part("m-00003-of-00003.gguf", 2, 4, 2, "three");
    must_refuse("m-00001-of-00003.gguf", "m-00003-of-00003.gguf: says it is part 3 of 4");
    write_part("m-00003-of-00003.gguf", 2, 3, 2, "two");
    must_refuse("m-00001-of-00003.gguf", "tensor two occurs twice");
    write_part("m-00003-of-00003.gguf", 2, 3, 2, NULL);
    must_refuse("m-00001-of-00003.gguf", "the set should have 2 tensors, its parts have 1");
    assert_int_equal(truncate(path_of("m-00003-of-00003.gguf"), 10), 0);
    must_refuse("m-00001-of-00003.gguf", "m-00003-of-00003.gguf: the file ends inside its header");
    assert_int_equal(unlink(path_of("m-00003-of-00003.gguf")), 0);
    must_refuse("m-00001-of-00003.gguf", "m-00003-of-00003.gguf: cannot be opened: No such file");
    write_part("m-00001-of-00003.gguf", 0, 1000, 2, NULL);
    must_refuse("m-00001-of-00003.gguf", "split.count: 1000 is out of range");
    write_part("m-00001-of-00003.gguf", 0, 1, 0, NULL); /* a set of one needs no such name */
    rf_gguf_close(must_open(path_of("m-00001-of-00003.gguf")));
}

/* ---- Files that cannot be read */

static void no_file(void **state)
{
    char longer[700];

    (void)state;
    must_refuse("nothing.gguf", "nothing.gguf: cannot be opened: No such file or directory");
    must_refuse("", "a directory; a GGUF file is expected");
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    must_refuse("pipe", "pipe: not a regular file");
    assert_int_equal(symlink("/dev/null", path_of("null")), 0);
    must_refuse("null", "null: not a regular file");
    assert_int_equal(close(creat(path_of("empty.gguf"), 0600)), 0);
    must_refuse("empty.gguf", "empty.gguf: the file is empty");
    memset(longer, 'x', sizeof longer);
    memcpy(longer + sizeof longer - 6, "/end\n", 6);
    must_refuse(longer, "x/end?: cannot be opened: "); /* long paths lose their beginning; no newline gets through */
    if (geteuid() != 0) {                              /* root may read everything */
        assert_int_equal(chmod(path_of("empty.gguf"), 0), 0);
        must_refuse("empty.gguf", "empty.gguf: cannot be opened: Permission denied");
    }
}

/* However long the path and the names: the sentence keeps its end, where the reason stands. */
static void longest_messages(void **state)
{
    static const uint64_t dims[4] = {8};
    char names[2][65], file[201];
    rf_gguf_bytes w = {0};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        memset(names[i], 'a' + (int)i, 64);
        names[i][64] = 0;
    }
    memset(file, 'x', sizeof file - 1);
    file[sizeof file - 1] = 0;
    rf_gguf_put_start(&w, 3, 2, 0);
    gguf_tensor(&w, names[0], dims, RF_TYPE_F32, 0);
    gguf_tensor(&w, names[1], dims, RF_TYPE_F32, 0);
    gguf_data(&w, 32, 64);
    gguf_save(&w, path_of(file));
    rf_gguf_bytes_free(&w);
    must_refuse(file, " overlap");
    assert_int_equal(unlink(path_of(file)), 0);
}

/* Reads what is left of a file that was truncated after it was opened. */
static void read_truncated(const char *path, int output)
{
    rf_gguf *f = rf_gguf_open(path, NULL);
    const rf_tensor *t = f ? rf_gguf_tensor(f, 0) : NULL;

    dup2(output, STDERR_FILENO);
    rf_gguf_guard_sigbus();
    if (t && truncate(path, 10) == 0)
        _exit(((const volatile unsigned char *)t->data)[t->bytes - 1] ? 10 : 11);
    _exit(12);
}

static void truncated_while_mapped(void **state)
{
    static const uint64_t dims[4] = {65536};
    rf_gguf_bytes w = {0};
    char text[256] = "";
    int ends[2], status;
    pid_t child;

    (void)state;
    rf_gguf_put_start(&w, 3, 1, 0);
    gguf_tensor(&w, "t", dims, RF_TYPE_F32, 0);
    gguf_data(&w, 32, 65536 * 4);
    gguf_save(&w, path_of("shorter.gguf"));
    rf_gguf_bytes_free(&w);
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0)
        read_truncated(path_of("shorter.gguf"), ends[1]);
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), RF_ERR_FILE);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_string_equal(text, "rankflash: a mapped model file became shorter while it was in use\n");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    static const char *const names[] = {"every.gguf",
                                        "hash.gguf",
                                        "m.gguf",
                                        "m-00001-of-00003.gguf",
                                        "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf",
                                        "pipe",
                                        "null",
                                        "empty.gguf",
                                        "shorter.gguf"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_keys),
        cmocka_unit_test(missing_and_wrong_keys),
        cmocka_unit_test(tensors),
        cmocka_unit_test(header_hash),
        cmocka_unit_test(real_files),
        cmocka_unit_test(split_set),
        cmocka_unit_test(broken_sets),
        cmocka_unit_test(no_file),
        cmocka_unit_test(longest_messages),
        cmocka_unit_test(truncated_while_mapped),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
