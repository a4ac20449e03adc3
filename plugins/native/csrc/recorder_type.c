/* The flight recorder as Python sees it: rankwise.basics.recording.FlightRecorder and Trail. */
#include "arguments.h"
#include "recorder.h"
#include "shared.h"
#include <structmember.h>

void entry_clear(Entry *entry);
void entry_copy(Entry *target, const Entry *source);
void trail_keep(Trail *trail, int which, const Entry *entry);
Entry *trail_mark(Trail *trail, int which);
Entry *trail_mine(Trail *trail);
Entry *recorder_entry(Recorder *recorder, uint64_t serial);
void recorder_count_end(Trail *trail, const Entry *entry);

/* What stands for an operation that may be waited for in any order: a copy, should others push it out of the ring. */
typedef struct {
    PyObject_HEAD
    Entry entry;
} Ticket;

static void ticket_free(Ticket *ticket)
{
    entry_clear(&ticket->entry);
    PyObject_Free(ticket);
}

static PyObject *ticket_title(Ticket *ticket, PyObject *Py_UNUSED(unused))
{
    const Entry *entry = &ticket->entry;
    return Py_BuildValue("OK", entry->op == NULL ? Py_None : entry->op, (unsigned long long)entry->number);
}

static PyMethodDef ticket_methods[] = {
    {"title", (PyCFunction)ticket_title, METH_NOARGS, "Return operation and number."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject TicketType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Ticket",
    .tp_basicsize = sizeof(Ticket),
    .tp_methods = ticket_methods,
    .tp_dealloc = (destructor)ticket_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static PyObject *ticket_of(const Entry *entry)
{
    Ticket *ticket = PyObject_New(Ticket, &TicketType);
    if (ticket == NULL)
        return NULL;
    ticket->entry = (Entry){0};
    if (entry != NULL)
        entry_copy(&ticket->entry, entry);
    return (PyObject *)ticket;
}

PyObject *trail_ticket(const Trail *trail, uint64_t serial)
{
    return ticket_of(recorder_entry(trail->recorder, serial));
}

/* ------------------------------------------------------------------ reading */

static PyObject *recorder_or_none(PyObject *object)
{
    PyObject *found = object == NULL ? Py_None : object;
    Py_INCREF(found);
    return found;
}

static PyObject *recorder_detail_of(const Entry *entry)
{
    if (!entry->message)
        return recorder_or_none(NULL);
    return entry->peer < 0 ? Py_BuildValue("(Ol)", Py_None, entry->tag) : Py_BuildValue("(ll)", entry->peer, entry->tag);
}

/* Others may push an entry out of the ring, and end its trail, while objects are made of it: any of these may be when
   the collector runs, which lets the interpreter go. */
static PyObject *recorder_read_entry(Recorder *recorder, Trail *trail, const Entry *kept)
{
    Entry entry = {0};
    entry_copy(&entry, kept);
    Py_INCREF(trail);
    PyObject *error = entry.error == NULL ? PyUnicode_FromString("") : recorder_or_none(entry.error);
    PyObject *made = PyObject_CallFunction(recorder->make_entry, "OOKNLNNikLLNLL", trail, entry.op, (unsigned long long)entry.number,
                                           recorder_detail_of(&entry), (long long)entry.nbytes, recorder_or_none(entry.dtype),
                                           recorder_or_none(entry.code), entry.lasti, entry.thread, (long long)entry.began_ns,
                                           (long long)entry.ended_ns, error, (long long)entry.waited_ns, (long long)entry.asked_ns);
    Py_DECREF(trail);
    entry_clear(&entry);
    return made;
}

static PyObject *recorder_entries(Recorder *recorder, PyObject *Py_UNUSED(unused))
{
    PyObject *list = PyList_New(0);
    uint64_t last = recorder->serial, first = last < recorder->capacity ? 1 : last - recorder->capacity + 1;
    for (uint64_t serial = first; list != NULL && serial <= last; serial++) {
        const Entry *entry = recorder_entry(recorder, serial); /* making one may let other threads run */
        if (entry == NULL)
            continue;
        PyObject *made = recorder_read_entry(recorder, entry->trail, entry);
        if (made == NULL || PyList_Append(list, made) < 0)
            Py_CLEAR(list);
        Py_XDECREF(made);
    }
    return list;
}

static PyObject *trail_marks(Trail *trail, PyObject *Py_UNUSED(unused))
{
    PyObject *marks = PyTuple_New(MARKS);
    for (int which = 0; marks != NULL && which < MARKS; which++) {
        const Entry *entry = trail_mark(trail, which);
        PyObject *made = entry == NULL ? recorder_or_none(NULL) : recorder_read_entry(trail->recorder, trail, entry);
        if (made == NULL)
            Py_CLEAR(marks);
        else
            PyTuple_SET_ITEM(marks, which, made);
    }
    return marks;
}

/* All that has been counted, by operation, in the order of Totals; the core makes Totals of it. */
static PyObject *trail_sums(Trail *trail, PyObject *Py_UNUSED(unused))
{
    PyObject *found = PyDict_New();
    for (int kind = 0; found != NULL && kind < trail->kinds; kind++) {
        const Sums sums = trail->sums[kind]; /* others may add to them, and move them, while objects are made */
        PyObject *told = Py_BuildValue("(KKKLLL)", (unsigned long long)sums.begun, (unsigned long long)sums.ended,
                                       (unsigned long long)sums.failed, (long long)sums.nbytes,
                                       (long long)sums.busy_ns, (long long)sums.waited_ns);
        if (told == NULL || PyDict_SetItem(found, sums.op, told) < 0)
            Py_CLEAR(found);
        Py_XDECREF(told);
    }
    return found;
}

/* ------------------------------------------------------------------ noting, from Python */

/* What an array says of itself; false with an exception set if it is none. */
static bool recorder_size_and_dtype(PyObject *array, int64_t *nbytes, PyObject **dtype)
{
    if (shared_is_array(array)) {
        *nbytes = (int64_t)PyArray_NBYTES((PyArrayObject *)array);
        *dtype = Py_NewRef((PyObject *)PyArray_DESCR((PyArrayObject *)array));
        return true;
    }
    PyObject *size = PyObject_GetAttrString(array, "nbytes");
    *nbytes = size == NULL ? -1 : PyLong_AsLongLong(size);
    Py_XDECREF(size);
    *dtype = PyErr_Occurred() ? NULL : PyObject_GetAttrString(array, "dtype");
    return *dtype != NULL;
}

static PyObject *trail_py_begin(Trail *trail, PyObject *const *args, Py_ssize_t count)
{
    int64_t nbytes = 0;
    PyObject *dtype = NULL;
    long frames = count == 3 ? PyLong_AsLong(args[2]) : 3;
    if (count < 1 || count > 3 || frames < 1 || frames > 100) {
        PyErr_SetString(PyExc_TypeError, "begin(op, array='cpu', frames=3)");
        return NULL;
    }
    if (count >= 2 && !PyUnicode_Check(args[1]) && !recorder_size_and_dtype(args[1], &nbytes, &dtype))
        return NULL;
    trail_begin(trail, args[0], dtype, nbytes, (int)frames - 1);
    Py_XDECREF(dtype);
    Py_RETURN_NONE;
}

static PyObject *trail_py_begin_message(Trail *trail, PyObject *args)
{
    PyObject *op, *array, *peer, *dtype;
    long tag;
    int64_t nbytes;
    if (!PyArg_ParseTuple(args, "UOOl", &op, &array, &peer, &tag))
        return NULL;
    long rank = peer == Py_None ? -1 : PyLong_AsLong(peer);
    if (PyErr_Occurred() || !recorder_size_and_dtype(array, &nbytes, &dtype))
        return NULL;
    uint64_t serial = trail_begin_message(trail, op, dtype, nbytes, rank, tag, 1, 0);
    Py_DECREF(dtype);
    return ticket_of(recorder_entry(trail->recorder, serial));
}

/* Note so many calls as compiled calls do: for those who measure what that takes. */
static PyObject *trail_py_rehearse(Trail *trail, PyObject *args)
{
    PyObject *op, *array, *dtype;
    Py_ssize_t calls;
    int64_t nbytes;
    if (!PyArg_ParseTuple(args, "UOn", &op, &array, &calls) || !recorder_size_and_dtype(array, &nbytes, &dtype))
        return NULL;
    for (Py_ssize_t i = 0; i < calls; i++) {
        trail_begin(trail, op, dtype, nbytes, 1);
        trail_end(trail, 0);
    }
    Py_DECREF(dtype);
    Py_RETURN_NONE;
}

static PyObject *trail_py_end(Trail *trail, PyObject *Py_UNUSED(unused))
{
    trail_end(trail, 0);
    Py_RETURN_NONE;
}

/* An error in words: objects would keep the program's arrays alive. */
static PyObject *recorder_words_of(PyObject *error)
{
    const char *name = Py_TYPE(error)->tp_name, *dot = strrchr(name, '.');
    return PyUnicode_FromFormat("%s: %S", dot == NULL ? name : dot + 1, error);
}

/* Note that an entry has failed; false if it cannot be said in words. */
static bool recorder_end_with(Trail *trail, uint64_t serial, PyObject *error)
{
    PyObject *text = recorder_words_of(error);
    Entry *entry = text == NULL ? NULL : recorder_entry(trail->recorder, serial); /* words may let other threads run */
    if (entry != NULL && entry->ended_ns == 0) {
        entry->ended_ns = native_monotonic_ns();
        entry->error = Py_NewRef(text);
        recorder_count_end(trail, entry);
    }
    Py_XDECREF(text);
    return text != NULL;
}

void trail_break_message(Trail *trail, uint64_t serial)
{
    PyObject *error = arguments_raised();
    if (!recorder_end_with(trail, serial, error))
        PyErr_Clear();
    arguments_raise(error);
}

static PyObject *trail_py_broken(Trail *trail, PyObject *error)
{
    const Entry *entry = trail_mine(trail);
    if (entry != NULL && !recorder_end_with(trail, entry->serial, error))
        return NULL;
    Py_RETURN_NONE;
}

/* The message that was begun or asked for last. */
static Entry *recorder_waiting(Trail *trail)
{
    Entry *begun = trail_mark(trail, MESSAGE_BEGUN), *asked = recorder_entry(trail->recorder, trail->asked);
    return asked != NULL && (begun == NULL || asked->asked_ns >= begun->began_ns) ? asked : begun;
}

void trail_waited_message(Trail *trail, int64_t ns)
{
    Entry *entry = recorder_waiting(trail);
    if (entry != NULL)
        entry->waited_ns += ns;
}

static PyObject *trail_py_waited(Trail *trail, PyObject *const *args, Py_ssize_t count)
{
    int message = count == 2 ? PyObject_IsTrue(args[1]) : 0;
    int64_t ns = count < 1 || count > 2 ? -1 : PyLong_AsLongLong(args[0]);
    if (PyErr_Occurred() || ns < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "waited(ns, message=False)");
        return NULL;
    }
    Entry *entry = message ? recorder_waiting(trail) : trail_mark(trail, BEGUN);
    if (entry != NULL)
        entry->waited_ns += ns;
    Py_RETURN_NONE;
}

static PyObject *trail_py_issued(Trail *trail, PyObject *Py_UNUSED(unused))
{
    Entry *entry = trail_mine(trail);
    if (entry != NULL)
        entry->thread = 0;
    return ticket_of(entry);
}

static Entry *entry_of(Trail *trail, PyObject *ticket)
{
    if (!Py_IS_TYPE(ticket, &TicketType)) {
        PyErr_SetString(PyExc_TypeError, "not a ticket of this recorder");
        return NULL;
    }
    Entry *copy = &((Ticket *)ticket)->entry, *entry = recorder_entry(trail->recorder, copy->serial);
    return entry != NULL ? entry : copy;
}

static PyObject *trail_py_released(Trail *trail, PyObject *ticket)
{
    Entry *entry = entry_of(trail, ticket);
    if (entry == NULL)
        return NULL;
    entry->thread = ((Ticket *)ticket)->entry.thread = 0;
    Py_RETURN_NONE;
}

PyObject *trail_release_message(const Trail *trail, uint64_t serial)
{
    Entry *entry = recorder_entry(trail->recorder, serial);
    if (entry != NULL)
        entry->thread = 0;
    return ticket_of(entry);
}

void trail_ask(Trail *trail, PyObject *ticket)
{
    Entry *entry = entry_of(trail, ticket);
    if (entry != NULL && entry->ended_ns == 0) {
        entry->asked_ns = native_monotonic_ns();
        trail->asked = entry->serial;
    }
}

static PyObject *trail_py_asked(Trail *trail, PyObject *ticket)
{
    trail_ask(trail, ticket);
    return PyErr_Occurred() ? NULL : recorder_or_none(NULL);
}

/* They may be waited for in any order: the mark is the one with the highest number. */
static void recorder_mark_ended(Trail *trail, const Entry *entry)
{
    int which = entry->message ? MESSAGE_ENDED : ENDED;
    const Entry *last = trail_mark(trail, which);
    if (entry->serial == 0 || (last != NULL && last->number >= entry->number))
        return;
    trail->marks[which] = entry->serial;
    if (recorder_entry(trail->recorder, entry->serial) == NULL)
        trail_keep(trail, which, entry);
}

/* Note an end; `source` is None or who has sent a message from anyone. */
static bool trail_note_end(Trail *trail, PyObject *ticket, PyObject *error, PyObject *source)
{
    PyObject *text = NULL;
    if (error != Py_None && (text = recorder_words_of(error)) == NULL)
        return false;
    Entry *entry = entry_of(trail, ticket);
    if (entry == NULL || entry->ended_ns != 0) {
        Py_XDECREF(text);
        return entry != NULL;
    }
    entry->ended_ns = native_monotonic_ns();
    if (source != Py_None)
        entry->peer = PyLong_AsLong(source);
    if (text != NULL)
        entry->error = text;
    else
        recorder_mark_ended(trail, entry);
    recorder_count_end(trail, entry);
    return !PyErr_Occurred();
}

bool trail_end_asked(Trail *trail, PyObject *ticket, PyObject *error)
{
    return trail_note_end(trail, ticket, error == NULL ? Py_None : error, Py_None);
}

static PyObject *trail_py_ended(Trail *trail, PyObject *args, PyObject *options)
{
    static char *names[] = {"ticket", "error", "source", NULL};
    PyObject *ticket, *error = Py_None, *source = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, options, "O|OO", names, &ticket, &error, &source))
        return NULL;
    return trail_note_end(trail, ticket, error, source) ? recorder_or_none(NULL) : NULL;
}

