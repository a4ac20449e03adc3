/* Reductions of two ranks that are too long to go with the comparison of the calls: the same messages as those of
   collectives/streams.py. */
#ifndef RANKWISE_STREAMS_H
#define RANKWISE_STREAMS_H

#include "swaps.h"

/* Whether there is room for segments, and what is reduced needs no wider kind. */
bool streams_fit(const Wire *wire, Op op, Kind kind);
/* Compare the calls, and reduce an array in place. */
Ending streams_reduce(Swap *swap, PyArrayObject *array, Op op, Kind kind);

#endif
