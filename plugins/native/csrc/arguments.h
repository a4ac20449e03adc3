/* What programs hand over, and errors on their way back. */
#ifndef RANKWISE_ARGUMENTS_H
#define RANKWISE_ARGUMENTS_H

#include "native.h"

#include "kernels.h"

/* The kind of an array's dtype, or -1 for one that is left to Python. */
int arguments_kind(PyArrayObject *array);
/* A plain array, as it lies in memory; NULL for anything else. */
PyArrayObject *arguments_plain(PyObject *object, bool written);
/* Take the next number of a group's calls, of what counts them; false with an exception set. */
bool arguments_next_number(PyObject *numbers, uint64_t *number);
/* The exception that is set, which is taken away. */
PyObject *arguments_raised(void);
/* Set it again; the reference is taken, and NULL is nothing to set. */
void arguments_raise(PyObject *error);
/* Call what takes nothing, although an exception may be set, which stays; false with one set. */
bool arguments_do(PyObject *deed);
/* Say that nothing was done; but an interrupt is an interrupt. */
PyObject *arguments_declined(PyObject *nothing);

#endif
