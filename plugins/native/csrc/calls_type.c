/* The shortcuts of rankwise.backends.fast_calls: each does the whole of a plain call, or says that it did nothing. */
#include "calls.h"
#include "hooks.h"
#include <datetime.h>
#include <string.h>

/* Longer time-outs are left to Python. */
#define LONGEST_S 1e9

PyObject *calls_timeout_of(PyObject *given)
{
    if (given == Py_None)
        return Py_NewRef(given);
    double timeout_s = -1;
    if (PyFloat_CheckExact(given))
        timeout_s = PyFloat_AS_DOUBLE(given);
    else if (PyLong_CheckExact(given))
        timeout_s = PyLong_AsDouble(given);
    else if (PyDelta_CheckExact(given))
        timeout_s = PyDateTime_DELTA_GET_DAYS(given) * 86400.0 + PyDateTime_DELTA_GET_SECONDS(given) + PyDateTime_DELTA_GET_MICROSECONDS(given) * 1e-6;
    PyErr_Clear();
    return timeout_s >= 0 && timeout_s <= LONGEST_S ? PyFloat_FromDouble(timeout_s) : NULL;
}

/* Do the whole of a public call, whose last argument is its time-out. */
static PyObject *calls_whole_call(Calls *calls, PyObject *const *args, Py_ssize_t given_count, Py_ssize_t count, Take *take, bool packs)
{
    Given given;
    Found found;
    given.holds = 0;
    found.doing.way = NEVER;
    found.doing.kind = found.doing.program = NULL;
    PyObject *timeout = given_count == count + 1 && calls->trail != NULL ? calls_timeout_of(args[count]) : NULL;
    bool done = timeout != NULL && take(&calls->members, args, &given) && calls_do(calls, &given, &found, timeout);
    if (done && packs)
        given_unpack(&given);
    calls_drop(&found.doing);
    Py_XDECREF(timeout);
    given_drop(&given);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

#define WHOLE(name, count)                                                                          \
    static PyObject *calls_##name(Calls *calls, PyObject *const *args, Py_ssize_t given)            \
    {                                                                                               \
        return calls_whole_call(calls, args, given, count, given_take_##name, given_take_##name == given_take_all_reduce_coalesced); \
    }
GIVEN_CALLS(WHOLE)

/* Take the mark of a memory order, which makes a call on one array one of another kind. */
static bool calls_take_order(PyObject *object, Given *given)
{
    npy_intp mark = PyLong_CheckExact(object) ? PyLong_AsSsize_t(object) : 0;
    PyErr_Clear();
    if (mark >= 0 || given->key.count == MOST_NUMBERS)
        return false;
    given->key.numbers[given->key.count++] = mark;
    return true;
}

/* Of a call on memory of another order than C's the last argument is its mark. */
bool calls_take(const Calls *calls, const char *name, PyObject *args, Given *given)
{
    given->holds = 0;
    PyObject *const *items = ((PyTupleObject *)args)->ob_item;
    const Taker *taker = given_taker(name);
    if (taker == NULL)
        return false;
    Py_ssize_t more = PyTuple_GET_SIZE(args) - taker->count;
    bool is_ordered = more == 1 && (taker->take == given_take_all_reduce || taker->take == given_take_broadcast || taker->take == given_take_reduce);
    return (more == 0 || is_ordered) && taker->take(&calls->members, items, given) && (more == 0 || calls_take_order(items[taker->count], given));
}

/* Do what a call of this name has to do but for its turn and the recorder; false if it is left to Python. */
static PyObject *calls_run(Calls *calls, PyObject *args)
{
    const char *name;
    PyObject *given_args, *deadline;
    unsigned long long sequence;
    if (!PyArg_ParseTuple(args, "sO!KO", &name, &PyTuple_Type, &given_args, &sequence, &deadline))
        return NULL;
    Given given;
    Doing doing;
    bool done = false;
    PyObject *again = NULL;
    if (calls_take(calls, name, given_args, &given) && calls_find(calls, &given, &doing)) {
        done = calls_carry_out(calls, &doing, &given, sequence, deadline, calls->failed, (Meanwhile){0}, &again);
        Py_XDECREF(again); /* it is Python that makes such a call again */
        calls_drop(&doing);
    }
    given_drop(&given);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

/* Copies of a call's lists, which the program may change as soon as its call has returned; of the rest, the same. */
static PyObject *calls_copy_lists(PyObject *args)
{
    PyObject *copies = PyTuple_New(PyTuple_GET_SIZE(args));
    for (Py_ssize_t i = 0; copies != NULL && i < PyTuple_GET_SIZE(args); i++) {
        PyObject *each = PyTuple_GET_ITEM(args, i);
        PyObject *copy = PyList_CheckExact(each) ? PyList_GetSlice(each, 0, PyList_GET_SIZE(each)) : Py_NewRef(each);
        if (copy == NULL)
            Py_CLEAR(copies);
        else
            PyTuple_SET_ITEM(copies, i, copy);
    }
    return copies;
}

/* What carries out a public call that is asynchronous: whose it is, its kind, and what `run` takes of it as a tuple; and this
   rank's own contribution. None if the call takes the general path. */
static PyObject *calls_known(Calls *calls, PyObject *args)
{
    PyObject *name, *given_args, *known = NULL;
    if (!PyArg_ParseTuple(args, "UO!", &name, &PyTuple_Type, &given_args))
        return NULL;
    const char *text = PyUnicode_AsUTF8(name);
    Given given = {.holds = 0};
    Doing doing;
    bool open = text != NULL && calls->trail != NULL && !calls->turn->closed && PyDict_GET_SIZE(calls->collected) == 0;
    if (open && calls_take(calls, text, given_args, &given) && calls_find(calls, &given, &doing)) {
        PyObject *copies = calls_copy_lists(given_args), *array = given.array == NULL ? PyUnicode_FromString("cpu") : Py_NewRef(given.array);
        PyObject *kind = copies == NULL || array == NULL ? NULL : calls_kind_of(calls, &given, &doing);
        known = kind == NULL ? NULL : Py_BuildValue("(OO(OO)O)", calls->owner, kind, name, copies, array);
        Py_XDECREF(kind);
        Py_XDECREF(copies);
        Py_XDECREF(array);
        calls_drop(&doing);
    }
    given_drop(&given);
    return PyErr_Occurred() || known != NULL ? known : Py_NewRef(Py_None);
}

/* Tell all other ranks of a group on several hosts what this one says of a call; return what all say, or None if that is
   left to Python. */
static PyObject *calls_compare(Calls *calls, PyObject *args)
{
    const char *record;
    Py_ssize_t nbytes;
    PyObject *deadline;
    if (!PyArg_ParseTuple(args, "y#O", &record, &nbytes, &deadline))
        return NULL;
    if (calls->relay == NULL || nbytes != WIRE_RECORD_NBYTES || !relay_fits(calls->relay, NULL))
        Py_RETURN_NONE;
    uint64_t about[RECORD_WORDS] = {0};
    memcpy(about, record, WIRE_RECORD_NBYTES);
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)WIRE_RECORD_NBYTES * calls->relay->size);
    if (records == NULL)
        return NULL;
    Call call = {.await = calls->wait, .deadline = Py_NewRef(deadline)};
    Ending ending = relay_run(calls->relay, &call, about, NULL, (unsigned char *)PyBytes_AS_STRING(records));
    if (ending != DONE) {
        PyObject *told = calls_explain(calls, calls->failed, NULL, NULL, about[SEQUENCE], ending, call.deadline);
        Py_XDECREF(told);
        Py_CLEAR(records);
    }
    Py_DECREF(call.deadline);
    return records;
}

/* program(arrays, scratch, steps): a call in steps, see program.h; None if it is left to Python. */
static PyObject *calls_make_program(Calls *calls, PyObject *args)
{
    PyObject *arrays, *scratch, *steps;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyTuple_Type, &arrays, &PyTuple_Type, &scratch, &PyList_Type, &steps))
        return NULL;
    const Board *board = calls->relay == NULL ? calls->board : calls->relay->board;
    return program_new(board, calls->members.ops, arrays, scratch, steps);
}

