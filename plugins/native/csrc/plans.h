/* The kinds of calls that are known, by what distinguishes them. */
#ifndef RANKWISE_PLANS_H
#define RANKWISE_PLANS_H

#include "given.h"
#include "reductions.h"

/* How one kind of call is done. */
typedef struct {
    Way way;
    size_t fetch_count;
    uint64_t about[RECORD_WORDS];
    PyObject *kind;    /* of Python; NULL where there is none, or where Python need not know of it */
    PyObject *program; /* of a call that is made; of a kind that is kept NULL */
} Doing;

/* How long the arrays of all others are at the most that everyone reduces for itself. */
enum { ONE_SHOT_NBYTES = 512 << 10 };

/* Let the data of what was given go along between hosts; `digest` is that of what all ranks compare. */
void plans_make_along(Doing *doing, int rank, int size, const Given *given, uint64_t digest);
/* Choose how to do what was given at a board; `digest` is that of what all ranks compare. */
void plans_make(Doing *doing, const Board *board, const Given *given, uint64_t digest);
/* Take what a kind of call, which is owned by the caller, says of itself. Its `about` is at a board the digest, and the rest is
   chosen; elsewhere, without a board, it is all of the record, and there is a `way`. */
bool plans_read(Doing *doing, PyObject *kind, const Board *board, const Given *given);
/* Whether the board has room for what a plan says; Python has looked too, but this is what memory depends on. */
bool plans_has_room(const Doing *doing, const Board *board, const Given *given);
/* Do what was given at the board. */
Ending plans_go(const Doing *doing, Call *call, Given *given);

typedef struct {
    bool taken; /* else this place is empty */
    Key key;
    Doing doing;
} Plan;

typedef struct {
    int taken, places;
    Plan *table; /* grows with use; NULL while nothing is known */
    uint64_t forgotten; /* how often all were */
} Plans;

/* NULL if it is not known. */
Plan *plans_known(const Plans *plans, const Key *key);
/* Keep a plan, whose kind, if it has one, is owned from then on, instead of one of the same key; NULL with an exception set. */
Plan *plans_keep(Plans *plans, const Key *key, const Doing *doing);
void plans_forget(Plans *plans);

#endif