static PyObject *trail_py_fail(Trail *trail, PyObject *error)
{
    if (PyUnicode_GET_LENGTH(trail->failure) > 0)
        Py_RETURN_NONE;
    PyObject *text = recorder_words_of(error);
    if (text == NULL)
        return NULL;
    trail->failed_ns = native_monotonic_ns();
    Py_SETREF(trail->failure, text);
    PyObject *told = trail->recorder->on_failure;
    return told == Py_None ? recorder_or_none(NULL) : PyObject_CallOneArg(told, (PyObject *)trail);
}

/* ------------------------------------------------------------------ trails */

static PyMethodDef trail_methods[] = {
    {"begin", (PyCFunction)(void (*)(void))trail_py_begin, METH_FASTCALL, "Note that a collective begins."},
    {"end", (PyCFunction)trail_py_end, METH_NOARGS, "Note that it has ended well."},
    {"issued", (PyCFunction)trail_py_issued, METH_NOARGS, "Note that its asynchronous call returns."},
    {"begin_message", (PyCFunction)trail_py_begin_message, METH_VARARGS, "Note that a message begins."},
    {"released", (PyCFunction)trail_py_released, METH_O, "Note that its call has returned."},
    {"asked", (PyCFunction)trail_py_asked, METH_O, "Note that the program waits for it from now on."},
    {"ended", (PyCFunction)(void (*)(void))trail_py_ended, METH_VARARGS | METH_KEYWORDS, "Note an end that was seen."},
    {"fail", (PyCFunction)trail_py_fail, METH_O, "Note that the group is of no use any more."},
    {"broken", (PyCFunction)trail_py_broken, METH_O, "Note that it has failed."},
    {"rehearse", (PyCFunction)trail_py_rehearse, METH_VARARGS, "Note so many calls."},
    {"waited", (PyCFunction)(void (*)(void))trail_py_waited, METH_FASTCALL, "Note a wait for others."},
    {"totals", (PyCFunction)trail_sums, METH_NOARGS, "Return what has been counted of each operation."},
    {"marks", (PyCFunction)trail_marks, METH_NOARGS, "Return what was begun and ended last."},
    {0},
};

