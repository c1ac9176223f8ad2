/* Backends of nothing but buffers, for tests of what moves bytes. */
#ifndef RF_TESTS_BACKEND_FAKE_H
#define RF_TESTS_BACKEND_FAKE_H

#include "backend.h"

rf_backend *rf_fake_host(void);   /* buffers are host memory */
rf_backend *rf_fake_device(void); /* buffers have no host address; those of one may be used as the other's */
void *rf_fake_data(rf_buf *buf);

#endif
