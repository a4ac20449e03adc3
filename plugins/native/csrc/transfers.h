/* What some ranks do over a wire with long data, once their calls have been compared: the same messages as those of
   collectives/streams.py. */
#ifndef RANKWISE_TRANSFERS_H
#define RANKWISE_TRANSFERS_H

#include "swaps.h"

/* The tag of what moves. */
#define COLLECTIVE_TAG 0x40000001u

/* One such, taken apart. */
typedef struct {
    Wire *wire; /* borrowed, as all is */
    bool pair;  /* two ranks reduce what both have, in place: the first `into` */
    /* What is sent to each rank, and where what comes from there goes; NULL for nothing. All that is reduced goes to one. */
    Owned out[MOST_PARCELS], into[MOST_PARCELS];
    size_t item, nbytes; /* how long an element is, and a segment; 0 where two ranks trade */
    Op op;               /* OPS where nothing is reduced */
    Kind kind;
    PyObject *dtype; /* of all of it */
} Transfer;

/* An all_reduce of two ranks: (array, op); false if it is left to Python. */
bool transfers_take_reduction(Transfer *transfer, Wire *wire, PyObject *array, const char *op);
/* What is sent to each rank, and where what comes from there goes, or what it is reduced into; None for nothing. */
bool transfers_take_exchange(Transfer *transfer, Wire *wire, PyObject *sent, PyObject *taken, const char *op, Py_ssize_t nbytes);
/* Carry it out until a deadline, see `Swap`. */
Ending transfers_run(const Transfer *transfer, PyObject **deadline);

/* Reduce elements of a segment that have come into its place, from the `merged` first on up to so many. */
void transfers_merge(const Transfer *transfer, unsigned char *segment, int peer, size_t *merged, size_t count);

/* Of two ranks, segment by segment: whether there is room for that, and all of it. */
bool streams_fit(const Wire *wire);
Ending streams_run(const Transfer *transfer, PyObject **deadline);

/* Of all ranks, round by round, in each of which a segment moves to and from every other at the same time. Rounds are for all:
   a rank that went on with one of the others before it has heard of the rest could be waited for by somebody who waits. With
   one that takes too long Python goes on, and with all others at the same time. */
bool rounds_fit(const Transfer *transfer);
Ending rounds_run(const Transfer *transfer, PyObject **deadline);

#endif
