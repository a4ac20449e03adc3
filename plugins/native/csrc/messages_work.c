/* What `isend` and `irecv` return where they are compiled: one object that knows what its message is, and does itself what
   programs do with most works: wait for one that ends well, and ask whether it has. For all else it has the work made that
   Python would have returned (`spell`), and lets that do it: every error, every text and every time-out is of Python's. */
#include "messages.h"
#include "arguments.h"
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    Messages *messages;
    RequestState *request; /* NULL for a message that had ended before its call returned */
    PyObject *array, *group, *spell, *ticket;
    PyObject *spelled; /* Python's work; NULL until it is needed */
    PyObject *weakrefs;
    long name; /* the other's global rank */
    uint64_t nbytes;
    bool received;
} Work;

static PyTypeObject WorkType;
static PyObject *text_come_to, *text_wait;

/* What is held, but for the ticket, which refers to nothing. */
static const size_t held[] = {offsetof(Work, messages), offsetof(Work, request), offsetof(Work, array),
                              offsetof(Work, group),    offsetof(Work, spell),   offsetof(Work, spelled)};
enum { HELD = sizeof held / sizeof *held };

static int work_traverse(Work *work, visitproc visit, void *arg)
{
    return held_visit(work, held, HELD, visit, arg);
}

static int work_clear(Work *work)
{
    held_clear(work, held, HELD);
    Py_CLEAR(work->ticket);
    return 0;
}

static void work_free(Work *work)
{
    PyObject_GC_UnTrack(work);
    if (work->weakrefs != NULL)
        PyObject_ClearWeakRefs((PyObject *)work);
    work_clear(work);
    PyObject_GC_Del(work);
}

PyObject *messages_work(Messages *messages, const Letter *letter, PyObject *const *args, RequestState *request, PyObject *ticket)
{
    Work *work = ticket == NULL ? NULL : PyObject_GC_New(Work, &WorkType);
    if (work == NULL) {
        Py_XDECREF(ticket);
        return NULL;
    }
    work->messages = (Messages *)Py_NewRef(messages);
    work->request = (RequestState *)Py_XNewRef(request);
    work->array = Py_NewRef(letter->array);
    work->group = Py_NewRef(args[GROUP]);
    work->spell = Py_NewRef(args[SPELL]);
    work->ticket = ticket;
    work->spelled = work->weakrefs = NULL;
    work->name = letter->way->name;
    work->nbytes = letter->came_nbytes;
    work->received = letter->received;
    PyObject_GC_Track(work);
    return (PyObject *)work;
}

/* ------------------------------------------------------------------ what is left to Python */

/* Python's work, which is made once; borrowed. */
static PyObject *work_spelled(Work *work)
{
    if (work->spelled != NULL || work->spell == NULL)
        return work->spelled;
    PyObject *request = work->request == NULL ? Py_None : (PyObject *)work->request;
    PyObject *made = PyObject_CallFunction(work->spell, "OOOOOlOK", work->group, work->messages->lane, request, work->array,
                                           work->received ? text_irecv : text_isend, work->name, work->ticket,
                                           (unsigned long long)work->nbytes);
    if (made != NULL && work->request != NULL)
        messages_unlist(work->request); /* that one tells the recorder from now on */
    if (work->spelled == NULL)
        work->spelled = made;
    else
        Py_XDECREF(made); /* another thread was first */
    return made == NULL ? NULL : work->spelled;
}

static PyObject *work_leave(Work *work, PyObject *name, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *spelled = work_spelled(work), *method = spelled == NULL ? NULL : PyObject_GetAttr(spelled, name);
    PyObject *done = method == NULL ? NULL : PyObject_Vectorcall(method, args, (size_t)count, names);
    Py_XDECREF(method);
    return done;
}

/* Whether the message has ended well, which the recorder is told. An exception may be set. */
static bool work_is_well(Work *work)
{
    RequestState *request = work->request;
    if (request == NULL)
        return true;
    return request->done && state_is_none(request->error) && messages_tell(work->messages, request);
}

/* ------------------------------------------------------------------ waiting */

/* Have Python go on with a wait; it is told which error has come to it so far, or that the recorder knows of it. */
static PyObject *work_wait_on(Work *work)
{
    PyObject *come = PyErr_Occurred() ? arguments_raised() : Py_NewRef(Py_True), *spelled = work_spelled(work);
    if (spelled == NULL || PyObject_SetAttr(spelled, text_come_to, come) < 0) {
        Py_XDECREF(come);
        return NULL;
    }
    Py_DECREF(come);
    return PyObject_CallMethodNoArgs(spelled, text_wait);
}

static PyObject *work_wait(Work *work, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    RequestState *request = work->request;
    if (count > 0 || names != NULL || work->spelled != NULL || request == NULL)
        return request == NULL && count == 0 && names == NULL ? Py_NewRef(Py_True) : work_leave(work, text_wait, args, count, names);
    if (request->done && !state_is_none(request->error))
        return work_leave(work, text_wait, NULL, 0, NULL);
    trail_ask(work->messages->trail, work->ticket);
    bool looked = request->done || messages_take_posted(work->messages, request, true);
    if (looked && work_is_well(work))
        return Py_NewRef(Py_True);
    request->looked = !PyErr_Occurred(); /* Python's wait had better sleep now */
    return work_wait_on(work);
}