static PyMemberDef trail_members[] = {
    {"name", T_OBJECT, offsetof(Trail, name), READONLY, NULL},
    {"description", T_OBJECT, offsetof(Trail, description), READONLY, NULL},
    {"ranks", T_OBJECT, offsetof(Trail, ranks), READONLY, NULL},
    {"failure", T_OBJECT, offsetof(Trail, failure), READONLY, NULL},
    {"failed_ns", T_LONGLONG, offsetof(Trail, failed_ns), READONLY, NULL},
    {0},
};

static int trail_traverse(Trail *trail, visitproc visit, void *arg)
{
    Py_VISIT(trail->recorder);
    return 0;
}

static void trail_forget(Trail *trail)
{
    Entry *kept = trail->kept;
    trail->kept = NULL;
    for (int which = 0; which < MARKS; which++) {
        trail->marks[which] = 0;
        if (kept != NULL)
            entry_clear(&kept[which]);
    }
    PyMem_Free(kept);
}

static void trail_free(Trail *trail)
{
    PyObject_GC_UnTrack(trail);
    if (trail->previous != NULL)
        trail->previous->next = trail->next;
    else
        trail->recorder->first = trail->next;
    if (trail->next != NULL)
        trail->next->previous = trail->previous;
    if (trail->weakrefs != NULL) /* after that, as what is called then may ask for all trails */
        PyObject_ClearWeakRefs((PyObject *)trail);
    trail_forget(trail);
    for (int kind = 0; kind < trail->kinds; kind++)
        Py_DECREF(trail->sums[kind].op);
    PyMem_Free(trail->sums);
    Py_CLEAR(trail->name);
    Py_CLEAR(trail->description);
    Py_CLEAR(trail->ranks);
    Py_CLEAR(trail->failure);
    Py_CLEAR(trail->recorder);
    PyObject_GC_Del(trail);
}