/* bind(name, args, timeout, plain, raised): what makes this call again and again; `plain` itself if only that can. */
static PyObject *calls_bind(Calls *calls, PyObject *args)
{
    const char *name;
    PyObject *given_args, *timeout, *plain, *raised;
    if (!PyArg_ParseTuple(args, "sO!OOO", &name, &PyTuple_Type, &given_args, &timeout, &plain, &raised))
        return NULL;
    PyObject *bound = calls->trail == NULL ? NULL : bound_new(calls, name, given_args, timeout, plain, raised);
    return bound != NULL || PyErr_Occurred() ? bound : Py_NewRef(plain);
}

/* Serve the public calls of a group from now on. */
static PyObject *calls_serve(Calls *calls, PyObject *args)
{
    PyObject *trail, *collected, *sequence, *owner, *certain;
    if (!PyArg_ParseTuple(args, "O!O!OOO!", &TrailType, &trail, &PyDict_Type, &collected, &sequence, &owner, &PyDict_Type, &certain))
        return NULL;
    if (!PyIter_Check(sequence)) {
        PyErr_SetString(PyExc_TypeError, "there is no sequence");
        return NULL;
    }
    Py_XSETREF(calls->collected, Py_NewRef(collected));
    Py_XSETREF(calls->owner, Py_NewRef(owner));
    Py_XSETREF(calls->certain, Py_NewRef(certain));
    Py_XSETREF(calls->sequence, Py_NewRef(sequence));
    Py_XSETREF(calls->trail, (Trail *)Py_NewRef(trail));
    Py_RETURN_NONE;
}

