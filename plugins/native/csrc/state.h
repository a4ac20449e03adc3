/* What compiled messages and Python's engine both read and write: types with declared members, each the base of a class
   of rankwise_gloo_tcp, whose `state` module has the same in Python for where this module is not. */
#ifndef RANKWISE_STATE_H
#define RANKWISE_STATE_H

#include "native.h"

/* Of an engine: whether this rank leaves, so that nothing new is begun. */
typedef struct {
    PyObject_HEAD
    bool leaving;
} EngineState;

/* Of a group's failure: whether what all ranks raise is being found out. */
typedef struct {
    PyObject_HEAD
    bool failing;
} FailureState;

/* Of the progress lock: the thread that has it, 0 for none; and how many threads wait, or take in news. */
typedef struct {
    PyObject_HEAD
    unsigned long owner;
    int callers;
} ProgressState;

/* Of a peer: what leads there, and why nothing can be sent there any more; NULL or None for neither. */
typedef struct {
    PyObject_HEAD
    PyObject *connection, *gone;
} PeerState;

/* Of a pipe: the frames that wait, and the long payload that is going out, if any is. */
typedef struct {
    PyObject_HEAD
    PyObject *queue, *rest;
} PipeState;

/* Of a peer's window: how much of what was sent it has not taken yet. */
typedef struct {
    PyObject_HEAD
    unsigned long long unconfirmed;
} WindowState;

extern PyTypeObject EngineStateType, FailureStateType, ProgressStateType, PeerStateType, PipeStateType, WindowStateType;

static inline bool state_is_none(const PyObject *object)
{
    return object == NULL || object == Py_None;
}

#endif