PyTypeObject TrailType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Trail",
    .tp_basicsize = sizeof(Trail),
    .tp_dealloc = (destructor)trail_free,
    .tp_traverse = (traverseproc)trail_traverse,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_methods = trail_methods,
    .tp_members = trail_members,
    .tp_weaklistoffset = offsetof(Trail, weakrefs),
};

/* ------------------------------------------------------------------ recorders */

static PyObject *recorder_trail(Recorder *recorder, PyObject *args)
{
    PyObject *name, *description, *ranks;
    if (!PyArg_ParseTuple(args, "UUO!", &name, &description, &PyTuple_Type, &ranks))
        return NULL;
    Trail *trail = PyObject_GC_New(Trail, &TrailType);
    if (trail == NULL)
        return NULL;
    memset((char *)trail + sizeof(PyObject), 0, sizeof(Trail) - sizeof(PyObject));
    trail->recorder = (Recorder *)recorder_or_none((PyObject *)recorder);
    trail->name = recorder_or_none(name);
    trail->description = recorder_or_none(description);
    trail->ranks = recorder_or_none(ranks);
    trail->failure = PyUnicode_FromString("");
    trail->next = recorder->first;
    if (trail->next != NULL)
        trail->next->previous = trail;
    recorder->first = trail;
    PyObject_GC_Track(trail);
    return (PyObject *)trail;
}

