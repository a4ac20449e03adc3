/* Writing to memory that another rank reads, such as a ring or an area of the board: how it is copied to, and its pages. */
#ifndef RANKWISE_OUTGOING_H
#define RANKWISE_OUTGOING_H

#include "native.h"

enum { OUTGOING_LENGTHS = 3 };

/* What copies of about one length have taken, for each line of the cache: such as pass through the caches, and such as do not. */
typedef struct {
    unsigned count;
    float cached_ns, streamed_ns;
} CopyTimes;

/* What copies to one place have taken. */
typedef struct {
    CopyTimes of[OUTGOING_LENGTHS];
} Outgoing;

/* Copy what another rank will read. It is there before anything that is written later with an order of release. */
void outgoing_copy(Outgoing *outgoing, void *to, const void *from, size_t nbytes);

/* Which of 32 pieces of a stretch of memory have been touched. */
typedef uint32_t Touched;

/* Have the pages of some bytes that are about to be written, out of `room` bytes that begin at `base`, and up to `most` of their
   pieces that follow. */
void outgoing_touch(Touched *touched, const unsigned char *base, size_t room, size_t begin, size_t nbytes, int most);

#endif