static PyObject *calls_forget(Calls *calls, PyObject *Py_UNUSED(unused))
{
    plans_forget(&calls->plans);
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ the type */

/* The reduce ops in the order of `Op`; None where Python has none of that name. */
static PyObject *calls_ops_of(PyObject *given)
{
    PyObject *ops = PyTuple_New(OPS);
    for (int i = 0; ops != NULL && i < OPS; i++) {
        PyObject *op = PyDict_GetItemString(given, kernels_op_name((Op)i));
        PyTuple_SET_ITEM(ops, i, Py_NewRef(op == NULL ? Py_None : op));
    }
    return ops;
}

#define AT(member) offsetof(Calls, member)

/* What is asked of `CallHooks`, and what else is held. */
static const Hook hooks[] = {
    {"tell", AT(tell), NULL}, {"wait", AT(wait), NULL}, {"learn", AT(learn), NULL}, {"along", AT(along), NULL}, {"digest", AT(digest), NULL}, {"allow", AT(allow), NULL}, {"kind", AT(kind), NULL},
    {"garbled", AT(garbled), NULL}, {"failed", AT(failed), NULL}, {"broken", AT(broken), NULL},
    {NULL, AT(scratch), NULL}, {NULL, AT(board), NULL}, {NULL, AT(wire), NULL}, {NULL, AT(relay), NULL}, {NULL, AT(trail), NULL},
    {NULL, AT(turn), NULL}, {NULL, AT(sequence), NULL}, {NULL, AT(collected), NULL}, {NULL, AT(owner), NULL}, {NULL, AT(certain), NULL}, {NULL, AT(members.ops), NULL},
    {0},
};

static int calls_traverse(Calls *calls, visitproc visit, void *arg)
{
    int visited = hooks_visit(calls, hooks, visit, arg);
    if (visited != 0)
        return visited;
    for (int i = 0; i < calls->plans.places; i++)
        Py_VISIT(calls->plans.table[i].doing.kind);
    return 0;
}

static int calls_clear(Calls *calls)
{
    plans_forget(&calls->plans);
    hooks_clear(calls, hooks);
    return 0;
}

static void calls_free(Calls *calls)
{
    PyObject_GC_UnTrack(calls);
    calls_clear(calls);
    Py_TYPE(calls)->tp_free((PyObject *)calls);
}

/* Calls(board, wire or relay, turn, ops, hooks) */
static PyObject *calls_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *way, *turn, *ops, *asked;
    if (!PyArg_ParseTuple(args, "OO!O!O", &way, &TurnType, &turn, &PyDict_Type, &ops, &asked))
        return NULL;
    if (!PyObject_TypeCheck(way, &BoardType) && !PyObject_TypeCheck(way, &WireType) && !PyObject_TypeCheck(way, &RelayType)) {
        PyErr_SetString(PyExc_TypeError, "calls go by a board, by a wire or by both");
        return NULL;
    }
    Calls *calls = (Calls *)type->tp_alloc(type, 0);
    if (calls == NULL)
        return NULL;
    if (PyObject_TypeCheck(way, &BoardType)) {
        calls->board = (Board *)Py_NewRef(way);
        calls->members.rank = calls->board->rank;
        calls->members.size = calls->board->size;
        calls->waited_ns = &calls->board->patience.waited_ns;
    } else if (PyObject_TypeCheck(way, &RelayType)) {
        calls->relay = (Relay *)Py_NewRef(way);
        calls->members.rank = calls->relay->rank;
        calls->members.size = calls->relay->size;
        calls->waited_ns = &calls->relay->waited_ns;
    } else {
        calls->wire = (Wire *)Py_NewRef(way);
        calls->members.rank = calls->wire->rank;
        calls->members.size = calls->wire->size;
        calls->waited_ns = &calls->wire->waited_ns;
    }
    for (int i = 0; i < NAMES; i++)
        calls->along_nbytes[i] = UNASKED;
    calls->turn = (Turn *)Py_NewRef(turn);
    if ((calls->members.ops = calls_ops_of(ops)) == NULL || !hooks_take(calls, asked, hooks))
        Py_CLEAR(calls);
    return (PyObject *)calls;
}

