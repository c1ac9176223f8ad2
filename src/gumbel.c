#include "gumbel.h"

#include <math.h>

double rf_gumbel(uint64_t seed, int64_t position, int32_t token)
{
    return -log(-log(((double)rf_gumbel_word(seed, position, token) + 0.5) / 4294967296.0));
}
