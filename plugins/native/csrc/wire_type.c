/* The type of a wire, and the shortcuts for messages over it. */
#include "arguments.h"
#include "rings.h"
#include "transfers.h"
#include <string.h>
#include <structmember.h>

/* Longer messages are left to Python, which offers those that the window has no room for. */
enum { LONGEST_NOTE_NBYTES = 1 << 20 };

/* ------------------------------------------------------------------ messages */

typedef struct {
    PyArrayObject *array;
    int peer;
    unsigned tag, mark;
    size_t nbytes;
    uint64_t came_nbytes; /* of a message that has been received */
} Note;

/* Take the arguments of a message that may be sent or received here: array, peer and tag. Two more are for works, of which
   Python makes those between hosts. */
static bool wire_take_arguments(const Wire *wire, Note *note, PyObject *const *args, Py_ssize_t count, bool written)
{
    if ((count != 3 && count != 5) || wire->trail == NULL || !PyLong_CheckExact(args[1]) || !PyLong_CheckExact(args[2]))
        return false;
    long name = PyLong_AsLong(args[1]), tag = PyLong_AsLong(args[2]);
    note->array = arguments_plain(args[0], written);
    if (note->array == NULL || arguments_kind(note->array) < 0 || tag < 0 || tag > (long)wire->most_tag)
        return false;
    note->tag = (unsigned)tag;
    note->came_nbytes = note->nbytes = (size_t)PyArray_NBYTES(note->array);
    note->peer = 0;
    while (note->peer < wire->size && wire->links[note->peer].name != name)
        note->peer++;
    if (note->nbytes == 0 || note->nbytes > LONGEST_NOTE_NBYTES || !wire_has_room(wire, note->peer, note->nbytes))
        return false;
    PyObject *mark = PyObject_CallOneArg(wire->mark, (PyObject *)PyArray_DESCR(note->array));
    note->mark = mark == NULL ? 0 : (unsigned)PyLong_AsUnsignedLong(mark);
    Py_XDECREF(mark);
    return note->mark != 0 && !PyErr_Occurred();
}

static uint64_t wire_begin_noting(Wire *wire, const Note *note, PyObject *op, int64_t began_ns)
{
    return trail_begin_message(wire->trail, op, (PyObject *)PyArray_DESCR(note->array), (int64_t)note->nbytes,
                               wire->links[note->peer].name, (long)note->tag, 0, began_ns);
}

/* Wait for the rest of a message that has gone half-way. */
static bool wire_finish_message(const Wire *wire, const Note *note, PyObject *rest)
{
    PyObject *done = PyObject_CallFunction(wire->finish_message, "Oi", rest, wire->links[note->peer].rank);
    Py_XDECREF(done);
    return done != NULL;
}

/* Send what was given, and note it. Return what has yet to be waited for, None for nothing; or NULL where nothing is done, or
   with an exception set. */
static PyObject *wire_post_note(Wire *wire, const Note *note, PyObject *op, uint64_t *serial)
{
    Parcel parcel = {.peer = note->peer, .out = wire_message_head(note->tag, note->nbytes, note->mark), .data = PyArray_DATA(note->array), .nbytes = note->nbytes};
    int64_t began_ns = native_monotonic_ns(); /* no message is received before it was sent */
    bool well = wire_swap(wire, &parcel, 1);
    if (well && !parcel.sent)
        return NULL;
    *serial = wire_begin_noting(wire, note, op, began_ns); /* what does not wait need not be noted before */
    PyObject *rest = Py_NewRef(parcel.rest == NULL ? Py_None : parcel.rest);
    wire_drop(&parcel, 1);
    if (well)
        return rest;
    Py_DECREF(rest);
    trail_break_message(wire->trail, *serial);
    return NULL;
}