static PyObject *recorder_trails(Recorder *recorder, PyObject *Py_UNUSED(unused))
{
    PyObject *list = PyList_New(0);
    for (Trail *trail = recorder->first; list != NULL && trail != NULL; trail = trail->next)
        if (PyList_Append(list, (PyObject *)trail) < 0)
            Py_CLEAR(list);
    return list == NULL || PyList_Reverse(list) < 0 ? NULL : list;
}

static int recorder_forget(Recorder *recorder)
{
    for (Trail *trail = recorder->first; trail != NULL; trail = trail->next)
        trail_forget(trail);
    for (uint64_t i = 0; recorder->ring != NULL && i < recorder->capacity; i++)
        entry_clear(&recorder->ring[i]);
    Py_CLEAR(recorder->known);
    return 0;
}

static PyObject *recorder_clear(Recorder *recorder, PyObject *Py_UNUSED(unused))
{
    Py_INCREF(recorder); /* its trails may be the last that hold it */
    recorder_forget(recorder);
    Py_DECREF(recorder);
    Py_RETURN_NONE;
}

static int recorder_init(Recorder *recorder, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *make_entry, *skipped;
    Py_ssize_t capacity;
    if (recorder->ring != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a recorder is made once");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OO!n", &make_entry, &PyList_Type, &skipped, &capacity))
        return -1;
    recorder->ring = capacity < 1 ? NULL : PyMem_Calloc((size_t)capacity, sizeof(Entry));
    if (recorder->ring == NULL) {
        PyErr_SetString(PyExc_ValueError, "no room for so many entries");
        return -1;
    }
    recorder->skipped = recorder_or_none(skipped);
    recorder->capacity = (uint64_t)capacity;
    recorder->make_entry = recorder_or_none(make_entry);
    recorder->on_failure = recorder_or_none(NULL);
    return 0;
}

