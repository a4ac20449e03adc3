/* The collectives at the board: the ways of rankwise_gloo_tcp's OneShot, TwoShot, Move and Combine, step by step, so
   that ranks with and without this module can take part in one. */
#ifndef RANKWISE_COLLECTIVES_H
#define RANKWISE_COLLECTIVES_H

#include "board.h"
#include "kernels.h"

enum { MOST_PARTS = 16 };

/* One call, with what it needs on its way. */
typedef struct {
    Board *board;
    const uint64_t *about;
    /* Called with the interpreter when others are late: waits for them, and returns the call's deadline; `deadline` is
       owned, and before that a time-out, or None for the group's. */
    PyObject *await, *deadline;
    bool holds;       /* whether this thread holds the interpreter */
    PyThreadState *let_go;
    int64_t looked_ns; /* when signals and failures were looked for last */
    unsigned long long written; /* the parity of what was written last */
} Call;

/* UNLIKE: the calls differ. APART: they are the same, but not all ranks have sent their data along. UNREADABLE: another
   rank's memory is. GARBLED: what came is none of such a call. BROKEN: an exception is set. */
typedef enum { DONE, UNLIKE, APART, UNREADABLE, GARBLED, BROKEN } Ending;

typedef struct {
    unsigned char *bytes;
    size_t count;
} Part;

typedef struct Blocks Blocks; /* see shared.h */

/* Data from and to other ranks, by slots of the board. */
typedef struct {
    size_t item;
    size_t fetch_count; /* parts of so many elements and more do not pass through slots, but are copied by the receiver */
    int slots, sends, takes;
    struct { int slot; Part part; } send[MOST_PARTS];
    struct { int peer, slot; Part part; } take[MOST_PARTS];
    bool told;        /* whether only the records tell the next */
    uint64_t longest; /* the most elements that any rank sends to another through slots, and FETCHES if there are others */
    bool common;      /* whether ranks may tell that the outcome is in memory that they have in common, */
    uint64_t word;    /* ... and what this one tells of it: see shared.h */
} Route;

/* The ways in which Python has prepared a call: at the board, and from SWAP on over the wire, the last two by both. NEVER
   is left to it. */
typedef enum { NEVER, MEET, ONE_SHOT, TWO_SHOT, MOVE, COMBINE, SWAP, SWAP_REDUCE, SWAP_MOVE, SWAP_COMBINE, SWAP_STREAM, SWAP_SEGMENTS, RELAY, PROGRAM, WAYS } Way;

/* The areas to write before the next turn, and to read after it. */
unsigned long long collectives_flip(Call *call);
/* Post what was written and the record; DONE if all make the same call. */
Ending collectives_exchange(Call *call);
Ending collectives_meet(Call *call);
/* Reduce what all have, into this rank's array if it takes the result. */
Ending collectives_one_shot(Call *call, void *array, size_t count, Op op, Kind kind, bool takes);
/* `blocks` is where the array lies if ranks have memory in common, else NULL. */
Ending collectives_two_shot(Call *call, void *array, size_t count, Op op, Kind kind, const Blocks *blocks);
/* Copy what comes to its places, and at last what this rank has for itself. */
Ending collectives_move(Call *call, const Route *route, Part to, Part from);
/* Reduce `own` and what is taken, rank by rank, into `out`. */
Ending collectives_combine(Call *call, const Route *route, const void *own, void *out, Op op, Kind kind);

#endif
