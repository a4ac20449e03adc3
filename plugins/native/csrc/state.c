#include "state.h"
#include <string.h>
#include <structmember.h>

/* ------------------------------------------------------------------ numbers */

static PyMemberDef engine_members[] = {{"leaving", T_BOOL, offsetof(EngineState, leaving), 0, NULL}, {0}};
static PyMemberDef failure_members[] = {{"failing", T_BOOL, offsetof(FailureState, failing), 0, NULL}, {0}};
static PyMemberDef window_members[] = {{"unconfirmed", T_ULONGLONG, offsetof(WindowState, unconfirmed), 0, NULL}, {0}};
static PyMemberDef progress_members[] = {
    {"owner", T_ULONG, offsetof(ProgressState, owner), 0, NULL},
    {"callers", T_INT, offsetof(ProgressState, callers), 0, NULL},
    {"followers", T_INT, offsetof(ProgressState, followers), 0, NULL},
    {"last_drive", T_DOUBLE, offsetof(ProgressState, last_drive), 0, NULL},
    {0},
};

#define STATE(struct_name, its_members)                             \
    PyTypeObject struct_name##Type = {                              \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native." #struct_name, \
        .tp_basicsize = sizeof(struct_name),                        \
        .tp_new = PyType_GenericNew,                                \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,       \
        .tp_members = its_members,                                  \
    }

STATE(EngineState, engine_members);
STATE(FailureState, failure_members);
STATE(ProgressState, progress_members);
STATE(WindowState, window_members);

/* ------------------------------------------------------------------ objects, which come first */

typedef struct {
    PyObject_HEAD
    PyObject *objects[];
} StateHolder;

static_assert(offsetof(StateHolder, objects) == sizeof(PyObject), "objects come first");

static int state_visit(PyObject *holder, int count, visitproc visit, void *arg)
{
    for (int i = 0; i < count; i++)
        Py_VISIT(((StateHolder *)holder)->objects[i]);
    return 0;
}

static int state_let_go(PyObject *holder, int count)
{
    for (int i = 0; i < count; i++)
        Py_CLEAR(((StateHolder *)holder)->objects[i]);
    return 0;
}

static PyMemberDef peer_members[] = {
    {"connection", T_OBJECT, offsetof(PeerState, connection), 0, NULL},
    {"gone", T_OBJECT, offsetof(PeerState, gone), 0, NULL},
    {"owed_nbytes", T_ULONGLONG, offsetof(PeerState, owed_nbytes), 0, NULL},
    {0},
};
static PyMemberDef connection_members[] = {
    {"reader", T_OBJECT, offsetof(ConnectionState, reader), 0, NULL},
    {"mine", T_OBJECT, offsetof(ConnectionState, mine), 0, NULL},
    {"theirs", T_OBJECT, offsetof(ConnectionState, theirs), 0, NULL},
    {"tls", T_OBJECT, offsetof(ConnectionState, tls), 0, NULL},
    {"fd", T_INT, offsetof(ConnectionState, fd), 0, NULL},
    {"plain", T_BOOL, offsetof(ConnectionState, plain), 0, NULL},
    {"closed", T_BOOL, offsetof(ConnectionState, closed), 0, NULL},
    {"broken", T_BOOL, offsetof(ConnectionState, broken), 0, NULL},
    {"deaf", T_BOOL, offsetof(ConnectionState, deaf), 0, NULL},
    {"writing", T_BOOL, offsetof(ConnectionState, writing), 0, NULL},
    {"came_nbytes", T_ULONGLONG, offsetof(ConnectionState, came_nbytes), 0, NULL},
    {"went_nbytes", T_ULONGLONG, offsetof(ConnectionState, went_nbytes), 0, NULL},
    {0},
};
static PyMemberDef reader_members[] = {
    {"whole", T_OBJECT, offsetof(ReaderState, whole), 0, NULL},
    {"start", T_PYSSIZET, offsetof(ReaderState, start), 0, NULL},
    {"end", T_PYSSIZET, offsetof(ReaderState, end), 0, NULL},
    {0},
};
static PyMemberDef guard_members[] = {
    {"key", T_OBJECT, offsetof(GuardState, key), 0, NULL},
    {"number", T_ULONGLONG, offsetof(GuardState, number), 0, NULL},
    {0},
};
static PyMemberDef pipe_members[] = {
    {"queue", T_OBJECT, offsetof(PipeState, queue), 0, NULL},
    {"rest", T_OBJECT, offsetof(PipeState, rest), 0, NULL},
    {0},
};

static PyMemberDef request_members[] = {
    {"engine", T_OBJECT, offsetof(RequestState, engine), 0, NULL},
    {"buffer", T_OBJECT, offsetof(RequestState, buffer), 0, NULL},
    {"peer", T_OBJECT, offsetof(RequestState, peer), 0, NULL},
    {"error", T_OBJECT, offsetof(RequestState, error), 0, NULL},
    {"_source", T_OBJECT, offsetof(RequestState, source), 0, NULL},
    {"promise", T_OBJECT, offsetof(RequestState, promise), 0, NULL},
    {"by", T_OBJECT, offsetof(RequestState, by), READONLY, NULL},
    {"tag", T_ULONGLONG, offsetof(RequestState, tag), 0, NULL},
    {"nbytes", T_ULONGLONG, offsetof(RequestState, nbytes), 0, NULL},
    {"dtype", T_UINT, offsetof(RequestState, dtype), 0, NULL},
    {"done", T_BOOL, offsetof(RequestState, done), 0, NULL},
    {"watched", T_BOOL, offsetof(RequestState, watched), 0, NULL},
    {"streamed", T_BOOL, offsetof(RequestState, streamed), 0, NULL},
    {0},
};