static int recorder_traverse(Recorder *recorder, visitproc visit, void *arg)
{
    Py_VISIT(recorder->make_entry);
    Py_VISIT(recorder->on_failure);
    for (uint64_t i = 0; recorder->ring != NULL && i < recorder->capacity; i++)
        Py_VISIT(recorder->ring[i].trail);
    return 0;
}

static int recorder_break(Recorder *recorder)
{
    PyObject *none = recorder_or_none(NULL), *told = recorder->on_failure;
    recorder->on_failure = none;
    Py_XDECREF(told);
    return recorder_forget(recorder);
}

static void recorder_free(Recorder *recorder)
{
    PyObject_GC_UnTrack(recorder);
    if (recorder->weakrefs != NULL)
        PyObject_ClearWeakRefs((PyObject *)recorder);
    recorder_forget(recorder);
    Py_CLEAR(recorder->make_entry);
    Py_CLEAR(recorder->on_failure);
    PyMem_Free(recorder->ring);
    Py_CLEAR(recorder->skipped);
    Py_TYPE(recorder)->tp_free((PyObject *)recorder);
}

static PyObject *recorder_count(Recorder *Py_UNUSED(recorder), PyObject *Py_UNUSED(unused))
{
    Py_RETURN_NONE; /* it always does */
}

static PyMethodDef recorder_methods[] = {
    {"trail", (PyCFunction)recorder_trail, METH_VARARGS, "Return a new group's trail."},
    {"trails", (PyCFunction)recorder_trails, METH_NOARGS, "Return the trails of the groups that are alive."},
    {"entries", (PyCFunction)recorder_entries, METH_NOARGS, "Return the operations, the oldest first."},
    {"count", (PyCFunction)recorder_count, METH_NOARGS, "Count what leaves the ring, as is always done here."},
    {"clear", (PyCFunction)recorder_clear, METH_NOARGS, "Forget all."},
    {0},
};

static PyMemberDef recorder_members[] = {
    {"on_failure", T_OBJECT, offsetof(Recorder, on_failure), 0, NULL},
    {0},
};

static PyTypeObject RecorderType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.FlightRecorder",
    .tp_basicsize = sizeof(Recorder),
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)recorder_init,
    .tp_dealloc = (destructor)recorder_free,
    .tp_traverse = (traverseproc)recorder_traverse,
    .tp_clear = (inquiry)recorder_break,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_methods = recorder_methods,
    .tp_members = recorder_members,
    .tp_weaklistoffset = offsetof(Recorder, weakrefs),
};

int recorder_add_types(PyObject *module)
{
    if (PyType_Ready(&TicketType) < 0 || PyType_Ready(&TrailType) < 0)
        return -1;
    return PyModule_AddType(module, &TrailType) < 0 ? -1 : PyModule_AddType(module, &RecorderType);
}
