/* The type of compiled messages: what it takes of Python when a group is made, and its methods. */
#include "messages.h"

PyObject *text_send, *text_recv, *text_isend, *text_irecv;

#define AT(member) offsetof(Messages, member)

/* What is taken of `MessageHooks`; it is what is held, besides the peers and an empty line. */
static const Hook hooks[] = {
    ENGINE_HOOKS(AT),
    {"arrivals", AT(arrivals), &PyDict_Type},
    {"offered", AT(offered), &PyDict_Type},
    {"request_type", AT(request_type), &PyType_Type},
    {"numbers", AT(numbers), NULL},
    {"met", AT(met), NULL},
    {"strand", AT(strand), NULL},
    {"issued", AT(issued), NULL},
    {"register_offer", AT(register_offer), NULL},
    {"offer", AT(offer), NULL},
    {"ask_for", AT(ask_for), NULL},
    {"ask_on", AT(ask_on), NULL},
    {"answer", AT(answer), NULL},
    {"copied", AT(copied), NULL},
    {"go_on_sending", AT(go_on_sending), NULL},
    {"go_on_receiving", AT(go_on_receiving), NULL},
    {"finish", AT(finish), NULL},
    {"only_waited", AT(only_waited), NULL},
    {"lane", AT(lane), NULL},
    {NULL, AT(spare), NULL},
    {0},
};

static int messages_traverse(Messages *messages, visitproc visit, void *arg)
{
    int visited = hooks_visit(messages, hooks, visit, arg);
    if (visited != 0)
        return visited;
    for (RequestState *request = messages->fresh; request != NULL; request = request->behind)
        Py_VISIT(request);
    for (int peer = 0; peer < messages->size; peer++) {
        Py_VISIT(messages->ways[peer].rings);
        Py_VISIT(messages->ways[peer].pipe);
        Py_VISIT(messages->ways[peer].peer);
        Py_VISIT(messages->ways[peer].window);
    }
    return 0;
}

/* What is being freed must not be called any more. */
static void messages_leave_lock(const Messages *messages)
{
    if (messages->lock != NULL && messages->lock->whose == messages)
        messages->lock->prepare = NULL;
}

static int messages_clear(Messages *messages)
{
    messages_leave_lock(messages);
    messages_drop_fresh(messages);
    hooks_clear(messages, hooks);
    for (int peer = 0; peer < messages->size; peer++) {
        Way *way = &messages->ways[peer];
        Py_CLEAR(way->rings);
        Py_CLEAR(way->pipe);
        Py_CLEAR(way->peer);
        Py_CLEAR(way->window);
        Py_CLEAR(way->key);
    }
    return 0;
}

static void messages_free(Messages *messages)
{
    PyObject_GC_UnTrack(messages);
    messages_leave_lock(messages);
    if (messages->weakrefs != NULL)
        PyObject_ClearWeakRefs((PyObject *)messages);
    messages_clear(messages);
    PyMem_Free(messages->ways);
    Py_TYPE(messages)->tp_free((PyObject *)messages);
}

/* Take a `MessagePeer` for each rank; those without rings are left to Python. */
static bool messages_take_ways(Messages *messages, PyObject *list)
{
    if (PyList_GET_SIZE(list) > MOST_PEERS) {
        PyErr_SetString(PyExc_ValueError, "there are more ranks than have pipes");
        return false;
    }
    if ((messages->ways = PyMem_Calloc((size_t)PyList_GET_SIZE(list) + 1, sizeof *messages->ways)) == NULL) {
        PyErr_NoMemory();
        return false;
    }
    int with_rings = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        Way *way = &messages->ways[messages->size++];
        PyObject *from = PyList_GET_ITEM(list, i);
        unsigned long long name, pid;
        if (!hooks_take_number(from, "name", &name) || !hooks_take_number(from, "pid", &pid) ||
            !hooks_take_typed(from, "rings", &RingsType, true, (PyObject **)&way->rings))
            return false;
        way->name = (long)name;
        way->pid = (pid_t)pid;
        with_rings += way->rings != NULL;
        if (way->rings != NULL && !(hooks_take_typed(from, "pipe", &PipeStateType, false, (PyObject **)&way->pipe) &&
                                    hooks_take_typed(from, "peer", &PeerStateType, false, (PyObject **)&way->peer) &&
                                    hooks_take_typed(from, "window", &WindowStateType, false, (PyObject **)&way->window)))
            return false;
    }
    messages->all_near = with_rings == messages->size - 1;
    return true;
}

