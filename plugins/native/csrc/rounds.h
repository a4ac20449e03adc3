/* What three ranks and more do with data that is too long to go with the comparison of the calls: the same messages as
   those of `Exchange` in collectives/streams.py. */
#ifndef RANKWISE_ROUNDS_H
#define RANKWISE_ROUNDS_H

#include "arguments.h"
#include "swaps.h"

/* One exchange, of which each round moves a segment to and from every other rank at the same time. Rounds are for all: a
   rank that went on with one of the others before it has heard of the rest could be waited for by somebody who waits. */
typedef struct {
    const Swap *swap; /* of which wire and deadline are used */
    /* What is sent to each rank, and where what comes from there goes; NULL for nothing. All that is reduced goes to one. */
    Owned out[MOST_PARCELS], into[MOST_PARCELS];
    PyObject *dtype;     /* of what is reduced; borrowed */
    size_t item, length; /* how long an element is, and how many make a segment */
    Op op;               /* OPS where nothing is reduced */
    Kind kind;
    /* The round that goes on: what it begins with, and of each of its parcels how many elements are reduced. */
    size_t begin;
    int count;
    Parcel parcels[MOST_PARCELS];
    size_t merged[MOST_PARCELS];
} Rounds;

/* Whether there is room for what is reduced. */
bool rounds_fit(const Rounds *rounds);
/* Make all rounds; with one that takes too long Python goes on, and with all others at the same time. */
Ending rounds_run(Rounds *rounds);

#endif
