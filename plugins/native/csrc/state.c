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
    {"pending", T_INT, offsetof(ProgressState, pending), 0, NULL},
    {"last_drive", T_DOUBLE, offsetof(ProgressState, last_drive), 0, NULL},
    {"ticks", T_BOOL, offsetof(ProgressState, ticks), 0, NULL},
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
    {"hash_address", T_PYSSIZET, offsetof(GuardState, hash_address), 0, NULL},
    {0},
};
static PyMemberDef pipe_members[] = {
    {"queue", T_OBJECT, offsetof(PipeState, queue), 0, NULL},
    {"rest", T_OBJECT, offsetof(PipeState, rest), 0, NULL},
    {0},
};

static PyMemberDef request_members[] = {
    {"engine", T_OBJECT, offsetof(RequestState, engine), 0, NULL},
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

/* Most receives are met by compiled code, which needs but the array. */
static PyObject *state_buffer(RequestState *request, void *Py_UNUSED(closure))
{
    if (request->buffer == NULL && request->array != NULL) {
        PyArrayObject *array = (PyArrayObject *)request->array;
        request->buffer = PyMemoryView_FromMemory(PyArray_DATA(array), PyArray_NBYTES(array), PyBUF_WRITE);
    }
    return request->buffer == NULL && PyErr_Occurred() ? NULL : Py_NewRef(request->buffer == NULL ? Py_None : request->buffer);
}

static int state_set_buffer(RequestState *request, PyObject *buffer, void *Py_UNUSED(closure))
{
    Py_XSETREF(request->buffer, Py_XNewRef(buffer));
    return 0;
}

static PyGetSetDef request_attributes[] = {{"buffer", (getter)state_buffer, (setter)state_set_buffer, NULL, NULL}, {0}};

/* ------------------------------------------------------------------ tags */

bool state_makes_tags(const GuardState *guard)
{
    return guard->hash_address != 0 && guard->key != NULL && PyBytes_CheckExact(guard->key);
}

bool state_make_tag(const GuardState *guard, unsigned long long number, const void *head, unsigned char tag[TAG_NBYTES])
{
    unsigned char text[1 + sizeof number + GUARDED_NBYTES] = {0}; /* a byte, which Python's hash wants to keep what it has of the key */
    memcpy(text + 1, &number, sizeof number);
    memcpy(text + 1 + sizeof number, head, GUARDED_NBYTES);
    KeyedHash hash = (KeyedHash)guard->hash_address;
    const unsigned char *key = (const unsigned char *)PyBytes_AS_STRING(guard->key);
    return hash(tag, TAG_NBYTES, text, sizeof text, key, (size_t)PyBytes_GET_SIZE(guard->key)) == 0;
}

static void state_let_nothing_go(PyObject *Py_UNUSED(holder)) {}

static void state_let_request_go(PyObject *holder)
{
    messages_let_posted_go((RequestState *)holder);
}

static PyGetSetDef no_attributes[] = {{0}};

#define HOLDER(struct_name, count, its_members, its_attributes, let_go)             \
    static int state_visit_##struct_name(PyObject *holder, visitproc visit, void *arg) { return state_visit(holder, count, visit, arg); } \
    static int state_clear_##struct_name(PyObject *holder)          \
    {                                                               \
        let_go(holder);                                             \
        return state_let_go(holder, count);                         \
    }                                                               \
    static void state_free_##struct_name(PyObject *holder)          \
    {                                                               \
        PyObject_GC_UnTrack(holder);                                \
        state_clear_##struct_name(holder);                          \
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
        .tp_getset = its_attributes,                                \
    }

HOLDER(PeerState, 2, peer_members, no_attributes, state_let_nothing_go);
HOLDER(PipeState, 2, pipe_members, no_attributes, state_let_nothing_go);
HOLDER(ConnectionState, 4, connection_members, no_attributes, state_let_nothing_go);
HOLDER(ReaderState, 1, reader_members, no_attributes, state_let_nothing_go);
HOLDER(GuardState, 1, guard_members, no_attributes, state_let_nothing_go);
HOLDER(RequestState, 9, request_members, request_attributes, state_let_request_go);

int state_add_types(PyObject *module)
{
    PyTypeObject *types[] = {&EngineStateType, &FailureStateType, &ProgressStateType,
                             &PeerStateType,   &PipeStateType,    &WindowStateType,
                             &ConnectionStateType, &ReaderStateType, &GuardStateType, &RequestStateType};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (PyModule_AddType(module, types[i]) < 0)
            return -1;
    return 0;
}
