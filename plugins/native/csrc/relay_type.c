/* The type of a relay. */
#include "relay.h"
#include <structmember.h>

static const size_t held[] = {offsetof(Relay, board), offsetof(Relay, wire), offsetof(Relay, turn), offsetof(Relay, sequence)};
enum { HELD = sizeof held / sizeof *held };

static int relay_traverse(Relay *relay, visitproc visit, void *arg)
{
    return held_visit(relay, held, HELD, visit, arg);
}

static int relay_clear(Relay *relay)
{
    held_clear(relay, held, HELD);
    return 0;
}

static void relay_free(Relay *relay)
{
    PyObject_GC_UnTrack(relay);
    relay_clear(relay);
    PyMem_Free(relay->ranks);
    PyMem_Free(relay->row);
    PyMem_Free(relay->areas);
    Py_TYPE(relay)->tp_free((PyObject *)relay);
}

static bool relay_refuse(const char *text)
{
    PyErr_SetString(PyExc_ValueError, text);
    return false;
}

static bool relay_take_about(uint64_t about[RECORD_WORDS], PyObject *from)
{
    if (PyTuple_GET_SIZE(from) != RECORD_WORDS - 1)
        return relay_refuse("a step has another record");
    for (int i = 1; i < RECORD_WORDS && !PyErr_Occurred(); i++)
        about[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(from, i - 1));
    return !PyErr_Occurred();
}

/* Take a list of its ranks for each host. Together they are all ranks, each once. */
static bool relay_take_hosts(Relay *relay, PyObject *hosts)
{
    Py_ssize_t count = PyList_GET_SIZE(hosts), size = 0, taken = 0;
    if (count < 1 || count > MOST_PARCELS)
        return relay_refuse("there are too many hosts");
    for (Py_ssize_t host = 0; host < count; host++) {
        PyObject *list = PyList_GET_ITEM(hosts, host);
        if (!PyList_CheckExact(list) || PyList_GET_SIZE(list) < 1 || PyList_GET_SIZE(list) > MOST_RANKS)
            return relay_refuse("a host is a list of some ranks");
        size += PyList_GET_SIZE(list);
        size_t head = WIRE_RECORD_NBYTES * (size_t)PyList_GET_SIZE(list);
        relay->head = head > relay->head ? head : relay->head;
    }
    unsigned char *seen = PyMem_Calloc((size_t)size, 1);
    relay->ranks = PyMem_Calloc((size_t)size, sizeof *relay->ranks);
    if (seen == NULL || relay->ranks == NULL) {
        PyMem_Free(seen);
        PyErr_NoMemory();
        return false;
    }
    bool sound = true;
    for (Py_ssize_t host = 0; sound && host < count; host++) {
        PyObject *list = PyList_GET_ITEM(hosts, host);
        for (Py_ssize_t i = 0; sound && i < PyList_GET_SIZE(list); i++) {
            long rank = PyLong_AsLong(PyList_GET_ITEM(list, i));
            sound = rank >= 0 && rank < size && !seen[rank];
            if (!sound)
                break;
            seen[rank] = 1;
            relay->here = rank == relay->rank ? (int)host : relay->here;
            relay->ranks[taken++] = (int)rank;
        }
        relay->starts[host + 1] = (int)taken;
    }
    PyMem_Free(seen);
    relay->hosts = (int)count;
    relay->size = (int)size;
    sound = sound && relay->rank >= 0 && relay->rank < relay->size;
    return sound || PyErr_Occurred() ? sound : relay_refuse("each rank is on one host");
}

/* Whether what is swapped and what is written has a place; this is what memory depends on. */
static bool relay_has_room(const Relay *relay)
{
    int here = relay->starts[relay->here + 1] - relay->starts[relay->here];
    size_t answer = WIRE_RECORD_NBYTES * (size_t)relay->size + relay->along_nbytes;
    bool first = relay->ranks[relay->starts[relay->here]] == relay->rank;
    if (relay->along_nbytes > answer || relay->along_nbytes % 8 != 0 || first != (relay->wire != NULL) ||
        (relay->board == NULL ? here != 1 : relay->board->base == NULL || relay->board->size != here || relay->board->area_nbytes < answer))
        return false;
    if (relay->board != NULL && relay->ranks[relay->starts[relay->here] + relay->board->rank] != relay->rank)
        return false;
    if (relay->wire == NULL)
        return true;
    bool fits = relay->wire->size == relay->hosts && relay->wire->rank == relay->here;
    for (int host = 0; fits && host < relay->hosts; host++)
        fits = host == relay->here || wire_has_room(relay->wire, host, relay->head + relay->along_nbytes);
    return fits;
}

static bool relay_take_memory(Relay *relay)
{
    if (relay->wire != NULL)
        relay->row = PyMem_Calloc(1, relay->head + relay->along_nbytes);
    if (relay->board == NULL)
        relay->areas = PyMem_Calloc(2, WIRE_RECORD_NBYTES * (size_t)relay->size + relay->along_nbytes);
    if ((relay->wire != NULL && relay->row == NULL) || (relay->board == NULL && relay->areas == NULL)) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

static bool relay_take_object(PyObject *given, PyTypeObject *type, void *place)
{
    if (given != Py_None && !PyObject_TypeCheck(given, type)) {
        PyErr_Format(PyExc_TypeError, "a %s or None is wanted", type->tp_name);
        return false;
    }
    *(PyObject **)place = given == Py_None ? NULL : Py_NewRef(given);
    return true;
}

/* Relay((board, turn, sequence, gather, spread), wire, hosts, rank, along_nbytes) */
static PyObject *relay_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *board, *wire, *turn, *sequence, *gather, *spread, *hosts;
    int rank;
    Py_ssize_t along_nbytes;
    if (!PyArg_ParseTuple(args, "(OO!OO!O!)OO!in", &board, &TurnType, &turn, &sequence, &PyTuple_Type, &gather, &PyTuple_Type, &spread, &wire,
                          &PyList_Type, &hosts, &rank, &along_nbytes))
        return NULL;
    if (!PyIter_Check(sequence) || along_nbytes < 0) {
        PyErr_SetString(PyExc_TypeError, "there is no sequence, or room");
        return NULL;
    }
    Relay *relay = (Relay *)type->tp_alloc(type, 0);
    if (relay == NULL)
        return NULL;
    relay->turn = (Turn *)Py_NewRef(turn);
    relay->sequence = Py_NewRef(sequence);
    relay->rank = rank;
    relay->along_nbytes = (size_t)along_nbytes;
    bool taken = relay_take_object(board, &BoardType, &relay->board) && relay_take_object(wire, &WireType, &relay->wire) &&
                 relay_take_about(relay->gather, gather) && relay_take_about(relay->spread, spread) && relay_take_hosts(relay, hosts) &&
                 (relay_has_room(relay) || relay_refuse("board and wire do not belong to such hosts")) && relay_take_memory(relay);
    if (!taken)
        Py_CLEAR(relay);
    return (PyObject *)relay;
}

static PyMemberDef members[] = {{"waited_ns", T_LONGLONG, offsetof(Relay, waited_ns), READONLY, NULL}, {0}};

PyTypeObject RelayType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Relay",
    .tp_basicsize = sizeof(Relay),
    .tp_new = relay_new,
    .tp_dealloc = (destructor)relay_free,
    .tp_traverse = (traverseproc)relay_traverse,
    .tp_clear = (inquiry)relay_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_members = members,
};

int relay_add_types(PyObject *module)
{
    return PyModule_AddType(module, &RelayType);
}
