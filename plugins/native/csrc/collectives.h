/* The collectives at the board: the ways of rankwise_gloo_tcp's OneShot, TwoShot, Move and Combine, step by step, so
   that ranks with and without this module can take part in one. Those that reduce are in reductions.h. */
#ifndef RANKWISE_COLLECTIVES_H
#define RANKWISE_COLLECTIVES_H

#include "board.h"
#include "kernels.h"

enum { MOST_PARTS = 16, TO_ALL = -1 };

/* One call, with what it needs on its way. */
typedef struct {
    Board *board;
    uint64_t *about; /* the record of this one call */
    /* Called with the interpreter when others are late: waits for them, and returns the call's deadline; `deadline` is
       owned, and before that a time-out, or None for the group's. */
    PyObject *await, *deadline;
    bool holds;       /* whether this thread holds the interpreter */
    PyThreadState *let_go;
    int64_t looked_ns; /* when signals and failures were looked for last; 0 before the first time that they might be */
    unsigned long long written; /* the parity of what was written last */
    bool lends;       /* whether others may write to this call's arrays: its caller keeps them if one still does at the end, */
    bool written_to;  /* ... which is told here */
    Meanwhile begin; /* notes that the call begins, with the interpreter and before anything is waited for; {0} when done */
} Call;

/* UNLIKE: the calls differ. APART: they are the same, but not all ranks have sent their data along. GARBLED: what came is
   none of such a call. BROKEN: an exception is set. */
typedef enum { DONE, UNLIKE, APART, GARBLED, BROKEN } Ending;

typedef struct {
    unsigned char *bytes;
    size_t count;
} Part;

/* Data from and to other ranks, by slots of the board: one for each of them, or one alone for whoever takes it. */
typedef struct {
    size_t item;
    size_t fetch_count; /* parts of so many elements and more do not pass through slots, but are copied by the receiver */
    int slots, sends, takes;
    struct { int peer; Part part; } send[MOST_PARTS], take[MOST_PARTS]; /* the peer of what goes to all others is TO_ALL */
    bool told;        /* whether only the records tell the next */
    uint64_t longest; /* the most elements that any rank sends to another through slots, and FETCHES if there are others */
    bool common;      /* whether ranks may tell that the outcome is in memory that they have in common, */
    uint64_t word;    /* ... and what this one tells of it: see shared.h */
} Route;

/* The ways in which Python has prepared a call: five at the board; where hosts compare the calls, with the data ALONG; and by
   a PROGRAM that follows the comparison. NEVER is left to it. */
typedef enum { NEVER, MEET, ONE_SHOT, TWO_SHOT, MOVE, COMBINE, ALONG, PROGRAM, WAYS } Way;

/* What is so large lets go of the interpreter. */
enum { LARGE = 65536 };
/* Results of so many bytes are more than the nearer caches hold. */
enum { STREAMED = 2 << 20 };

/* Whether two parts have memory in common. */
static inline bool collectives_touch(Part a, Part b, size_t item)
{
    return a.count > 0 && b.count > 0 && a.bytes < b.bytes + b.count * item && b.bytes < a.bytes + a.count * item;
}

/* What a rank has for itself: where to and where from, and whether it is there. */
typedef struct {
    Part to, from;
    bool there;
} Kept;

/* What is done with the pieces that have come: from element `start` on, so many of each part at the most. */
typedef void (*TakePieces)(Call *call, const Route *route, size_t start, size_t room, unsigned long long parity, void *more);

/* Note that the call begins, if that has not been done. */
void collectives_begin(Call *call);
void collectives_let_go(Call *call);
void collectives_take_back(Call *call);
/* Notice, in the midst of large data, what waits would have noticed. */
bool collectives_look_around(Call *call);
bool collectives_meet_all(Call *call);
/* How many elements of a part are left from `start` on, of those that there is room for. */
size_t collectives_within(Part part, size_t start, size_t room);
const unsigned char *collectives_piece_of(const Call *call, const Route *route, int i, unsigned long long parity);
/* Pass data through the slots, piece by piece, and take what comes; keep what this rank has for itself if time is left. */
Ending collectives_pass(Call *call, const Route *route, TakePieces take, void *more, Kept *kept);
/* The areas to write before the next turn, and to read after it. */
unsigned long long collectives_flip(Call *call);
/* Post what was written and the record; DONE if all make the same call. */
Ending collectives_exchange(Call *call);
Ending collectives_meet(Call *call);
/* Copy what comes to its places, and at last what this rank has for itself. */
Ending collectives_move(Call *call, const Route *route, Part to, Part from);

#endif
