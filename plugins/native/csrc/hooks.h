/* What is left to Python: an object whose methods are taken by name when a compiled one is made. */
#ifndef RANKWISE_HOOKS_H
#define RANKWISE_HOOKS_H

#include "native.h"

/* A method, or an attribute, and where what holds it has its place for it. */
typedef struct {
    const char *name;
    size_t at;
} Hook;

static inline PyObject **hooks_place(void *holder, size_t at)
{
    return (PyObject **)(void *)((char *)holder + at);
}

/* Take all that is named; false, with an exception set, if something is missing. */
static inline bool hooks_take(void *holder, PyObject *from, const Hook *hooks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((*hooks_place(holder, hooks[i].at) = PyObject_GetAttrString(from, hooks[i].name)) == NULL)
            return false;
    return true;
}

#endif
