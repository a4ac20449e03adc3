/* Attributes that a class of Python's keeps in slots. Where that is in its objects is found once; to look there then is
   to read memory. Classes whose objects are looked at so have the names in `__slots__`. */
#ifndef RANKWISE_FIELDS_H
#define RANKWISE_FIELDS_H

#include "native.h"

typedef Py_ssize_t Field;

/* Where an object keeps an attribute; -1 with an exception set if that is in no slot. */
Field field_of(PyObject *object, const char *name);

/* What is there; borrowed. */
static inline PyObject *look_at(PyObject *object, Field field)
{
    return *(PyObject **)(void *)((char *)object + field);
}

/* Put something there, whose reference is taken over. */
static inline void put_into(PyObject *object, Field field, PyObject *value)
{
    PyObject **place = (PyObject **)(void *)((char *)object + field), *old = *place;
    *place = value;
    Py_XDECREF(old);
}

#endif
