/* What compiled objects take of Python's when they are made, and hold: methods by name for what is left to Python. */
#ifndef RANKWISE_HOOKS_H
#define RANKWISE_HOOKS_H

#include "native.h"

/* A method, or an attribute, where what holds it has its place for it, and its type, if it must have one. Without a name it is
   only held. Lists of them end with {0}. */
typedef struct {
    const char *name;
    size_t at;
    PyTypeObject *type;
} Hook;

/* What all that stands on an engine takes of `EngineHooks` of rankwise_gloo_tcp, and of the group that it serves. */
#define ENGINE_HOOKS(AT)                                                                                                         \
    {"turn", AT(turn), &TurnType}, {"engine", AT(engine), &EngineStateType}, {"failure_state", AT(failure), &FailureStateType},  \
    {"progress_lock", AT(progress), &ProgressStateType}, {"lock", AT(lock), &EngineLockType}, {"deferred", AT(deferred), NULL},  \
    {"lines", AT(lines), &PyDict_Type}, {"receives", AT(receives), &PyDict_Type}, {"settle", AT(settle), NULL},                  \
    {"stand_up", AT(stand_up), NULL}, {"mark", AT(mark), NULL}, {"receive", AT(receive), NULL}, {"claim", AT(claim), NULL},      \
    {"taken", AT(taken), NULL}, {NULL, AT(trail), NULL}

/* Take all that is named; false, with an exception set, if something is missing or of another type. */
bool hooks_take(void *holder, PyObject *from, const Hook *hooks);
/* Take an attribute of a type, or None if `optional`, which leaves NULL. */
bool hooks_take_typed(PyObject *from, const char *name, PyTypeObject *type, bool optional, PyObject **place);
bool hooks_take_number(PyObject *from, const char *name, unsigned long long *number);
/* Take the numbers of an engine. */
bool hooks_take_limits(PyObject *from, unsigned *most_tag, uint64_t *window_nbytes, uint64_t *message_nbytes);
/* Whether something is a key of what a hook is; the reference to it is taken. True, with an exception set, if that fails. */
bool hooks_has_key(PyObject *keys, PyObject *key);
/* Visit, or clear, what lies at all places of hooks, for the collector of garbage. */
int hooks_visit(void *holder, const Hook *hooks, visitproc visit, void *arg);
void hooks_clear(void *holder, const Hook *hooks);
/* The same of places alone. */
int held_visit(void *holder, const size_t *places, size_t count, visitproc visit, void *arg);
void held_clear(void *holder, const size_t *places, size_t count);

#endif
