/* Where the demo pair is. */
#ifndef RF_DEMO_PAIR_H
#define RF_DEMO_PAIR_H

#include <stdbool.h>
#include <stddef.h>

#define RF_DEMO_TARGET "factbook-tiny-Q8_0.gguf"
#define RF_DEMO_DRAFTER "factbook-tiny-DFlash2-Q8_0.gguf"

/* Its folder: beside the program (installed anywhere), where make install put it, or in the source tree. */
bool rf_demo_folder(char *folder, size_t size);
/* Where make install puts it, for a message. */
const char *rf_demo_installed(void);

#endif
