# Tests of the GPU backend on the emulated GPU. Those of ops are the CPU's, over other devices.
if HAVE_CMOCKA
if HAVE_EMU
GPU_LIBS = $(gpu_libraries) $(cpu_libraries) libbase.a $(CMOCKA_LIBS) $(gpu_system_libraries)
gpu_tests = tests/test_gpu_attention tests/test_gpu_basic tests/test_gpu_delta tests/test_gpu_logits tests/test_gpu_matmul tests/test_emu
check_PROGRAMS += $(gpu_tests)
TESTS += $(gpu_tests) tests/emu.sh
gpu_devices = tests/emu_devices.c tests/devices.c tests/devices.h tests/check.h
tests_test_gpu_attention_SOURCES = tests/test_cpu_attention.c $(gpu_devices)
tests_test_gpu_attention_LDADD = $(GPU_LIBS)
tests_test_gpu_attention_CPPFLAGS = $(AM_CPPFLAGS)
tests_test_gpu_basic_SOURCES = tests/test_cpu_basic.c $(gpu_devices)
tests_test_gpu_basic_LDADD = $(GPU_LIBS)
tests_test_gpu_basic_CPPFLAGS = $(AM_CPPFLAGS)
tests_test_gpu_delta_SOURCES = tests/test_cpu_delta.c $(gpu_devices)
tests_test_gpu_delta_LDADD = $(GPU_LIBS)
tests_test_gpu_delta_CPPFLAGS = $(AM_CPPFLAGS)
tests_test_gpu_logits_SOURCES = tests/test_cpu_logits.c $(gpu_devices)
tests_test_gpu_logits_LDADD = $(GPU_LIBS)
tests_test_gpu_logits_CPPFLAGS = $(AM_CPPFLAGS)
tests_test_gpu_matmul_SOURCES = tests/test_cpu_matmul.c $(gpu_devices)
tests_test_gpu_matmul_LDADD = $(GPU_LIBS)
tests_test_gpu_matmul_CPPFLAGS = $(AM_CPPFLAGS)
tests_test_emu_SOURCES = tests/test_emu.c tests/emu_kernels.h $(gpu_devices)
tests_test_emu_LDADD = tests/emu_kernels.emuo $(GPU_LIBS)
tests/emu_kernels.emuo: tests/emu_kernels.h $(gpu_headers)
endif
endif
CLEANFILES += tests/*.emuo
EXTRA_DIST += tests/emu_kernels.cu tests/emu.sh
