/* The type of compiled messages: what it takes of Python when a group is made, and its methods. */
#include "messages.h"

PyObject *text_send, *text_recv, *text_isend, *text_irecv;

#define AT(member) offsetof(Messages, member)

/* What is taken of `MessageHooks`; it is what is held, besides the trail and the peers. */
static const Hook hooks[] = {
    {"turn", AT(turn)},
    {"engine", AT(engine)},
    {"failure_state", AT(failure)},
    {"progress_lock", AT(progress)},
    {"deferred", AT(deferred)},
    {"arrivals", AT(arrivals)},
    {"receives", AT(receives)},
    {"offered", AT(offered)},
    {"request_type", AT(request_type)},
    {"numbers", AT(numbers)},
    {"met", AT(met)},
    {"issued", AT(issued)},
    {"mark", AT(mark)},
    {"lock", AT(lock)},
    {"settle", AT(settle)},
    {"stand_up", AT(stand_up)},
    {"register_offer", AT(register_offer)},
    {"offer", AT(offer)},
    {"ask_for", AT(ask_for)},
    {"ask_on", AT(ask_on)},
    {"answer", AT(answer)},
    {"copied", AT(copied)},
    {"go_on_sending", AT(go_on_sending)},
    {"go_on_receiving", AT(go_on_receiving)},
    {"finish", AT(finish)},
    {"receive", AT(receive)},
    {"claim", AT(claim)},
    {"taken", AT(taken)},
    {"only_waited", AT(only_waited)},
    {"lane", AT(lane)},
};
enum { HOOKS = sizeof hooks / sizeof *hooks };

static int messages_traverse(Messages *messages, visitproc visit, void *arg)
{
    Py_VISIT(messages->trail);
    for (size_t i = 0; i < HOOKS; i++)
        Py_VISIT(*hooks_place(messages, hooks[i].at));
    for (int peer = 0; peer < messages->size; peer++) {
        Py_VISIT(messages->ways[peer].rings);
        Py_VISIT(messages->ways[peer].pipe);
        Py_VISIT(messages->ways[peer].peer);
        Py_VISIT(messages->ways[peer].window);
    }
    return 0;
}

static int messages_clear(Messages *messages)
{
    Py_CLEAR(messages->trail);
    for (size_t i = 0; i < HOOKS; i++)
        Py_CLEAR(*hooks_place(messages, hooks[i].at));
    for (int peer = 0; peer < messages->size; peer++) {
        Way *way = &messages->ways[peer];
        Py_CLEAR(way->rings);
        Py_CLEAR(way->pipe);
        Py_CLEAR(way->peer);
        Py_CLEAR(way->window);
    }
    return 0;
}

static void messages_free(Messages *messages)
{
    PyObject_GC_UnTrack(messages);
    if (messages->weakrefs != NULL)
        PyObject_ClearWeakRefs((PyObject *)messages);
    messages_clear(messages);
    PyMem_Free(messages->ways);
    Py_TYPE(messages)->tp_free((PyObject *)messages);
}

/* Take an attribute of a type, or None if `optional`, which leaves NULL. */
static bool messages_take_part(PyObject *from, const char *name, PyTypeObject *type, bool optional, PyObject **place)
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

static bool messages_take_number(PyObject *from, const char *name, unsigned long long *number)
{
    PyObject *found = PyObject_GetAttrString(from, name);
    *number = found == NULL ? 0 : PyLong_AsUnsignedLongLong(found);
    Py_XDECREF(found);
    return !PyErr_Occurred();
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
        if (!messages_take_number(from, "name", &name) || !messages_take_number(from, "pid", &pid) ||
            !messages_take_part(from, "rings", &RingsType, true, (PyObject **)&way->rings))
            return false;
        way->name = (long)name;
        way->pid = (pid_t)pid;
        with_rings += way->rings != NULL;
        if (way->rings != NULL && !(messages_take_part(from, "pipe", &PipeStateType, false, (PyObject **)&way->pipe) &&
                                    messages_take_part(from, "peer", &PeerStateType, false, (PyObject **)&way->peer) &&
                                    messages_take_part(from, "window", &WindowStateType, false, (PyObject **)&way->window)))
            return false;
    }
    messages->all_near = with_rings == messages->size - 1;
    return true;
}

/* Whether the hooks have what they must, of the types that are read here. */
static bool messages_are_sound(const Messages *messages)
{
    const struct {
        void *object;
        PyTypeObject *type;
    } wanted[] = {
        {messages->turn, &TurnType},         {messages->engine, &EngineStateType}, {messages->failure, &FailureStateType},
        {messages->progress, &ProgressStateType}, {messages->arrivals, &PyDict_Type},   {messages->receives, &PyDict_Type},
        {messages->offered, &PyDict_Type},        {messages->lock, &EngineLockType},
        {messages->request_type, &PyType_Type},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!PyObject_TypeCheck((PyObject *)wanted[i].object, wanted[i].type)) {
            PyErr_Format(PyExc_TypeError, "a %s is wanted", wanted[i].type->tp_name);
            return false;
        }
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
    unsigned long long most_tag, raw, window_nbytes, message_nbytes, descriptor, bell, asleep;
    if (!PyArg_ParseTuple(args, "O!O!Op", &TrailType, &trail, &PyList_Type, &peers, &asked, &may_spin))
        return NULL;
    Messages *messages = (Messages *)type->tp_alloc(type, 0);
    if (messages == NULL)
        return NULL;
    messages->trail = (Trail *)Py_NewRef(trail);
    messages->patience = patience_new(may_spin);
    if (!messages_take_number(asked, "most_tag", &most_tag) || !messages_take_number(asked, "raw", &raw) ||
        !messages_take_number(asked, "window_nbytes", &window_nbytes) || !messages_take_number(asked, "message_nbytes", &message_nbytes) ||
        !messages_take_number(asked, "descriptor", &descriptor) || !messages_take_number(asked, "bell", &bell) ||
        !messages_take_number(asked, "asleep", &asleep) ||
        !hooks_take(messages, asked, hooks, HOOKS) || !messages_are_sound(messages) || !messages_take_ways(messages, peers)) {
        Py_DECREF(messages);
        return NULL;
    }
    messages->most_tag = (unsigned)most_tag;
    messages->raw = (unsigned)raw;
    messages->window_nbytes = window_nbytes;
    messages->message_nbytes = message_nbytes;
    messages->descriptor = (int)descriptor;
    messages->bell = (int)bell;
    messages->asleep = (size_t)asleep;
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

static PyTypeObject MessagesType = {
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
