# Tests of the CPU backend.
if HAVE_CMOCKA
CPU_LIBS = $(cpu_libraries) libbase.a $(CMOCKA_LIBS)
cpu_tests = tests/test_cpu_attention tests/test_cpu_basic tests/test_cpu_delta \
	tests/test_cpu_logits tests/test_cpu_matmul tests/test_cpu_memory tests/test_cpu_team
check_PROGRAMS += $(cpu_tests)
TESTS += $(cpu_tests)
cpu_devices = tests/cpu_devices.c tests/devices.c tests/devices.h tests/check.h
tests_test_cpu_attention_SOURCES = tests/test_cpu_attention.c $(cpu_devices)
tests_test_cpu_attention_LDADD = $(CPU_LIBS)
tests_test_cpu_basic_SOURCES = tests/test_cpu_basic.c $(cpu_devices)
tests_test_cpu_basic_LDADD = $(CPU_LIBS)
tests_test_cpu_delta_SOURCES = tests/test_cpu_delta.c $(cpu_devices)
tests_test_cpu_delta_LDADD = $(CPU_LIBS)
tests_test_cpu_logits_SOURCES = tests/test_cpu_logits.c $(cpu_devices)
tests_test_cpu_logits_LDADD = $(CPU_LIBS)
tests_test_cpu_matmul_SOURCES = tests/test_cpu_matmul.c $(cpu_devices)
tests_test_cpu_matmul_LDADD = $(CPU_LIBS)
tests_test_cpu_memory_SOURCES = tests/test_cpu_memory.c $(cpu_devices)
tests_test_cpu_memory_LDFLAGS = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc
tests_test_cpu_memory_LDADD = $(CPU_LIBS)
tests_test_cpu_team_SOURCES = tests/test_cpu_team.c tests/check.h
tests_test_cpu_team_LDADD = $(CPU_LIBS)
if AMX
check_PROGRAMS += tests/test_cpu_amx
TESTS += tests/test_cpu_amx
endif
tests_test_cpu_amx_SOURCES = tests/test_cpu_amx.c tests/emulated_tiles.h tests/check.h
tests_test_cpu_amx_CFLAGS = $(libcpu_avx512_a_CFLAGS)
tests_test_cpu_amx_LDADD = $(CPU_LIBS)
endif

# make tests/bench_cpu
EXTRA_PROGRAMS = tests/bench_cpu
tests_bench_cpu_SOURCES = tests/bench_cpu.c
tests_bench_cpu_LDADD = $(cpu_libraries) libbase.a