static PyObject *work_is_completed(Work *work, PyObject *Py_UNUSED(unused))
{
    if (work->spelled == NULL && (work->request == NULL || work->request->done || messages_take_posted(work->messages, work->request, false)) &&
        work_is_well(work))
        Py_RETURN_TRUE;
    PyObject *name = PyErr_Occurred() ? NULL : PyUnicode_InternFromString("is_completed");
    PyObject *done = name == NULL ? NULL : work_leave(work, name, NULL, 0, NULL);
    Py_XDECREF(name);
    return done;
}

/* ------------------------------------------------------------------ the rest of a work */

static PyObject *work_result(Work *work, PyObject *Py_UNUSED(unused))
{
    if (work->spelled == NULL && work_is_well(work))
        return Py_NewRef(work->array);
    return PyErr_Occurred() || work_spelled(work) == NULL ? NULL : PyObject_CallMethod(work->spelled, "result", NULL);
}

static PyObject *work_source_rank(Work *work, PyObject *Py_UNUSED(unused))
{
    if (work->spelled == NULL && work->received && work_is_well(work))
        return PyLong_FromLong(work->name);
    return PyErr_Occurred() || work_spelled(work) == NULL ? NULL : PyObject_CallMethod(work->spelled, "source_rank", NULL);
}

static PyObject *work_nbytes(Work *work, void *Py_UNUSED(unused))
{
    return work_spelled(work) == NULL ? NULL : PyObject_GetAttrString(work->spelled, "nbytes");
}

/* Whom a callback is told: the work that the program has. */
static PyObject *work_add_done_callback(Work *work, PyObject *callback)
{
    return work_spelled(work) == NULL ? NULL : PyObject_CallMethod(work->spelled, "call_when_done", "OO", callback, work);
}

#define LEFT(name)                                                          \
    static PyObject *work_##name(Work *work, PyObject *Py_UNUSED(unused))   \
    {                                                                       \
        return work_spelled(work) == NULL ? NULL : PyObject_CallMethod(work->spelled, #name, NULL); \
    }

LEFT(is_success)
LEFT(exception)
LEFT(get_future)
LEFT(synchronize)
LEFT(cancel)
LEFT(_repr_html_)

static PyObject *work_count(Work *work, PyObject *dtype)
{
    return work_spelled(work) == NULL ? NULL : PyObject_CallMethod(work->spelled, "count", "O", dtype);
}

static PyObject *work_await(Work *work)
{
    return work_spelled(work) == NULL ? NULL : PyObject_CallMethod(work->spelled, "__await__", NULL);
}

static PyObject *work_repr(Work *work)
{
    return work_spelled(work) == NULL ? NULL : PyObject_Repr(work->spelled);
}

static PyMethodDef methods[] = {
    {"wait", (PyCFunction)(void (*)(void))work_wait, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"is_completed", (PyCFunction)work_is_completed, METH_NOARGS, NULL},
    {"is_success", (PyCFunction)work_is_success, METH_NOARGS, NULL},
    {"exception", (PyCFunction)work_exception, METH_NOARGS, NULL},
    {"result", (PyCFunction)work_result, METH_NOARGS, NULL},
    {"get_future", (PyCFunction)work_get_future, METH_NOARGS, NULL},
    {"source_rank", (PyCFunction)work_source_rank, METH_NOARGS, NULL},
    {"count", (PyCFunction)work_count, METH_O, NULL},
    {"synchronize", (PyCFunction)work_synchronize, METH_NOARGS, NULL},
    {"add_done_callback", (PyCFunction)work_add_done_callback, METH_O, NULL},
    {"cancel", (PyCFunction)work_cancel, METH_NOARGS, NULL},
    {"_repr_html_", (PyCFunction)work__repr_html_, METH_NOARGS, NULL},
    {0},
};
static PyGetSetDef attributes[] = {{"nbytes", (getter)work_nbytes, NULL, NULL, NULL}, {0}};
static PyAsyncMethods async_methods = {.am_await = (unaryfunc)work_await};

static PyTypeObject WorkType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Work",
    .tp_basicsize = sizeof(Work),
    .tp_dealloc = (destructor)work_free,
    .tp_traverse = (traverseproc)work_traverse,
    .tp_clear = (inquiry)work_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_weaklistoffset = offsetof(Work, weakrefs),
    .tp_repr = (reprfunc)work_repr,
    .tp_as_async = &async_methods,
    .tp_methods = methods,
    .tp_getset = attributes,
};

int messages_add_work(PyObject *module)
{
    if ((text_come_to = PyUnicode_InternFromString("_come_to")) == NULL || (text_wait = PyUnicode_InternFromString("wait")) == NULL)
        return -1;
    return PyModule_AddType(module, &WorkType);
}
