#include "config.h"

#include <string.h>

#include "gpu.h"

static const rf_gpu_vendor *(*const products[])(void) = {
#ifdef RF_HAVE_CUDA
    rf_gpu_vendor_cuda,
#endif
#ifdef RF_HAVE_HIP
    rf_gpu_vendor_hip,
#endif
    NULL,
};

const rf_gpu_vendor *rf_gpu_at(int index)
{
    return products[index] ? products[index]() : NULL;
}

const rf_gpu_vendor *rf_gpu_find(const char *name)
{
#ifdef RF_HAVE_EMU
    if (strcmp(name, "emu") == 0)
        return rf_gpu_vendor_emu();
#endif
    for (int i = 0; products[i]; i++)
        if (strcmp(products[i]()->name, name) == 0)
            return products[i]();
    return NULL;
}
