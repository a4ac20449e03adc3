#include "turn.h"
#include <structmember.h>

static void turn_hold(Turn *turn, PyObject *holder)
{
    PyObject *old = turn->holder;
    Py_INCREF(holder);
    turn->holder = holder;
    Py_XDECREF(old);
}

bool turn_take(Turn *turn, PyObject *holder)
{
    if (turn->holder != Py_None || turn->queued != 0 || turn->closed)
        return false;
    turn_hold(turn, holder);
    return true;
}

bool turn_give_back(Turn *turn)
{
    turn_hold(turn, Py_None);
    return turn->watchers != 0;
}

static PyObject *turn_py_take(Turn *turn, PyObject *holder)
{
    return PyBool_FromLong(turn_take(turn, holder));
}

static PyObject *turn_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(options))
{
    Turn *turn = (Turn *)type->tp_alloc(type, 0);
    if (turn != NULL)
        turn_hold(turn, Py_None);
    return (PyObject *)turn;
}

static void turn_free(Turn *turn)
{
    Py_XDECREF(turn->holder);
    Py_TYPE(turn)->tp_free((PyObject *)turn);
}

static PyMethodDef methods[] = {
    {"take", (PyCFunction)turn_py_take, METH_O, NULL},
    {0},
};

static PyMemberDef members[] = {
    {"holder", T_OBJECT_EX, offsetof(Turn, holder), 0, NULL},
    {"queued", T_INT, offsetof(Turn, queued), 0, NULL},
    {"watchers", T_INT, offsetof(Turn, watchers), 0, NULL},
    {"closed", T_BOOL, offsetof(Turn, closed), 0, NULL},
    {0},
};

PyTypeObject TurnType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Turn",
    .tp_basicsize = sizeof(Turn),
    .tp_new = turn_new,
    .tp_dealloc = (destructor)turn_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
    .tp_members = members,
};

int turn_add_types(PyObject *module)
{
    return PyModule_AddType(module, &TurnType);
}
