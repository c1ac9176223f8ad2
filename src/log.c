#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static bool speaker = true;
static bool verbose_wanted;
static const char *program = "rankflash";

void rf_log_set_speaker(bool speaks)
{
    speaker = speaks;
}

void rf_log_set_verbose(bool verbose)
{
    verbose_wanted = verbose;
}

void rf_log_set_program(const char *name)
{
    program = name;
}

static void write_line(const char *prefix, const char *format, va_list arguments)
{
    char line[1024];
    int used = snprintf(line, sizeof line, "%s", prefix);
    int text = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
    size_t length = (size_t)used + (text > 0 ? (size_t)text : 0);

    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    for (size_t done = 0; done < length;) {
        ssize_t n = write(STDERR_FILENO, line + done, length - done);
        if (n <= 0)
            return;
        done += (size_t)n;
    }
}

#define LINE(prefix)                            \
    do {                                        \
        va_list arguments;                      \
        va_start(arguments, format);            \
        write_line(prefix, format, arguments);  \
        va_end(arguments);                      \
    } while (0)

void rf_log_info(const char *format, ...)
{
    if (speaker)
        LINE("");
}

void rf_log_warn(const char *format, ...)
{
    if (speaker)
        LINE("warning: ");
}

void rf_log_error(const char *format, ...)
{
    char prefix[40];

    snprintf(prefix, sizeof prefix, "%s: ", program);
    LINE(prefix);
}

void rf_log_verbose(const char *format, ...)
{
    if (speaker && verbose_wanted)
        LINE("");
}
