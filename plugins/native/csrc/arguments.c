#include "arguments.h"
#include "shared.h"
#include <string.h>

/* NumPy numbers the dtypes that others add as they come; ml_dtypes' is known by its name. */
static bool arguments_is_bfloat16(PyArrayObject *array)
{
    static int number = -1;
    if (PyArray_TYPE(array) < NPY_USERDEF)
        return false;
    if (number < 0 && strcmp(PyArray_DESCR(array)->typeobj->tp_name, "ml_dtypes.bfloat16") == 0)
        number = PyArray_TYPE(array);
    return PyArray_TYPE(array) == number && PyArray_ITEMSIZE(array) == 2;
}

int arguments_kind(PyArrayObject *array)
{
    switch (PyArray_TYPE(array)) {
    case NPY_FLOAT: return F32;
    case NPY_DOUBLE: return F64;
    case NPY_HALF: return F16;
    case NPY_BOOL: return BOOL;
    case NPY_BYTE: return I8;
    case NPY_SHORT: return I16;
    case NPY_INT: return I32;
    case NPY_LONG: return sizeof(long) == 8 ? I64 : I32;
    case NPY_LONGLONG: return I64;
    case NPY_UBYTE: return U8;
    case NPY_USHORT: return U16;
    case NPY_UINT: return U32;
    case NPY_ULONG: return sizeof(long) == 8 ? U64 : U32;
    case NPY_ULONGLONG: return U64;
    default: return arguments_is_bfloat16(array) ? BF16 : -1;
    }
}

PyArrayObject *arguments_plain(PyObject *object, bool written)
{
    int wanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (written ? NPY_ARRAY_WRITEABLE : 0);
    if (!shared_is_array(object))
        return NULL;
    PyArrayObject *array = (PyArrayObject *)object;
    return (PyArray_FLAGS(array) & wanted) == wanted && PyArray_ISNOTSWAPPED(array) ? array : NULL;
}

bool arguments_next_number(PyObject *numbers, uint64_t *number)
{
    PyObject *next = Py_TYPE(numbers)->tp_iternext(numbers);
    *number = next == NULL ? 0 : PyLong_AsUnsignedLongLong(next);
    Py_XDECREF(next);
    return !PyErr_Occurred();
}

PyObject *arguments_raised(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL)
        PyException_SetTraceback(value, trace);
    Py_DECREF(type);
    Py_XDECREF(trace);
    return value;
#endif
}

void arguments_raise(PyObject *error)
{
    /* Not PyErr_SetObject: the error is raised again, in the context that it has. */
#if PY_VERSION_HEX >= 0x030C0000
    if (error != NULL)
        PyErr_SetRaisedException(error);
#else
    if (error != NULL)
        PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(error)), error, PyException_GetTraceback(error));
#endif
}

bool arguments_do(PyObject *deed)
{
    PyObject *error = PyErr_Occurred() ? arguments_raised() : NULL; /* nothing is called with an exception set */
    PyObject *done = PyObject_CallNoArgs(deed);
    bool well = error == NULL && done != NULL;
    Py_XDECREF(done);
    arguments_raise(error);
    return well;
}

PyObject *arguments_declined(PyObject *nothing)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return NULL;
    PyErr_Clear();
    return Py_NewRef(nothing);
}
