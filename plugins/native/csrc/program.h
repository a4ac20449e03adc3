/* A call as steps that Python has noted once: collectives at the board of a host, transfers over wires between hosts, copies
   and reductions. It is carried out again and again, on other arrays of the same sizes. */
#ifndef RANKWISE_PROGRAM_H
#define RANKWISE_PROGRAM_H

#include "plans.h"
#include "relay.h"
#include "transfers.h"

enum { MOST_STEPS = 32, MOST_BASES = 1 + 2 * MOST_PARTS };

typedef struct Step Step;

typedef struct {
    PyObject_HEAD
    int count, bases;
    Step *steps;
    size_t needs[MOST_BASES]; /* how many bytes each array has that the steps work on, */
    size_t scratch_nbytes;    /* ... and the memory beside them */
} Program;

/* What a call works on: its own array, then those that it has for each rank, or takes from each. */
typedef struct {
    Owned bases[MOST_BASES + 1]; /* the last for memory beside them */
    int count;
} Works;

extern PyTypeObject ProgramType;

/* Return a program, or None if it is left to Python; NULL with an exception set. Ranks alone on their hosts have no board.
   `arrays` are like those that it works on later, `scratch` like the memory beside them; steps are tuples, see
   program_take_step. */
PyObject *program_new(const Board *board, PyObject *ops, PyObject *arrays, PyObject *scratch, PyObject *steps);
/* Whether these arrays are as long as they must be. */
bool program_fits(const Program *program, const Works *works);
/* Carry all steps out, once the calls have been compared; for how long others were waited for over wires is added. The board is
   that of a group on one host. */
Ending program_run(const Program *program, Relay *relay, Board *board, Call *call, const Works *works, int64_t *waited_ns);

#endif