#define FAST(name, count) {#name, (PyCFunction)(void (*)(void))calls_##name, METH_FASTCALL, NULL},

static PyMethodDef methods[] = {
    GIVEN_CALLS(FAST)
    {"known", (PyCFunction)calls_known, METH_VARARGS, "Return what carries out a public call, or None."},
    {"bind", (PyCFunction)calls_bind, METH_VARARGS, "Return what makes a public call again and again."},
    {"run", (PyCFunction)calls_run, METH_VARARGS, "Carry out a collective whose turn it is."},
    {"compare", (PyCFunction)calls_compare, METH_VARARGS, "Compare the calls of ranks on several hosts."},
    {"program", (PyCFunction)calls_make_program, METH_VARARGS, "Take the steps of a call."},
    {"serve", (PyCFunction)calls_serve, METH_VARARGS, "Serve the public calls of a group."},
    {"forget", (PyCFunction)calls_forget, METH_NOARGS, "Forget all kinds of calls."},
    {0},
};

PyTypeObject CallsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Calls",
    .tp_basicsize = sizeof(Calls),
    .tp_new = calls_new,
    .tp_dealloc = (destructor)calls_free,
    .tp_traverse = (traverseproc)calls_traverse,
    .tp_clear = (inquiry)calls_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_methods = methods,
};

int calls_add_types(PyObject *module)
{
    static const char *const texts[NAMES] = {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "barrier"};
    PyDateTime_IMPORT;
    if (PyDateTimeAPI == NULL)
        return -1;
    for (int i = 0; i < NAMES; i++)
        if ((given_names[i] = PyUnicode_InternFromString(texts[i])) == NULL)
            return -1;
    return PyType_Ready(&BoundType) < 0 ? -1 : PyModule_AddType(module, &CallsType);
}
