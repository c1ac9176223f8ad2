#include "config.h"

#include "demo_pair.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

bool rf_demo_folder(char *folder, size_t size)
{
    char exe[PATH_MAX], beside[PATH_MAX + 64], probe[PATH_MAX + 128];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    const char *places[] = {NULL, rf_demo_installed(), RF_SOURCE_DIR "/share/factbook-tiny"};

    if (n > 0) {
        exe[n] = 0;
        snprintf(beside, sizeof beside, "%s/../share/rankflash/factbook-tiny", dirname(exe));
        places[0] = beside;
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!places[i])
            continue;
        snprintf(probe, sizeof probe, "%s/%s", places[i], RF_DEMO_TARGET);
        if (access(probe, R_OK) != 0)
            continue;
        snprintf(folder, size, "%s", places[i]);
        return true;
    }
    return false;
}

const char *rf_demo_installed(void)
{
    return RF_DATA_DIR "/factbook-tiny";
}
