/* GPU backends: one set of kernels, compiled for CUDA, for HIP, and for the emulator on the host. */
#ifndef RF_GPU_H
#define RF_GPU_H

#include "../backend.h"

typedef struct {
    const char *name; /* "cuda", "hip", "emu" */
    /* A backend on that device (0 .. count - 1; the emulator: 32 or 64, the lanes of a warp). *err: RF_ERR_DEVICE where
     * there is none. */
    rf_backend *(*create)(int device, rf_error *err);
    const rf_ops *(*traits)(void); /* pure functions of the table, without a device */
    int (*count)(void);            /* devices that are there; 0 also without a driver */
    void (*describe)(int device, char *text, size_t size);
    size_t (*free_memory)(void); /* bytes of the device that computes; 0: not known */
} rf_gpu_vendor;

/* Of each vendor that is built in: rf_gpu_find and rf_gpu_at know which. */
const rf_gpu_vendor *rf_gpu_vendor_cuda(void);
const rf_gpu_vendor *rf_gpu_vendor_hip(void);
const rf_gpu_vendor *rf_gpu_vendor_emu(void);

/* Those of this build. NULL: not built in. */
const rf_gpu_vendor *rf_gpu_find(const char *name);
/* In order of preference; NULL behind the last. The emulator is not among them: it never is a product path. */
const rf_gpu_vendor *rf_gpu_at(int index);

#endif
