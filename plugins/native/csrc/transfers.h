/* What some ranks do over a wire with long data, once their calls have been compared: as `streams` and `rounds` do it. */
#ifndef RANKWISE_TRANSFERS_H
#define RANKWISE_TRANSFERS_H

#include "rounds.h"

/* One such, taken apart. */
typedef struct {
    Wire *wire;      /* borrowed, as all is */
    bool pair;       /* two ranks reduce what both have, in place */
    Owned out[MOST_PARCELS], into[MOST_PARCELS];
    size_t item, nbytes; /* how long an element is, and a segment; 0 where two ranks trade */
    Op op;           /* OPS where nothing is reduced */
    Kind kind;
    PyObject *dtype; /* of all of it */
} Transfer;

/* An all_reduce of two ranks: (array, op); false if it is left to Python. */
bool transfers_take_reduction(Transfer *transfer, Wire *wire, PyObject *array, const char *op);
/* What is sent to each rank, and where what comes from there goes, or what it is reduced into; None for nothing. */
bool transfers_take_exchange(Transfer *transfer, Wire *wire, PyObject *sent, PyObject *taken, const char *op, Py_ssize_t nbytes);
/* Carry it out until a deadline, see `Swap`. */
Ending transfers_run(const Transfer *transfer, PyObject **deadline);

#endif
