#include "error.h"

#include <stdarg.h>
#include <stdio.h>

int rf_fail(rf_error *err, rf_code code, const char *format, ...)
{
    va_list arguments;

    if (!err)
        return -1;
    err->code = code;
    va_start(arguments, format);
    vsnprintf(err->text, sizeof err->text, format, arguments);
    va_end(arguments);
    return -1;
}
