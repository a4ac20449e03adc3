/* What the parts of the module know of each other. */
#ifndef RANKWISE_NATIVE_H
#define RANKWISE_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <assert.h>
#include <frameobject.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL rankwise_native_array_api
#ifndef RANKWISE_MODULE
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

static inline int64_t native_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Adds the types of a part to the module; 0, or -1 with an exception set. */
int recorder_add_types(PyObject *module);
int board_add_types(PyObject *module);
int calls_add_types(PyObject *module);
int front_add_types(PyObject *module);
int rings_add_types(PyObject *module);
int messages_add_types(PyObject *module);
int turn_add_types(PyObject *module);
int state_add_types(PyObject *module);
int wire_add_types(PyObject *module);
int relay_add_types(PyObject *module);
int program_add_types(PyObject *module);
int tls_add_types(PyObject *module);

/* Whose methods shortcuts are. */
extern PyTypeObject CallsType, MessagesType, WireType;

#endif
