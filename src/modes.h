/* Choices a user makes on the command line that several rooms share. */
#ifndef RF_MODES_H
#define RF_MODES_H

typedef enum { RF_SPLIT_NONE, RF_SPLIT_LAYER, RF_SPLIT_TENSOR } rf_split;

typedef enum { RF_ALLREDUCE_ORDERED, RF_ALLREDUCE_MPI } rf_allreduce;

typedef enum { RF_REASONING_AUTO, RF_REASONING_OFF, RF_REASONING_ON } rf_reasoning;

#endif
