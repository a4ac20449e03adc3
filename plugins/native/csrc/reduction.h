/* A reduction of several contributions, one after the other, piece by piece: each is passed on while it is in the nearest
   cache. Floats of 16 bits are reduced in 32, and rounded once. */
#ifndef RANKWISE_REDUCTION_H
#define RANKWISE_REDUCTION_H

#include "kernels.h"

enum { REDUCTION_NBYTES = 8192 };

typedef struct {
    Op op;
    Kind kind, wide;
    Merge merge;
    size_t item, step; /* the bytes of an element, and the elements of a piece */
    size_t count;      /* of the current piece */
    const void *left;  /* what has been reduced, or the only contribution so far */
    void *into;
    unsigned char total[REDUCTION_NBYTES], next[REDUCTION_NBYTES];
} Reduction;

void reduction_prepare(Reduction *reduction, Op op, Kind kind);
/* How many of some elements are in the next piece. */
size_t reduction_now(const Reduction *reduction, size_t left);
/* Begin a piece with a contribution. `out` is where its outcome may grow from now on, which holds none of the later
   contributions; NULL if there is no such place. */
void reduction_begin(Reduction *reduction, const void *first, void *out, size_t count);
void reduction_add(Reduction *reduction, const void *next);
/* Write the outcome of the piece, which is divided by the number of ranks if it is an average. */
void reduction_end(Reduction *reduction, void *out, int size);

#endif
