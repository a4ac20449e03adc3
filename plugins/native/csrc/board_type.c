/* The board as Python sees it: the memory's life, and what the class in Python waits by. */
#include "board.h"
#include <structmember.h>

enum { LONGEST_DOZE_NS = 250000000 };
/* Of more ranks the pages that small calls use first come with these calls. */
enum { MOST_TOUCHED = 8 };

bool board_enter(Board *board)
{
    if (board->base == NULL || board->closing) {
        PyErr_SetString(PyExc_ValueError, "the board has been closed");
        return false;
    }
    board->inside++;
    return true;
}

static void board_let_memory_go(Board *board)
{
    if (board->base != NULL && board->inside == 0) {
        board->base = NULL;
        PyBuffer_Release(&board->memory);
    }
}

void board_leave(Board *board)
{
    if (--board->inside == 0 && board->closing)
        board_let_memory_go(board);
}

static bool board_fits(const Board *board)
{
    size_t size = (size_t)board->size, nbytes = (size_t)board->memory.len;
    /* No sum or product below can overflow once each part is within the memory. */
    return board->size >= 1 && board->size <= MOST_RANKS && board->rank >= 0 && board->rank < board->size &&
           board->control >= 64 && board->control <= nbytes && board->control_stride >= 64 && board->control_stride <= 4096 &&
           board->control + size * board->control_stride <= board->records && board->records <= nbytes &&
           board->records + 2 * size * RECORD_STRIDE <= board->data && board->data <= nbytes &&
           board->area_nbytes >= CACHE_LINE && board->area_nbytes <= (nbytes - board->data) / (2 * size) &&
           board->most_nbytes <= board->area_nbytes &&
           ((board->control | board->control_stride | board->records | board->data | board->area_nbytes) & 7) == 0;
}

/* Take where everything is, from attributes. */
static bool board_take_layout(Board *board, PyObject *layout)
{
    Py_ssize_t rank, size;
    const struct {
        const char *name;
        void *place;
    } wanted[] = {{"rank", &rank},
                  {"size", &size},
                  {"control", &board->control},
                  {"control_stride", &board->control_stride},
                  {"records", &board->records},
                  {"data", &board->data},
                  {"area_nbytes", &board->area_nbytes},
                  {"most_nbytes", &board->most_nbytes}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        PyObject *found = PyObject_GetAttrString(layout, wanted[i].name);
        Py_ssize_t number = found == NULL ? -1 : PyLong_AsSsize_t(found);
        Py_XDECREF(found);
        if (PyErr_Occurred())
            return false;
        *(Py_ssize_t *)wanted[i].place = number;
    }
    board->rank = rank >= 0 && rank < MOST_RANKS ? (int)rank : -1;
    board->size = size >= 0 && size <= MOST_RANKS ? (int)size : -1;
    return true;
}

