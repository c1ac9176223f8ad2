/* Small GGUF files for tests, good ones and (by hand) bad ones, from the pieces of src/gguf_writer.h. */
#ifndef RF_TESTS_GGUF_FILES_H
#define RF_TESTS_GGUF_FILES_H

#include "gguf_writer.h"

/* dims: as many as are not 0, at most 4. */
void gguf_tensor(rf_gguf_bytes *b, const char *name, const uint64_t dims[4], uint32_t type, uint64_t offset);
/* Padding, then byte i of the data is i mod 251. Returns where the data begins. */
size_t gguf_data(rf_gguf_bytes *b, size_t alignment, size_t bytes);
void gguf_save(const rf_gguf_bytes *b, const char *path); /* aborts the test when it cannot */

#endif
