/* A public call that is bound to its arguments: these are taken apart once, and each call only looks whether they still are
   what they were. Whatever is not plain is left to the public function: another call in progress, a group that has ended or
   failed, arrays that are others than before. */
#include "arguments.h"
#include "calls.h"
#include "hooks.h"
#include "shared.h"
#include <string.h>

/* What a call depends on of an array, which a program may change in place. */
typedef struct {
    PyArrayObject *array; /* held */
    void *data;
    PyArray_Descr *dtype; /* a pointer alone, as the array has it */
    int flags, dimensions;
    const npy_intp *shape;
} Seen;

enum { MOST_SEEN = 1 + 2 * MOST_PARTS, MOST_DIMENSIONS = 2 * MOST_SEEN };

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Calls *calls;
    PyObject *args, *timeout, *plain, *raised;
    Found found;
    int seen_count;
    Seen seen[MOST_SEEN];
    npy_intp shapes[MOST_DIMENSIONS]; /* of all arrays, one after the other */
    Given given;
} Bound;

/* ------------------------------------------------------------------ what a call is bound to */

static bool bound_is_same(const Seen *seen, const PyObject *object)
{
    const PyArrayObject *array = seen->array;
    return (const PyObject *)array == object && PyArray_DATA((PyArrayObject *)array) == seen->data &&
           PyArray_DESCR((PyArrayObject *)array) == seen->dtype && PyArray_FLAGS(array) == seen->flags &&
           PyArray_NDIM(array) == seen->dimensions &&
           memcmp(PyArray_DIMS((PyArrayObject *)array), seen->shape, (size_t)seen->dimensions * sizeof *seen->shape) == 0;
}

/* Note what an array is like; false if there is no room. */
static bool bound_see(Bound *bound, PyObject *object, int *dimensions)
{
    PyArrayObject *array = (PyArrayObject *)object;
    int more = PyArray_NDIM(array);
    if (bound->seen_count == MOST_SEEN || *dimensions + more > MOST_DIMENSIONS)
        return false;
    npy_intp *shape = bound->shapes + *dimensions;
    memcpy(shape, PyArray_DIMS(array), (size_t)more * sizeof *shape);
    bound->seen[bound->seen_count++] = (Seen){(PyArrayObject *)Py_NewRef(object), PyArray_DATA(array), PyArray_DESCR(array), PyArray_FLAGS(array), more, shape};
    *dimensions += more;
    return true;
}

/* The arrays that an argument is, or is a list of; `count` is 0 where it is neither. */
static PyObject *const *bound_items_of(PyObject *const *argument, Py_ssize_t *count)
{
    *count = 1;
    if (shared_is_array(*argument))
        return argument;
    *count = PyList_CheckExact(*argument) || PyTuple_CheckExact(*argument) ? Py_SIZE(*argument) : 0;
    return *count == 0 ? NULL : PySequence_Fast_ITEMS(*argument);
}

static bool bound_see_all(Bound *bound)
{
    int dimensions = 0;
    for (Py_ssize_t i = 0, count; i < PyTuple_GET_SIZE(bound->args); i++) {
        PyObject *const *items = bound_items_of(&PyTuple_GET_ITEM(bound->args, i), &count);
        for (Py_ssize_t j = 0; j < count; j++)
            if (!bound_see(bound, items[j], &dimensions))
                return false;
    }
    return true;
}

/* Whether all arrays are still what they were. */
static bool bound_is_as_it_was(const Bound *bound)
{
    const Seen *seen = bound->seen, *end = seen + bound->seen_count;
    for (Py_ssize_t i = 0, count; i < PyTuple_GET_SIZE(bound->args); i++) {
        PyObject *const *items = bound_items_of(&PyTuple_GET_ITEM(bound->args, i), &count);
        for (Py_ssize_t j = 0; j < count; j++, seen++)
            if (seen == end || !bound_is_same(seen, items[j]))
                return false;
    }
    return seen == end;
}

/* ------------------------------------------------------------------ calling */

/* Raise what the public function raises, after the error that is set. */
static PyObject *bound_raise(Bound *bound)
{
    PyObject *error = arguments_raised(), *none = PyObject_CallOneArg(bound->raised, error);
    Py_DECREF(error);
    if (none != NULL)
        PyErr_SetString(PyExc_SystemError, "a call that has failed has raised nothing");
    Py_XDECREF(none);
    return NULL;
}

static PyObject *bound_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    Bound *bound = (Bound *)self;
    if (bound->plain == NULL) { /* what the collector ends may call it once more */
        PyErr_SetString(PyExc_ReferenceError, "this call has been let go");
        return NULL;
    }
    if (PyVectorcall_NARGS(count) == 0 && names == NULL && bound_is_as_it_was(bound)) {
        if (calls_do(bound->calls, &bound->given, &bound->found, bound->timeout))
            Py_RETURN_NONE;
        if (PyErr_Occurred())
            return bound_raise(bound);
    }
    return PyObject_Vectorcall(bound->plain, args, count, names);
}

PyObject *bound_new(Calls *calls, const char *name, PyObject *args, PyObject *timeout, PyObject *plain, PyObject *raised)
{
    Bound *bound = (Bound *)BoundType.tp_alloc(&BoundType, 0);
    if (bound == NULL)
        return NULL;
    bound->vectorcall = bound_call;
    bound->calls = (Calls *)Py_NewRef(calls);
    bound->args = Py_NewRef(args);
    bound->plain = Py_NewRef(plain);
    bound->raised = Py_NewRef(raised);
    bound->timeout = calls_timeout_of(timeout);
    if (bound->timeout == NULL || !calls_take(calls, name, args, &bound->given) || !bound_see_all(bound))
        Py_CLEAR(bound);
    return (PyObject *)bound;
}

/* ------------------------------------------------------------------ the type */

#define AT(member) offsetof(Bound, member)

/* What is held besides arrays: first what a call misses once this has been let go. */
static const size_t held[] = {AT(plain), AT(calls), AT(args), AT(timeout), AT(raised), AT(found.doing.kind), AT(found.doing.program)};
enum { HELD = sizeof held / sizeof *held };

static int bound_traverse(Bound *bound, visitproc visit, void *arg)
{
    return held_visit(bound, held, HELD, visit, arg);
}

static int bound_clear(Bound *bound)
{
    held_clear(bound, held, HELD);
    given_drop(&bound->given);
    while (bound->seen_count > 0)
        Py_DECREF(bound->seen[--bound->seen_count].array);
    return 0;
}

static void bound_free(Bound *bound)
{
    PyObject_GC_UnTrack(bound);
    bound_clear(bound);
    Py_TYPE(bound)->tp_free((PyObject *)bound);
}

PyTypeObject BoundType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Bound",
    .tp_basicsize = sizeof(Bound),
    .tp_vectorcall_offset = offsetof(Bound, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)bound_free,
    .tp_traverse = (traverseproc)bound_traverse,
    .tp_clear = (inquiry)bound_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
};
