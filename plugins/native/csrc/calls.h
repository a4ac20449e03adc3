/* The calls of one group in C: what makes them, for the public functions and for those that are bound to their arguments. */
#ifndef RANKWISE_CALLS_H
#define RANKWISE_CALLS_H

#include "program.h"
#include "recorder.h"
#include "turn.h"

enum { UNASKED = -2 };

typedef struct {
    PyObject_HEAD
    Board *board; /* or */
    Wire *wire;   /* or */
    Relay *relay; /* by which these calls go; the others are NULL */
    Members members;
    Trail *trail;
    Turn *turn;
    const int64_t *waited_ns; /* for how long others were waited for in all */
    PyObject *sequence, *collected, *owner, *certain; /* of the group that is served, as the trail is; NULL before */
    PyObject *tell, *wait, *learn, *along, *digest, *allow, *kind, *garbled, *failed, *broken; /* CallHooks of rankwise_gloo_tcp: what is left to Python */
    PyArrayObject *scratch; /* memory beside what a program works on; NULL before */
    Plans plans;
    int64_t along_nbytes[NAMES]; /* up to how many bytes go along between hosts; UNASKED before Python has said it */
} Calls;

/* How what was given is done, if it has been found; what it holds is owned. It holds until plans are forgotten. */
typedef struct {
    Doing doing;
    uint64_t forgotten; /* how often they had been then */
} Found;

/* The kind of what was given, for Python, as a new reference, which is kept; NULL with an exception set. */
PyObject *calls_kind_of(Calls *calls, const Given *given, const Doing *doing);
/* Let a hook raise what all ranks raise, until the call's deadline; or return until when the call is made again, as the ranks'
   memory orders differ. Without a call that is given there is no kind. */
PyObject *calls_explain(Calls *calls, PyObject *hook, const Given *given, const Doing *doing, uint64_t sequence, Ending ending, PyObject *deadline);
/* Do what was given, as the call of a number, until a deadline; it may also be a time-out, or None for the group's. `begin`
   notes it, if that has not been done; `again` is until when all make it once more, or NULL. */
bool calls_carry_out(Calls *calls, const Doing *doing, Given *given, uint64_t sequence, PyObject *deadline, PyObject *hook,
                     Meanwhile begin, PyObject **again);
/* Find how to do what was given, if it can be done here. It is a copy, and what it holds is owned by the caller, as others
   may forget all plans whenever Python's code runs. */
bool calls_find(Calls *calls, const Given *given, Doing *doing);
/* Take the arguments of a call of this name, which are a tuple; false if it is left to Python. */
bool calls_take(const Calls *calls, const char *name, PyObject *args, Given *given);
/* A time-out as a call keeps it: None, or so many seconds; NULL, without an exception, for what Python has to look at. */
PyObject *calls_timeout_of(PyObject *given);
/* Do the whole of a public call. False if nothing was done, or if it has failed, with an exception set. */
bool calls_do(Calls *calls, Given *given, Found *found, PyObject *timeout);
void calls_drop(Doing *doing);

extern PyTypeObject BoundType;

/* What makes a call again and again, of the same name with the same arguments; or NULL, without an exception where only
   `plain`, the public call with these, can make it. `raised` ends a call as the public function does, with the error that it
   is given: it raises. */
PyObject *bound_new(Calls *calls, const char *name, PyObject *args, PyObject *timeout, PyObject *plain, PyObject *raised);

#endif
