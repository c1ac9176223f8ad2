/* Creation of the backend: the table is filled with reference functions, then with those of the best ISA level of this
 * CPU. */
#include "config.h"

#ifdef RF_X86
#include <cpuid.h>
#endif
#ifdef RF_AMX
#include <sys/syscall.h>
#include <unistd.h>
#ifndef ARCH_REQ_XCOMP_PERM /* asm/prctl.h, from Linux 5.16 on */
#define ARCH_REQ_XCOMP_PERM 0x1023
#endif
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_internal.h"

typedef struct {
    const char *name;
    void (*fill)(rf_ops *ops);
    bool (*supported)(void);
} isa_level;

static bool always(void)
{
    return true;
}

#ifdef RF_X86
/* Not by __builtin_cpu_supports: clang 14 does not know the name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

#ifdef RF_AMX
#define AMX_TILE (1u << 24) /* cpuid 7, EDX */
#define AMX_INT8 (1u << 25)

/* The kernel keeps tiles for a process that asks (state component 18). */
static bool has_amx(void)
{
    unsigned a, b, c, d;

    return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_TILE) && (d & AMX_INT8) &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, 18) == 0;
}
#endif
#endif

/* Ascending: "auto" takes the last that this CPU has. A new level is a row here and a library in local.mk. */
static const isa_level levels[] = {
    {"reference", rf_cpu_compute_ops_reference, always},
#ifdef RF_X86
    {"avx2", rf_cpu_compute_ops_avx2, has_avx2},
    {"avx512", rf_cpu_compute_ops_avx512, has_avx512},
#ifdef RF_AMX
    {"amx", rf_cpu_compute_ops_amx, has_amx},
#endif
#endif
};

#define N_LEVELS (sizeof levels / sizeof *levels)

static const isa_level *choose(const char *isa, rf_error *err)
{
    for (size_t i = N_LEVELS; i-- > 0;) {
        if (strcmp(isa, "auto") != 0 && strcmp(isa, levels[i].name) != 0)
            continue;
        if (levels[i].supported())
            return &levels[i];
        if (strcmp(isa, "auto") != 0) {
            rf_fail(err, RF_ERR_USAGE, "this CPU does not have %s", isa);
            return NULL;
        }
    }
    rf_fail(err, RF_ERR_USAGE, "unknown CPU level %s (auto, reference, avx2, avx512 and amx are known)", isa);
    return NULL;
}

static void destroy(rf_backend *b)
{
    rf_cpu *cpu = cpu_of(b);

    if (!b)
        return;
    cpu_team_destroy(&cpu->team);
    cpu_free(cpu, cpu->units, cpu->units_floats * sizeof(float));
    cpu_free(cpu, cpu->scratch, (size_t)cpu->team.n_threads * cpu->scratch_floats * sizeof(float));
    free(cpu);
}

static const char *device_name(const rf_backend *b)
{
    return cpu_of(b)->device;
}

/* All levels give the same bits. */
static const char *arithmetic(const rf_backend *b)
{
    (void)b;
    return "cpu-f32-1";
}

static void report(const rf_backend *b, void (*line)(const char *text))
{
    char text[200];

    snprintf(text, sizeof text,
             "ops: norms, attention, DeltaNet, matmul, logits: %s; packing, caches, batches: portable", cpu_of(b)->isa);
    line(text);
}

static rf_backend_stats stats(const rf_backend *b)
{
    return cpu_of(b)->stats;
}

static void find_device_name(char *name, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];

    snprintf(name, size, "CPU");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || !value)
            continue;
        value[strcspn(value, "\n")] = 0;
        snprintf(name, size, "%s", value + 2);
        break;
    }
    if (file)
        fclose(file);
}

static void step(rf_backend *b, void (*body)(void *context), void *context)
{
    cpu_team_step(team_of(b), body, context);
}

static void fill_common(rf_ops *ops)
{
    ops->name = "cpu";
    ops->destroy = destroy;
    ops->device_name = device_name;
    ops->arithmetic = arithmetic;
    ops->report = report;
    ops->stats = stats;
    ops->step = step;
    cpu_memory_ops(ops);
    cpu_batch_ops(ops);
    cpu_weight_ops(ops);
    cpu_cache_ops(ops);
    rf_cpu_compute_ops_reference(ops);
}

const rf_ops *rf_cpu_traits(void)
{
    static rf_ops table;

    fill_common(&table);
    return &table;
}

rf_backend *rf_cpu_create(int n_threads, bool busy, const char *isa, rf_error *err)
{
    const isa_level *level = choose(isa, err);
    rf_cpu *cpu;

    if (!level)
        return NULL;
    cpu = calloc(1, sizeof *cpu);
    if (!cpu) {
        rf_fail(err, RF_ERR_MEMORY, "no memory for the CPU backend");
        return NULL;
    }
    cpu_team_init(&cpu->team, n_threads, busy);
    cpu->isa = level->name;
    fill_common(&cpu->table);
    level->fill(&cpu->table);
    cpu->base.ops = &cpu->table;
    find_device_name(cpu->device, sizeof cpu->device);
    return &cpu->base;
}
