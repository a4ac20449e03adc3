/* Whose turn it is on a group: rankwise.collective.issue_order. Who holds the interpreter takes it without a lock. */
#ifndef RANKWISE_TURN_H
#define RANKWISE_TURN_H

#include "native.h"

typedef struct {
    PyObject_HEAD
    PyObject *holder; /* owned; None while nobody has it */
    int queued, watchers;
    bool closed; /* the group has failed or ended: nobody takes it any more */
} Turn;

extern PyTypeObject TurnType;

/* Take the turn if nobody has it or is before, and the group has not failed; the holder is borrowed. */
bool turn_take(Turn *turn, PyObject *holder);
/* Give it back; tell whether anybody must be told. */
bool turn_give_back(Turn *turn);

#endif