/* ------------------------------------------------------------------ tags */

bool state_begin_tags(GuardState *guard)
{
    if (guard->begun)
        return true;
    if (guard->key == NULL || !PyBytes_CheckExact(guard->key))
        return false;
    Py_ssize_t nbytes = PyBytes_GET_SIZE(guard->key);
    if (nbytes < 1 || nbytes > BLAKE2_MOST_KEY_NBYTES)
        return false;
    guard->hash = blake2_begin(PyBytes_AS_STRING(guard->key), (size_t)nbytes, TAG_NBYTES);
    return guard->begun = true;
}

void state_make_tag(const GuardState *guard, unsigned long long number, const void *head, unsigned char tag[TAG_NBYTES])
{
    unsigned char text[1 + sizeof number + GUARDED_NBYTES] = {0}; /* a byte, which Python's hash wants to keep what it has of the key */
    memcpy(text + 1, &number, sizeof number);
    memcpy(text + 1 + sizeof number, head, GUARDED_NBYTES);
    uint64_t made = blake2_end(&guard->hash, text, sizeof text);
    memcpy(tag, &made, TAG_NBYTES);
}

/* made(number, head): the tag of a header of this number. */
static PyObject *state_py_made(GuardState *guard, PyObject *args)
{
    unsigned long long number;
    Py_buffer head;
    if (!PyArg_ParseTuple(args, "Ky*", &number, &head))
        return NULL;
    unsigned char tag[TAG_NBYTES];
    bool well = head.len == GUARDED_NBYTES && state_begin_tags(guard);
    if (well)
        state_make_tag(guard, number, head.buf, tag);
    PyBuffer_Release(&head);
    if (well)
        return PyBytes_FromStringAndSize((const char *)tag, TAG_NBYTES);
    PyErr_SetString(PyExc_ValueError, "a header has 32 bytes, and a key 1 to 64");
    return NULL;
}

/* blake2b(text, key): eight bytes of a hash of a text of 1 to 128 bytes, to be compared with Python's. */
static PyObject *state_blake2b(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer text, key;
    uint64_t made = 0;
    if (!PyArg_ParseTuple(args, "y*y*", &text, &key))
        return NULL;
    bool fits = text.len >= 1 && text.len <= BLAKE2_BLOCK_NBYTES && key.len >= 1 && key.len <= BLAKE2_MOST_KEY_NBYTES;
    if (fits) {
        Blake2 begun = blake2_begin(key.buf, (size_t)key.len, TAG_NBYTES);
        made = blake2_end(&begun, text.buf, (size_t)text.len);
    }
    PyBuffer_Release(&text);
    PyBuffer_Release(&key);
    if (fits)
        return PyBytes_FromStringAndSize((const char *)&made, TAG_NBYTES);
    PyErr_SetString(PyExc_ValueError, "a text has 1 to 128 bytes, and a key 1 to 64");
    return NULL;
}

static PyMethodDef state_functions[] = {{"blake2b", state_blake2b, METH_VARARGS, "Return eight bytes of the hash of a short text."}, {0}};
static PyMethodDef guard_methods[] = {{"made", (PyCFunction)state_py_made, METH_VARARGS, "Return the tag of a header of a number."}, {0}};

#define HOLDER(struct_name, count, its_members, its_methods)                     \
    static int state_visit_##struct_name(PyObject *holder, visitproc visit, void *arg) { return state_visit(holder, count, visit, arg); } \
    static int state_clear_##struct_name(PyObject *holder) { return state_let_go(holder, count); } \
    static void state_free_##struct_name(PyObject *holder)          \
    {                                                               \
        PyObject_GC_UnTrack(holder);                                \
        state_let_go(holder, count);                                \
        Py_TYPE(holder)->tp_free(holder);                           \
    }                                                               \
    PyTypeObject struct_name##Type = {                              \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native." #struct_name, \
        .tp_basicsize = sizeof(struct_name),                        \
        .tp_new = PyType_GenericNew,                                \
        .tp_dealloc = state_free_##struct_name,                            \
        .tp_traverse = state_visit_##struct_name,                   \
        .tp_clear = state_clear_##struct_name,                      \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, \
        .tp_members = its_members,                                  \
        .tp_methods = its_methods,                                  \
    }

HOLDER(PeerState, 2, peer_members, NULL);
HOLDER(PipeState, 2, pipe_members, NULL);
HOLDER(ConnectionState, 4, connection_members, NULL);
HOLDER(ReaderState, 1, reader_members, NULL);
HOLDER(GuardState, 1, guard_members, guard_methods);
HOLDER(RequestState, 8, request_members, NULL);

int state_add_types(PyObject *module)
{
    PyTypeObject *types[] = {&EngineStateType, &FailureStateType, &ProgressStateType,
                             &PeerStateType,   &PipeStateType,    &WindowStateType,
                             &ConnectionStateType, &ReaderStateType, &GuardStateType, &RequestStateType};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (PyModule_AddType(module, types[i]) < 0)
            return -1;
    return PyModule_AddFunctions(module, state_functions);
}
