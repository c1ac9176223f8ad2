# CPU backend. The compute sources are compiled once for each ISA level.
# A new level is a library here and a row in cpu.c.
cpu_compute = \
	src/cpu/attention.c src/cpu/attention.h src/cpu/attention_span.c src/cpu/basic.c \
	src/cpu/compute.c src/cpu/delta.c src/cpu/logits.c src/cpu/matmul.c \
	src/cpu/isa.h src/cpu/vec16.h

noinst_LIBRARIES += libcpu.a libcpu_reference.a
libcpu_a_SOURCES = \
	src/cpu/batch.c src/cpu/caches.c src/cpu/cpu.c src/cpu/cpu_internal.h \
	src/cpu/machine_limits.c src/cpu/memory.c src/cpu/team.c src/cpu/team.h src/cpu/weights.c \
	src/backend.h src/machine_limits.h src/spec_sizes.h
libcpu_a_CPPFLAGS = $(AM_CPPFLAGS) $(cpu_defines)
libcpu_reference_a_SOURCES = $(cpu_compute) src/cpu/q8_reference.c
libcpu_reference_a_CPPFLAGS = $(AM_CPPFLAGS) -DRF_ISA=reference
cpu_libraries = libcpu.a libcpu_reference.a

if X86
cpu_defines = -DRF_X86
noinst_LIBRARIES += libcpu_avx2.a libcpu_avx512.a
libcpu_avx2_a_SOURCES = $(cpu_compute) src/cpu/q8_avx2.c
libcpu_avx2_a_CPPFLAGS = $(AM_CPPFLAGS) -DRF_ISA=avx2 -DRF_ISA_AVX2
libcpu_avx2_a_CFLAGS = $(AM_CFLAGS) -mavx2 -mfma -mf16c
libcpu_avx512_a_SOURCES = $(cpu_compute) src/cpu/q8_avx512.c
libcpu_avx512_a_CPPFLAGS = $(AM_CPPFLAGS) -DRF_ISA=avx512 -DRF_ISA_AVX512
libcpu_avx512_a_CFLAGS = $(AM_CFLAGS) -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni \
	-mprefer-vector-width=512
cpu_libraries += libcpu_avx2.a libcpu_avx512.a
else
cpu_defines =
EXTRA_DIST += src/cpu/q8_avx2.c src/cpu/q8_avx512.c
endif
if AMX
cpu_defines += -DRF_AMX
noinst_LIBRARIES += libcpu_amx.a
libcpu_amx_a_SOURCES = $(cpu_compute) src/cpu/q8_avx512.c src/cpu/q8_amx.c
libcpu_amx_a_CPPFLAGS = $(AM_CPPFLAGS) -DRF_ISA=amx -DRF_ISA_AVX512 -DRF_ISA_AMX
libcpu_amx_a_CFLAGS = $(libcpu_avx512_a_CFLAGS) -mamx-tile -mamx-int8
cpu_libraries += libcpu_amx.a
else
EXTRA_DIST += src/cpu/q8_amx.c
endif
