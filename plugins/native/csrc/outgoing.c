/* A line of the cache that another processor has read must be taken away from it before it can be written to. On processors
   that have a cache in common that is quick. On others each line may take as long as several copies of it, and a copy that
   goes past the caches is up to five times faster, although its reader has to fetch it from main memory. Which of the two it
   is can change whenever the system moves a rank, so a rank looks at what its copies take. */
#include "outgoing.h"
#include "streaming.h"
#include <sys/mman.h>
#include <unistd.h>

#if STREAMS
/* What is shorter is always faster through the caches; and from which lengths on others are judged by themselves. */
static const size_t from_nbytes[OUTGOING_LENGTHS] = {4 << 10, 16 << 10, 64 << 10};
/* Each so many copies one is timed, and each so many one of the other kind is tried; at first more often. */
enum { TIMED = 8, TRIED = 256 };
/* How much longer a line must take through the caches, as its reader need not fetch it from main memory then; of few lines
   that takes longer for each. */
static const float worth_ns[OUTGOING_LENGTHS] = {8, 6, 4};
/* How much of a longer time is learned at once, and how many times the time before it may be, as it may be the system's. */
static const float LEARNED = 0.25f, MOST_TIMES = 2;

static bool outgoing_tries(unsigned count)
{
    return (count & (count - 1)) == 0 || count % TRIED == 0;
}

static void outgoing_learn(float *known_ns, float took_ns)
{
    if (*known_ns == 0 || took_ns < *known_ns) {
        *known_ns = took_ns;
        return;
    }
    float most_ns = MOST_TIMES * *known_ns;
    *known_ns += LEARNED * ((took_ns < most_ns ? took_ns : most_ns) - *known_ns);
}

void outgoing_copy(Outgoing *outgoing, void *to, const void *from, size_t nbytes)
{
    if (nbytes < from_nbytes[0]) {
        memcpy(to, from, nbytes);
        return;
    }
    int length = nbytes < from_nbytes[1] ? 0 : nbytes < from_nbytes[2] ? 1 : 2;
    CopyTimes *taken = &outgoing->of[length];
    bool tries = outgoing_tries(++taken->count), timed = tries || taken->count % TIMED == 0;
    bool streamed = (taken->streamed_ns + worth_ns[length] < taken->cached_ns) != tries;
    int64_t began_ns = timed ? native_monotonic_ns() : 0;
    if (streamed)
        streaming_copy(to, from, nbytes);
    else
        memcpy(to, from, nbytes);
    if (timed)
        outgoing_learn(streamed ? &taken->streamed_ns : &taken->cached_ns, (float)(native_monotonic_ns() - began_ns) * 64 / (float)nbytes);
}
#else
void outgoing_copy(Outgoing *outgoing, void *to, const void *from, size_t nbytes)
{
    (void)outgoing;
    memcpy(to, from, nbytes);
}
#endif

/* MADV_POPULATE_WRITE, which older headers do not have, and kernels before 5.14 refuse: there the pages come one by one. */
enum { POPULATE_WRITE = 23, A_FEW_PAGES_NBYTES = 8 << 10, PIECES = 32 };

/* One by one each page costs a fault in the midst of a call, 2 to 10 us; together they take a quarter of that. Of memory that is written from one
   end to the other as many pieces follow as have been touched before, up to `most`: so few calls are slow, and what is hardly
   used stays small. */
void outgoing_touch(Touched *touched, const unsigned char *base, size_t room, size_t begin, size_t nbytes, int most)
{
    if (*touched == UINT32_MAX || nbytes < A_FEW_PAGES_NBYTES)
        return;
    size_t piece = room / PIECES + 1, first = begin / piece, last = (begin + nbytes - 1) / piece;
    Touched wanted = 0;
    for (size_t at = first; at <= last && at < PIECES; at++)
        wanted |= (Touched)1 << at;
    wanted &= ~*touched;
    if (wanted == 0)
        return;
    int ahead = __builtin_popcount(*touched);
    for (size_t at = last + 1; at <= last + (size_t)(ahead < most ? ahead : most) && at < PIECES; at++)
        wanted |= (Touched)1 << at & ~*touched;
    *touched |= wanted;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < PIECES; at++) {
        uintptr_t from = (uintptr_t)(base + at * piece) & ~(page - 1), until = (uintptr_t)base + ((at + 1) * piece < room ? (at + 1) * piece : room);
        if ((wanted >> at & 1) != 0)
            madvise((void *)from, until - from, POPULATE_WRITE);
    }
}
