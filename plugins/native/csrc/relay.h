/* The comparison of calls among hosts of several ranks, with small data along: what `Relay` and `Relayed` of
   rankwise_gloo_tcp.collectives.relay do, to the same bytes, so that ranks with and without this module work together.
   Each rank writes its record and its data at the board of its host; the first ranks swap what their hosts have written,
   and write all records and the result for the others. */
#ifndef RANKWISE_RELAY_H
#define RANKWISE_RELAY_H

#include "given.h"
#include "wire.h"

typedef struct {
    PyObject_HEAD
    Board *board; /* of this host; NULL where this rank is alone on it */
    Wire *wire;   /* among the first ranks of the hosts; NULL on all others */
    Turn *turn;   /* of this host's group, which is closed once that has failed */
    PyObject *sequence; /* the numbers of that group's calls */
    uint64_t gather[RECORD_WORDS], spread[RECORD_WORDS]; /* what the ranks of a host compare at each step */
    int rank, size, hosts, here;
    int starts[MOST_PARCELS + 1]; /* where the ranks of each host begin among all of them, */
    int *ranks;                   /* ... host by host */
    size_t head, along_nbytes;    /* how long the records of a host are, and the data behind them at the most */
    unsigned char *row;           /* what this host has written; NULL but on its first rank */
    unsigned char *areas;         /* of a rank that is alone: instead of the board's */
    unsigned long long parity;    /* ... and theirs */
    /* For how long others were waited for in all, and of that over other wires than this one. */
    int64_t waited_ns, elsewhere_ns;
} Relay;

extern PyTypeObject RelayType;

/* Whether a call may be made here whose data goes along; NULL for one that has none, here as below. */
bool relay_fits(const Relay *relay, const Given *given);
/* Make a call; of `call` deadline and `await` are given. With a place for the records of all ranks it puts them there, and
   leaves it to the caller whether they are of one call. */
Ending relay_run(Relay *relay, Call *call, const uint64_t about[RECORD_WORDS], const Given *given, unsigned char *records);

/* Note for how long others were waited for, and for how long of that over other wires. */
void relay_note_waits(Relay *relay, int64_t elsewhere_ns);

#endif
