/* The collectives at the board that reduce. */
#ifndef RANKWISE_REDUCTIONS_H
#define RANKWISE_REDUCTIONS_H

#include "collectives.h"
#include "shared.h"

/* What all ranks reduce: an array of each, for one rank or for all. */
typedef struct {
    unsigned char *whole;
    size_t count;
    Op op;
    Kind kind;
    bool takes; /* whether this rank takes the outcome, into the array itself */
    bool alone; /* ... and no other does */
} Reduced;

/* Each that takes the outcome reduces what all have written. */
Ending reductions_one_shot(Call *call, const Reduced *reduced);
/* Each reduces its share of what all have written, for those that take it. `blocks` is where the arrays of all lie if ranks
   have memory in common, else NULL. */
Ending reductions_two_shot(Call *call, const Reduced *reduced, const Blocks *blocks);
/* Reduce `own` and what is taken, rank by rank, into `out`. */
Ending reductions_combine(Call *call, const Route *route, const void *own, void *out, Op op, Kind kind);

#endif
