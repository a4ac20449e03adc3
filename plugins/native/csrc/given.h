/* What public calls are given: plain arguments, taken apart; whatever is not plain is left to Python. */
#ifndef RANKWISE_GIVEN_H
#define RANKWISE_GIVEN_H

#include "collectives.h"

/* The calls. */
typedef enum { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, BARRIER, NAMES } Name;
enum { MOST_NUMBERS = 2 * MOST_PARTS };

/* What Python calls an operation: of one that is not among these, but described in steps, as it was first named. */
PyObject *given_name(int name);
extern PyObject *given_names[NAMES];

/* Whose calls they are. */
typedef struct {
    int rank, size;
    PyObject *ops; /* in the order of `Op`; None where Python has none of that name */
} Members;

/* What distinguishes one prepared call from another: so many numbers, and what is zero where nothing is said. */
typedef struct {
    int name, option, type, count;
    npy_intp numbers[MOST_NUMBERS];
} Key;

/* What one call works on. */
typedef struct {
    Key key;
    Kind kind;
    Op op;
    int root;             /* -1 where there is none */
    PyArrayObject *array; /* this rank's contribution, or what that is part of; NULL for a barrier */
    Part whole;           /* ... all of it */
    PyObject *held[MOST_NUMBERS];
    int holds;
    /* What this rank has for each, and then what it takes from each, and what that is part of. */
    Part parts[2 * MOST_PARTS];
    PyArrayObject *owners[2 * MOST_PARTS];
    int many;
    Route route;
    Part keep_to, keep_from; /* what this rank has for itself */
} Given;

/* What a call takes of its arguments; false if it is left to Python. What it holds is dropped in any case. */
typedef bool Take(const Members *members, PyObject *const *args, Given *given);

/* The public calls, and how many arguments they have but for the time-out. */
#define GIVEN_CALLS(of)                                                                                           \
    of(all_reduce, 2) of(broadcast, 2) of(reduce, 3) of(all_gather, 2) of(all_gather_single, 2) of(reduce_scatter, 3) \
    of(reduce_scatter_single, 3) of(all_to_all, 2) of(all_to_all_single, 2) of(gather, 3) of(scatter, 3) of(barrier, 0) \
    of(all_reduce_coalesced, 2) of(described, 6)
#define GIVEN_TAKES(name, count) Take given_take_##name;
GIVEN_CALLS(GIVEN_TAKES)

/* What takes the arguments of a call, of which there are so many. */
typedef struct {
    const char *name;
    Py_ssize_t count;
    Take *take;
} Taker;

/* NULL for a call that is left to Python. */
const Taker *given_taker(const char *name);
/* Put what several arrays have become as one to where it belongs. */
void given_unpack(const Given *given);
void given_drop(Given *given);
/* Have its arrays stay for good. */
void given_keep(const Given *given);
/* Whether it is a call of the core's own that reduces. */
bool given_reduces(const Given *given);
/* Whether each rank knows the sizes of its own parts only. */
bool given_is_each_its_own(const Given *given);

#endif
