# GPU backend: one set of kernel sources, compiled for every vendor of this build and, with the host's C++ compiler, for
# the emulator. A new source is a name in gpu_sources.
gpu_sources = \
	src/gpu/attention.cu src/gpu/backend.cu src/gpu/basic.cu src/gpu/batch.cu src/gpu/caches.cu src/gpu/choices.cu \
	src/gpu/delta.cu src/gpu/logits.cu src/gpu/matmul.cu src/gpu/memory.cu src/gpu/rows.cu src/gpu/weights.cu
gpu_headers = \
	src/gpu/device.h src/gpu/emu.h src/gpu/gpu.h src/gpu/gpu_internal.h src/gpu/gpu_rt.h \
	src/backend.h src/error.h src/half.h src/hash.h src/philox.h src/quant.h src/spec_sizes.h src/sum_tree.h
EXTRA_DIST += $(gpu_sources)

noinst_LIBRARIES += libgpu.a
libgpu_a_SOURCES = src/gpu/vendors.c $(gpu_headers)
libgpu_a_LIBADD =
gpu_libraries = libgpu.a
gpu_system_libraries =

SUFFIXES = .cu .emuo .cudao .hipo
CLEANFILES += src/gpu/*.emuo src/gpu/*.cudao src/gpu/*.hipo

if HAVE_EMU
libgpu_a_SOURCES += src/gpu/emu.c src/gpu/emu_fiber.c src/gpu/emu_fiber.h
gpu_emu_objects = $(gpu_sources:.cu=.emuo)
libgpu_a_LIBADD += $(gpu_emu_objects)
GPU_EMU_FLAGS = -x c++ -std=c++17 -ffp-contract=off -Wall -Wextra -Wconversion -fno-exceptions -fno-rtti -DRT_EMU
.cu.emuo:
	$(AM_V_EMU)$(MKDIR_P) $(@D) && $(CXX) $(DEFS) -I. $(AM_CPPFLAGS) $(CPPFLAGS) $(CXXFLAGS) $(GPU_EMU_FLAGS) -c -o $@ $<
$(gpu_emu_objects): $(gpu_headers)
AM_V_EMU = $(AM_V_EMU_@AM_V@)
AM_V_EMU_ = $(AM_V_EMU_@AM_DEFAULT_V@)
AM_V_EMU_0 = @echo "  EMU     " $@;
AM_V_EMU_1 =
endif

if HAVE_CUDA
gpu_cuda_objects = $(gpu_sources:.cu=.cudao)
libgpu_a_LIBADD += $(gpu_cuda_objects)
gpu_system_libraries += $(CUDA_LIBS) -lstdc++
.cu.cudao:
	$(AM_V_NVCC)$(MKDIR_P) $(@D) && $(NVCC) -std=c++17 -O3 -fmad=false $(CUDA_ARCH_FLAGS) -I. $(AM_CPPFLAGS) $(NVCCFLAGS) -c -o $@ $<
$(gpu_cuda_objects): $(gpu_headers)
AM_V_NVCC = $(AM_V_NVCC_@AM_V@)
AM_V_NVCC_ = $(AM_V_NVCC_@AM_DEFAULT_V@)
AM_V_NVCC_0 = @echo "  NVCC    " $@;
AM_V_NVCC_1 =
endif

if HAVE_HIP
gpu_hip_objects = $(gpu_sources:.cu=.hipo)
libgpu_a_LIBADD += $(gpu_hip_objects)
gpu_system_libraries += $(HIP_LIBS) -lstdc++
.cu.hipo:
	$(AM_V_HIPCC)$(MKDIR_P) $(@D) && $(HIPCC) -x hip -std=c++17 -O3 -fPIE -ffp-contract=off $(HIP_ARCH_FLAGS) -I. $(AM_CPPFLAGS) $(HIPCCFLAGS) -c -o $@ $<
$(gpu_hip_objects): $(gpu_headers)
AM_V_HIPCC = $(AM_V_HIPCC_@AM_V@)
AM_V_HIPCC_ = $(AM_V_HIPCC_@AM_DEFAULT_V@)
AM_V_HIPCC_0 = @echo "  HIPCC   " $@;
AM_V_HIPCC_1 =
endif
