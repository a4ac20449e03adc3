/* What compiled objects take of Python's when they are made, and hold: methods by name for what is left to Python. */
#ifndef RANKWISE_HOOKS_H
#define RANKWISE_HOOKS_H

#include "native.h"

/* A method, or an attribute, where what holds it has its place for it, and its type, if it must have one. */
typedef struct {
    const char *name;
    size_t at;
    PyTypeObject *type;
} Hook;

/* Take all that is named; false, with an exception set, if something is missing or of another type. */
bool hooks_take(void *holder, PyObject *from, const Hook *hooks, size_t count);
/* Take an attribute of a type, or None if `optional`, which leaves NULL. */
bool hooks_take_typed(PyObject *from, const char *name, PyTypeObject *type, bool optional, PyObject **place);
bool hooks_take_number(PyObject *from, const char *name, unsigned long long *number);
/* Visit, or clear, what lies at all places of hooks, for the collector of garbage. */
int hooks_visit(void *holder, const Hook *hooks, size_t count, visitproc visit, void *arg);
void hooks_clear(void *holder, const Hook *hooks, size_t count);
/* The same of places alone. */
int held_visit(void *holder, const size_t *places, size_t count, visitproc visit, void *arg);
void held_clear(void *holder, const size_t *places, size_t count);

#endif