/* Whether what a receive is posted as has the members that are used here. */
static bool messages_are_requests(const Messages *messages)
{
    if (PyType_IsSubtype(messages->request_type, &RequestStateType))
        return true;
    PyErr_SetString(PyExc_TypeError, "requests are made of RequestState");
    return false;
}

/* Messages(trail, peers, hooks, may_spin) */
static PyObject *messages_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *trail, *peers, *asked;
    int may_spin;
    unsigned long long raw, descriptor, bell, asleep;
    if (!PyArg_ParseTuple(args, "O!O!Op", &TrailType, &trail, &PyList_Type, &peers, &asked, &may_spin))
        return NULL;
    Messages *messages = (Messages *)type->tp_alloc(type, 0);
    if (messages == NULL)
        return NULL;
    messages->trail = (Trail *)Py_NewRef(trail);
    messages->patience = patience_new(may_spin);
    if (!hooks_take_limits(asked, &messages->most_tag, &messages->window_nbytes, &messages->message_nbytes) ||
        !hooks_take_number(asked, "raw", &raw) || !hooks_take_number(asked, "descriptor", &descriptor) ||
        !hooks_take_number(asked, "bell", &bell) || !hooks_take_number(asked, "asleep", &asleep) ||
        !hooks_take(messages, asked, hooks) || !messages_are_requests(messages) || !messages_take_ways(messages, peers)) {
        Py_DECREF(messages);
        return NULL;
    }
    messages->raw = (unsigned)raw;
    messages->descriptor = (int)descriptor;
    messages->bell = (int)bell;
    messages->asleep = (size_t)asleep;
    EngineLock *lock = messages->lock;
    if (lock->prepare == NULL) {
        lock->whose = messages;
        lock->prepare = messages_line_up;
    } else { /* another thread was first: there is one list of what is fresh */
        Py_SETREF(messages, (Messages *)Py_NewRef(lock->whose));
    }
    return (PyObject *)messages;
}

static PyMethodDef methods[] = {
    {"send", (PyCFunction)(void (*)(void))messages_py_send, METH_FASTCALL, NULL},
    {"recv", (PyCFunction)(void (*)(void))messages_py_recv, METH_FASTCALL, NULL},
    {"isend", (PyCFunction)(void (*)(void))messages_py_isend, METH_FASTCALL, NULL},
    {"irecv", (PyCFunction)(void (*)(void))messages_py_irecv, METH_FASTCALL, NULL},
    {"woken", (PyCFunction)messages_py_woken, METH_O, NULL},
    {"look", (PyCFunction)messages_py_look, METH_NOARGS, NULL},
    {"lose", (PyCFunction)messages_py_lose, METH_O, NULL},
    {"take", (PyCFunction)(void (*)(void))messages_py_take, METH_FASTCALL, NULL},
    {0},
};

PyTypeObject MessagesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Messages",
    .tp_basicsize = sizeof(Messages),
    .tp_new = messages_new,
    .tp_dealloc = (destructor)messages_free,
    .tp_traverse = (traverseproc)messages_traverse,
    .tp_clear = (inquiry)messages_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_weaklistoffset = offsetof(Messages, weakrefs),
    .tp_methods = methods,
};

int messages_add_work(PyObject *module);

int messages_add_types(PyObject *module)
{
    const struct {
        PyObject **text;
        const char *letters;
    } texts[] = {
        {&text_send, "send"},
        {&text_recv, "recv"},
        {&text_isend, "isend"},
        {&text_irecv, "irecv"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if ((*texts[i].text = PyUnicode_InternFromString(texts[i].letters)) == NULL)
            return -1;
    return messages_add_work(module) < 0 ? -1 : PyModule_AddType(module, &MessagesType);
}