static PyObject *wire_py_send(Wire *wire, PyObject *const *args, Py_ssize_t count)
{
    Note note;
    uint64_t serial;
    if (!wire_take_arguments(wire, &note, args, count, false) || wire->turn->closed)
        return arguments_declined(Py_False);
    PyObject *rest = wire_post_note(wire, &note, text_send, &serial);
    if (rest == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    bool well = rest == Py_None || wire_finish_message(wire, &note, rest);
    Py_DECREF(rest);
    if (!well) {
        trail_break_message(wire->trail, serial);
        return NULL;
    }
    trail_end_message(wire->trail, serial, wire->links[note.peer].name, 0);
    return Py_NewRef(Py_True);
}

/* Begin to send, which is the end of it for what is brief; else nothing is done. Of a message that has ended, or of which the
   rest is all there is to wait for, that is told. */
static PyObject *wire_py_isend(Wire *wire, PyObject *const *args, Py_ssize_t count)
{
    Note note;
    uint64_t serial;
    if (!wire_take_arguments(wire, &note, args, count, false) || wire->turn->closed || note.nbytes > LONG_NBYTES)
        return arguments_declined(Py_None);
    PyObject *rest = wire_post_note(wire, &note, text_isend, &serial);
    if (rest == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    if (rest == Py_None)
        trail_end_message(wire->trail, serial, wire->links[note.peer].name, 0);
    return Py_BuildValue("(NN)", trail_ticket(wire->trail, serial), rest);
}

/* Take a message that Python has taken in before; tell by `taken` whether there was one, which may be shorter. */
static bool wire_claim(const Wire *wire, Note *note, bool *taken)
{
    *taken = false;
    if (!wire_is_kept(wire, note->peer, note->tag) || wire->failure->failing || wire->engine->leaving)
        return true;
    PyObject *claimed = PyObject_CallFunction(wire->claim, "OiII", note->array, wire->links[note->peer].rank, note->tag, note->mark);
    int source;
    unsigned long long nbytes;
    *taken = claimed != NULL && claimed != Py_None && PyArg_ParseTuple(claimed, "iK", &source, &nbytes);
    if (*taken)
        note->came_nbytes = nbytes;
    Py_XDECREF(claimed);
    return !PyErr_Occurred();
}

/* Take a brief message that is the next, likewise. */
static bool wire_take_now(Wire *wire, const Note *note, bool *taken)
{
    if (note->nbytes > LONG_NBYTES)
        return true;
    unsigned char *own = PyMem_Malloc(note->nbytes);
    if (own == NULL) {
        PyErr_NoMemory();
        return false;
    }
    Parcel parcel = {.peer = note->peer, .in = wire_message_head(note->tag, note->nbytes, note->mark), .room = own, .place = own};
    bool well = wire_glance(wire, &parcel);
    *taken = well && parcel.taken;
    if (*taken)
        memcpy(PyArray_DATA(note->array), own, note->nbytes);
    PyMem_Free(own);
    return well;
}

/* Begin to receive, which is the end of it if a message is there; else nothing is done. */
static PyObject *wire_py_irecv(Wire *wire, PyObject *const *args, Py_ssize_t count)
{
    Note note;
    bool taken;
    if (!wire_take_arguments(wire, &note, args, count, true) || wire->turn->closed)
        return arguments_declined(Py_None);
    if (!wire_claim(wire, &note, &taken) || (!taken && !wire_take_now(wire, &note, &taken)))
        return NULL;
    if (!taken)
        return Py_NewRef(Py_None);
    uint64_t serial = wire_begin_noting(wire, &note, text_irecv, 0);
    trail_end_message(wire->trail, serial, wire->links[note.peer].name, 0);
    return Py_BuildValue("(NlK)", trail_ticket(wire->trail, serial), wire->links[note.peer].name, (unsigned long long)note.came_nbytes);
}

static PyObject *wire_py_recv(Wire *wire, PyObject *const *args, Py_ssize_t count)
{
    Note note;
    if (!wire_take_arguments(wire, &note, args, count, true) || wire->turn->closed)
        return arguments_declined(Py_None);
    /* Memory of its own where what comes first may be another message: a long one's header is read alone. */
    unsigned char *straight = note.nbytes > LONG_NBYTES ? PyArray_DATA(note.array) : NULL, *own = straight != NULL ? NULL : PyMem_Malloc(note.nbytes);
    if (straight == NULL && own == NULL)
        return PyErr_NoMemory();
    Parcel parcel = {.peer = note.peer, .in = wire_message_head(note.tag, note.nbytes, note.mark)};
    parcel.room = parcel.place = own == NULL ? straight : own;
    uint64_t serial = wire_begin_noting(wire, &note, text_recv, 0);
    int64_t waited_ns = wire->waited_ns;
    bool well = wire_swap(wire, &parcel, 1);
    if (well && parcel.taken && own != NULL)
        memcpy(PyArray_DATA(note.array), own, note.nbytes);
    PyMem_Free(own);
    if (well && !parcel.taken) {
        PyObject *done = PyObject_CallFunction(wire->receive, "OiI", note.array, wire->links[note.peer].rank, note.tag);
        Py_XDECREF(done);
        well = done != NULL;
    }
    if (!well) {
        trail_break_message(wire->trail, serial);
        return NULL;
    }
    trail_end_message(wire->trail, serial, wire->links[note.peer].name, wire->waited_ns - waited_ns);
    return PyLong_FromLong(wire->links[note.peer].name);
}

/* Carry out what was taken; false if it is left to Python. */
static PyObject *wire_transfer(const Transfer *transfer, bool taken, PyObject *given)
{
    if (!taken)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    PyObject *deadline = Py_NewRef(given);
    Ending ending = transfers_run(transfer, &deadline);
    Py_DECREF(deadline);
    return ending == DONE ? Py_NewRef(Py_True) : NULL;
}

/* reduce(array, op, deadline): see transfers_take_reduction. */
static PyObject *wire_py_reduce(Wire *wire, PyObject *args)
{
    PyObject *given, *deadline;
    const char *op;
    if (!PyArg_ParseTuple(args, "OsO", &given, &op, &deadline))
        return NULL;
    Transfer transfer;
    bool taken = transfers_take_reduction(&transfer, wire, given, op);
    return wire_transfer(&transfer, taken, deadline);
}

/* exchange(sent, taken, op, nbytes, deadline): see transfers_take_exchange. */
static PyObject *wire_py_exchange(Wire *wire, PyObject *args)
{
    PyObject *sent, *into, *deadline;
    const char *op;
    Py_ssize_t nbytes;
    if (!PyArg_ParseTuple(args, "O!O!znO", &PyTuple_Type, &sent, &PyTuple_Type, &into, &op, &nbytes, &deadline))
        return NULL;
    Transfer transfer;
    bool taken = transfers_take_exchange(&transfer, wire, sent, into, op, nbytes);
    return wire_transfer(&transfer, taken, deadline);
}

/* Serve the messages of a group from now on. */
static PyObject *wire_py_serve(Wire *wire, PyObject *trail)
{
    if (!PyObject_TypeCheck(trail, &TrailType)) {
        PyErr_SetString(PyExc_TypeError, "a trail is wanted");
        return NULL;
    }
    Py_XSETREF(wire->trail, (Trail *)Py_NewRef(trail));
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ the type */

#define AT(member) offsetof(Wire, member)

/* What is taken of `WireHooks`. */
static const Hook hooks[] = {
    ENGINE_HOOKS(AT),
    {"refresh", AT(refresh), NULL},
    {"pay", AT(pay), NULL},
    {"keep", AT(keep), NULL},
    {"feed", AT(feed), NULL},
    {"finish", AT(finish), NULL},
    {"finish_message", AT(finish_message), NULL},
    {"stream", AT(stream), NULL},
    {"exchange", AT(exchange), NULL},
    {0},
};

static int wire_traverse(Wire *wire, visitproc visit, void *arg)
{
    int visited = hooks_visit(wire, hooks, visit, arg);
    if (visited != 0)
        return visited;
    for (int peer = 0; peer < wire->size && wire->links != NULL; peer++) {
        Py_VISIT(wire->links[peer].peer);
        Py_VISIT(wire->links[peer].window);
        /* Not who owns the room: until 3.13 the collector, having cleared a memoryview that is lent out, crashes as it
           frees it. What is not visited is not cleared before this lets go of it, and memory refers to nobody. */
    }
    return 0;
}

static int wire_clear(Wire *wire)
{
    hooks_clear(wire, hooks);
    for (int peer = 0; peer < wire->size && wire->links != NULL; peer++) {
        Py_CLEAR(wire->links[peer].peer);
        Py_CLEAR(wire->links[peer].window);
        PyBuffer_Release(&wire->links[peer].room);
    }
    return 0;
}

static void wire_free(Wire *wire)
{
    PyObject_GC_UnTrack(wire);
    wire_clear(wire);
    PyMem_Free(wire->links);
    Py_TYPE(wire)->tp_free((PyObject *)wire);
}

static bool wire_take_link(Link *link, PyObject *from)
{
    unsigned long long name, rank = 0;
    PyObject *room = NULL;
    bool taken = hooks_take_number(from, "name", &name) && hooks_take_number(from, "rank", &rank) && hooks_take_typed(from, "peer", &PeerStateType, false, (PyObject **)&link->peer) &&
                 hooks_take_typed(from, "window", &WindowStateType, false, (PyObject **)&link->window) &&
                 (room = PyObject_GetAttrString(from, "room")) != NULL && PyObject_GetBuffer(room, &link->room, PyBUF_WRITABLE) == 0;
    link->name = (long)name;
    link->rank = (int)rank;
    Py_XDECREF(room);
    return taken;
}

/* Take a `WireLink` for each rank, None for this one. */
static bool wire_take_links(Wire *wire, PyObject *list)
{
    Py_ssize_t size = PyList_GET_SIZE(list);
    if (size > MOST_PARCELS || wire->rank < 0 || wire->rank >= size) {
        PyErr_SetString(PyExc_ValueError, "that is no wire");
        return false;
    }
    if ((wire->links = PyMem_Calloc((size_t)size, sizeof *wire->links)) == NULL) {
        PyErr_NoMemory();
        return false;
    }
    while (wire->size < size) {
        PyObject *from = PyList_GET_ITEM(list, wire->size);
        Link *link = &wire->links[wire->size++];
        link->name = -1;
        if (from != Py_None && !wire_take_link(link, from))
            return false;
    }
    return true;
}

/* What tells that there is anything to do for the engine; -1 with an exception set, or where nothing does. */
static int wire_descriptor(PyObject *hooks)
{
    PyObject *found = PyObject_GetAttrString(hooks, "descriptor");
    long descriptor = found == NULL ? -1 : PyLong_AsLong(found);
    Py_XDECREF(found);
    return (int)descriptor;
}

/* Wire(rank, links, hooks, spin_ns): how long waits look, 0 where ranks share processors. */
static PyObject *wire_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *links, *asked;
    int rank;
    long long spin_ns;
    unsigned long long main_thread;
    if (!PyArg_ParseTuple(args, "iO!OL", &rank, &PyList_Type, &links, &asked, &spin_ns))
        return NULL;
    Wire *wire = (Wire *)type->tp_alloc(type, 0);
    if (wire == NULL)
        return NULL;
    wire->rank = rank;
    wire->descriptor = wire_descriptor(asked);
    wire->yields = spin_ns == 0;
    wire->spin_ns = wire->most_ns = wire->yields ? WIRE_YIELDS_NS : spin_ns;
    wire->least_ns = wire->most_ns / WIRE_LEAST_PART;
    if (PyErr_Occurred() || !hooks_take_limits(asked, &wire->most_tag, &wire->window_nbytes, &wire->message_nbytes) ||
        !hooks_take_number(asked, "main_thread", &main_thread) || !hooks_take(wire, asked, hooks) || !wire_take_links(wire, links)) {
        Py_DECREF(wire);
        return NULL;
    }
    wire->main_thread = (unsigned long)main_thread;
    return (PyObject *)wire;
}

static PyMethodDef methods[] = {
    {"send", (PyCFunction)(void (*)(void))wire_py_send, METH_FASTCALL, NULL},
    {"recv", (PyCFunction)(void (*)(void))wire_py_recv, METH_FASTCALL, NULL},
    {"isend", (PyCFunction)(void (*)(void))wire_py_isend, METH_FASTCALL, NULL},
    {"irecv", (PyCFunction)(void (*)(void))wire_py_irecv, METH_FASTCALL, NULL},
    {"exchange", (PyCFunction)wire_py_exchange, METH_VARARGS, "Send arrays to other ranks and take others, of ranks that have compared their calls."},
    {"reduce", (PyCFunction)wire_py_reduce, METH_VARARGS, "Reduce an array of two ranks that have compared their calls."},
    {"serve", (PyCFunction)wire_py_serve, METH_O, "Serve the messages of a group."},
    {0},
};

static PyMemberDef members[] = {{"waited_ns", T_LONGLONG, offsetof(Wire, waited_ns), READONLY, NULL}, {0}};

PyTypeObject WireType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Wire",
    .tp_basicsize = sizeof(Wire),
    .tp_new = wire_new,
    .tp_dealloc = (destructor)wire_free,
    .tp_traverse = (traverseproc)wire_traverse,
    .tp_clear = (inquiry)wire_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_methods = methods,
    .tp_members = members,
};

int wire_add_types(PyObject *module)
{
    return PyModule_AddType(module, &WireType);
}
