/* What two ranks do with data that is too long to go with the comparison of the calls: the same messages as those of
   collectives/streams.py. */
#ifndef RANKWISE_STREAMS_H
#define RANKWISE_STREAMS_H

#include "swaps.h"

/* Whether there is room for segments. */
bool streams_fit(const Wire *wire);
/* Reduce an array in place, in a kind that needs no wider one. Calls are not compared, here as below. */
Ending streams_reduce(Swap *swap, Owned array, Op op, Kind kind);
/* Send one array, and put into another what comes, or reduce it into that where there is an op that is not OPS; either may be
   missing. Elements are `item` bytes long. */
Ending streams_trade(Swap *swap, Owned sent, Owned taken, size_t item, Op op, Kind kind);

#endif
