/* What two ranks do with data that is too long to go with the comparison of the calls: the same messages as those of
   collectives/streams.py. */
#ifndef RANKWISE_STREAMS_H
#define RANKWISE_STREAMS_H

#include "swaps.h"

/* Whether there is room for segments. */
bool streams_fit(const Wire *wire);
/* Compare the calls, unless the swap is about nothing, and reduce an array in place, in a kind that needs no wider one. */
Ending streams_reduce(Swap *swap, Owned array, Op op, Kind kind);
/* Send one array, and put into another what comes, or reduce it into that where there is an op that is not OPS; either may be
   missing. Elements are `item` bytes long. Calls are not compared. */
Ending streams_trade(Swap *swap, Owned sent, Owned taken, size_t item, Op op, Kind kind);
/* Compare the calls, and send the array of the root. */
Ending streams_broadcast(Swap *swap, Owned array, size_t item, int root);

#endif
