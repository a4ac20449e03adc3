/* What programs hand over, and errors on their way back. */
#ifndef RANKWISE_ARGUMENTS_H
#define RANKWISE_ARGUMENTS_H

#include "native.h"

#include "kernels.h"

/* The kind of an array's dtype, or -1 for one that is left to Python. */
int arguments_kind(PyArrayObject *array);
/* A plain array, as it lies in memory; NULL for anything else. */
PyArrayObject *arguments_plain(PyObject *object, bool written);
/* The exception that is set, which is taken away. */
PyObject *arguments_raised(void);

#endif
