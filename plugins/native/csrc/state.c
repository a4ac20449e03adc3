#include "state.h"
#include <structmember.h>

/* ------------------------------------------------------------------ numbers */

static PyMemberDef engine_members[] = {{"leaving", T_BOOL, offsetof(EngineState, leaving), 0, NULL}, {0}};
static PyMemberDef failure_members[] = {{"failing", T_BOOL, offsetof(FailureState, failing), 0, NULL}, {0}};
static PyMemberDef window_members[] = {{"unconfirmed", T_ULONGLONG, offsetof(WindowState, unconfirmed), 0, NULL}, {0}};
static PyMemberDef progress_members[] = {
    {"owner", T_ULONG, offsetof(ProgressState, owner), 0, NULL},
    {"callers", T_INT, offsetof(ProgressState, callers), 0, NULL},
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

/* ------------------------------------------------------------------ objects: two each */

typedef struct {
    PyObject_HEAD
    PyObject *first, *second;
} StatePair;

static_assert(offsetof(PeerState, connection) == offsetof(StatePair, first) && offsetof(PeerState, gone) == offsetof(StatePair, second), "a pair");
static_assert(offsetof(PipeState, queue) == offsetof(StatePair, first) && offsetof(PipeState, rest) == offsetof(StatePair, second), "a pair");

static int state_traverse(StatePair *pair, visitproc visit, void *arg)
{
    Py_VISIT(pair->first);
    Py_VISIT(pair->second);
    return 0;
}

static int state_clear(StatePair *pair)
{
    Py_CLEAR(pair->first);
    Py_CLEAR(pair->second);
    return 0;
}

static void state_free(StatePair *pair)
{
    PyObject_GC_UnTrack(pair);
    state_clear(pair);
    Py_TYPE(pair)->tp_free((PyObject *)pair);
}

static PyMemberDef peer_members[] = {
    {"connection", T_OBJECT, offsetof(PeerState, connection), 0, NULL},
    {"gone", T_OBJECT, offsetof(PeerState, gone), 0, NULL},
    {0},
};
static PyMemberDef pipe_members[] = {
    {"queue", T_OBJECT, offsetof(PipeState, queue), 0, NULL},
    {"rest", T_OBJECT, offsetof(PipeState, rest), 0, NULL},
    {0},
};

#define PAIR(struct_name, its_members)                              \
    PyTypeObject struct_name##Type = {                              \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native." #struct_name, \
        .tp_basicsize = sizeof(struct_name),                        \
        .tp_new = PyType_GenericNew,                                \
        .tp_dealloc = (destructor)state_free,                       \
        .tp_traverse = (traverseproc)state_traverse,                \
        .tp_clear = (inquiry)state_clear,                           \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, \
        .tp_members = its_members,                                  \
    }

PAIR(PeerState, peer_members);
PAIR(PipeState, pipe_members);

int state_add_types(PyObject *module)
{
    PyTypeObject *types[] = {&EngineStateType, &FailureStateType, &ProgressStateType,
                             &PeerStateType,   &PipeStateType,    &WindowStateType};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (PyModule_AddType(module, types[i]) < 0)
            return -1;
    return 0;
}