static PyObject *board_py_attach(Board *board, PyObject *args)
{
    PyObject *memory, *layout;
    int spins;
    if (board->base != NULL || board->closing) {
        PyErr_SetString(PyExc_RuntimeError, "a board is attached once");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOp", &memory, &layout, &spins) || !board_take_layout(board, layout))
        return NULL;
    if (PyObject_GetBuffer(memory, &board->memory, PyBUF_WRITABLE) < 0)
        return NULL;
    if (!board_fits(board)) {
        PyBuffer_Release(&board->memory);
        PyErr_SetString(PyExc_ValueError, "the memory does not hold such a board");
        return NULL;
    }
    board->base = board->memory.buf;
    board->patience = patience_new(spins);
    Py_RETURN_NONE;
}

static PyObject *board_py_detach(Board *board, PyObject *Py_UNUSED(unused))
{
    board->closing = true;
    board_let_memory_go(board);
    Py_RETURN_NONE;
}

static PyObject *board_py_may_read(Board *board, PyObject *args)
{
    PyObject *pids;
    Py_ssize_t one, all;
    if (!PyArg_ParseTuple(args, "O!nn", &PyTuple_Type, &pids, &one, &all))
        return NULL;
    if (PyTuple_GET_SIZE(pids) != board->size || one <= 0 || all <= 0 || board->pids != NULL) {
        PyErr_SetString(PyExc_ValueError, "a process for each rank is wanted, once");
        return NULL;
    }
    board->pids = PyMem_Calloc((size_t)board->size, sizeof *board->pids);
    if (board->pids == NULL)
        return PyErr_NoMemory();
    board->fetched = (Fetched){(size_t)one, (size_t)all};
    board->writes = true;
    for (int peer = 0; peer < board->size; peer++)
        board->pids[peer] = (int)PyLong_AsLong(PyTuple_GET_ITEM(pids, peer));
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static void board_free(Board *board)
{
    PyMem_Free(board->pids);
    if (board->base != NULL)
        PyBuffer_Release(&board->memory);
    Py_TYPE(board)->tp_free((PyObject *)board);
}

/* ------------------------------------------------------------------ for the class in Python */

static PyObject *board_py_arrive(Board *board, PyObject *Py_UNUSED(unused))
{
    if (!board_enter(board))
        return NULL;
    bool all = board_arrive(board, true, (Meanwhile){0});
    board_leave(board);
    return PyBool_FromLong(all);
}

static PyObject *board_py_doze(Board *board, PyObject *seconds)
{
    double longest_s = PyFloat_AsDouble(seconds);
    bool all;
    if (PyErr_Occurred() || !board_enter(board))
        return NULL;
    int64_t longest_ns = longest_s > 1e-9 * LONGEST_DOZE_NS ? LONGEST_DOZE_NS : longest_s > 0 ? (int64_t)(1e9 * longest_s) : 0;
    Py_BEGIN_ALLOW_THREADS
    all = board_doze(board, longest_ns);
    Py_END_ALLOW_THREADS
    board_leave(board);
    return PyBool_FromLong(all);
}

static PyObject *board_py_wake(Board *board, PyObject *Py_UNUSED(unused))
{
    if (!board_enter(board))
        return NULL;
    board_wake(board);
    board_leave(board);
    Py_RETURN_NONE;
}

/* Use one page where parts of a rank begin that are as long as those of `slots` ranks: this rank's own as its writer. */
static void board_touch(const Board *board, int peer, int slot, int slots)
{
    for (unsigned long long parity = 0; parity < 2; parity++) {
        volatile unsigned char *at = board_area(board, peer, parity) + (size_t)slot * board_slot_nbytes(board, slots);
        unsigned char there = *at;
        if (peer == board->rank)
            *at = there;
    }
}

/* Have the pages that small calls use: the first of each would cost a call a fault, and both ends wait for it. */
static PyObject *board_py_touch(Board *board, PyObject *Py_UNUSED(unused))
{
    if (!board_enter(board))
        return NULL;
    for (int peer = 0; peer < board->size && board->size <= MOST_TOUCHED; peer++) {
        board_touch(board, peer, 0, 1);
        for (int slot = 0; slot < board->size; slot++)
            if (peer == board->rank || slot == board->rank)
                board_touch(board, peer, slot, board->size);
    }
    board_leave(board);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"attach", (PyCFunction)board_py_attach, METH_VARARGS, "Begin to use the memory."},
    {"detach", (PyCFunction)board_py_detach, METH_NOARGS, "Give it back, as soon as no call uses it."},
    {"read_from", (PyCFunction)board_py_may_read, METH_VARARGS, "Hear which processes' memory may be read, and from which length on."},
    {"touch", (PyCFunction)board_py_touch, METH_NOARGS, "Have the pages that small calls use first."},
    {"arrive", (PyCFunction)board_py_arrive, METH_NOARGS, "Come to the turn; tell whether all have after a short look."},
    {"doze", (PyCFunction)board_py_doze, METH_O, "Sleep for some milliseconds at the most; tell whether all have come."},
    {"wake", (PyCFunction)board_py_wake, METH_NOARGS, "Wake all who sleep."},
    {0},
};

static PyMemberDef members[] = {
    {"_turn", T_ULONGLONG, offsetof(Board, turn), 0, NULL},
    {"_parity", T_ULONGLONG, offsetof(Board, parity), 0, NULL},
    {"waited_ns", T_LONGLONG, offsetof(Board, patience.waited_ns), 0, NULL},
    {0},
};

PyTypeObject BoardType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Turns",
    .tp_basicsize = sizeof(Board),
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)board_free,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_methods = methods,
    .tp_members = members,
};

int board_add_types(PyObject *module)
{
    return PyModule_AddType(module, &BoardType);
}
