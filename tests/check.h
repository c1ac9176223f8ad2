/* cmocka with what it wants included before it. */
#ifndef RF_TESTS_CHECK_H
#define RF_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
