#include "hooks.h"

static PyObject **hooks_place(void *holder, size_t at)
{
    return (PyObject **)(void *)((char *)holder + at);
}

bool hooks_take_typed(PyObject *from, const char *name, PyTypeObject *type, bool optional, PyObject **place)
{
    PyObject *found = PyObject_GetAttrString(from, name);
    if (found != NULL && !PyObject_TypeCheck(found, type)) {
        if (!optional || found != Py_None)
            PyErr_Format(PyExc_TypeError, "%s is a %s, but must be a %s", name, Py_TYPE(found)->tp_name, type->tp_name);
        Py_CLEAR(found);
    }
    *place = found;
    return !PyErr_Occurred();
}

bool hooks_take_number(PyObject *from, const char *name, unsigned long long *number)
{
    PyObject *found = PyObject_GetAttrString(from, name);
    *number = found == NULL ? 0 : PyLong_AsUnsignedLongLong(found);
    Py_XDECREF(found);
    return !PyErr_Occurred();
}

bool hooks_has_key(PyObject *keys, PyObject *key)
{
    bool found = key == NULL || PyDict_Contains(keys, key) != 0;
    Py_XDECREF(key);
    return found;
}

bool hooks_take_limits(PyObject *from, unsigned *most_tag, uint64_t *window_nbytes, uint64_t *message_nbytes)
{
    unsigned long long tag, window, message;
    if (!hooks_take_number(from, "most_tag", &tag) || !hooks_take_number(from, "window_nbytes", &window) ||
        !hooks_take_number(from, "message_nbytes", &message))
        return false;
    *most_tag = (unsigned)tag;
    *window_nbytes = window;
    *message_nbytes = message;
    return true;
}

bool hooks_take(void *holder, PyObject *from, const Hook *hooks)
{
    for (; hooks->at != 0; hooks++) {
        PyTypeObject *type = hooks->type == NULL ? &PyBaseObject_Type : hooks->type;
        if (hooks->name != NULL && !hooks_take_typed(from, hooks->name, type, false, hooks_place(holder, hooks->at)))
            return false;
    }
    return true;
}

int hooks_visit(void *holder, const Hook *hooks, visitproc visit, void *arg)
{
    for (; hooks->at != 0; hooks++)
        Py_VISIT(*hooks_place(holder, hooks->at));
    return 0;
}

void hooks_clear(void *holder, const Hook *hooks)
{
    for (; hooks->at != 0; hooks++)
        Py_CLEAR(*hooks_place(holder, hooks->at));
}

int held_visit(void *holder, const size_t *places, size_t count, visitproc visit, void *arg)
{
    for (size_t i = 0; i < count; i++)
        Py_VISIT(*hooks_place(holder, places[i]));
    return 0;
}

void held_clear(void *holder, const size_t *places, size_t count)
{
    for (size_t i = 0; i < count; i++)
        Py_CLEAR(*hooks_place(holder, places[i]));
}
