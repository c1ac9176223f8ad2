/* One ISA level's part of the op table. */
#include "isa.h"

void RF_ISA_NAME(rf_cpu_compute_ops)(rf_ops *ops)
{
    RF_ISA_NAME(basic_ops)(ops);
    RF_ISA_NAME(matmul_ops)(ops);
    RF_ISA_NAME(attention_ops)(ops);
    RF_ISA_NAME(delta_ops)(ops);
    RF_ISA_NAME(logit_ops)(ops);
}
