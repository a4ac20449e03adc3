/* Receives that are posted before their messages come. Each is a request of Python's engine, which serves it as any other;
   only the one who posts it, and the one who waits for it, are compiled.

   See messages.c for what takes the place of the lock here. The collector of garbage, which may run Python's code and with
   it other threads wherever memory is taken, waits while a line and a ring must stay as they are. */
#include "messages.h"
#include "arguments.h"
#include <string.h>

/* What is longer is read by the engine, which handles signals meanwhile. */
enum { MOST_READ_NBYTES = 64 << 20 };

/* ------------------------------------------------------------------ the recorder, which is told of each end once */

void messages_list(Messages *messages, RequestState *request, PyObject *ticket)
{
    request->ticket = ticket;
    request->next = messages->posted;
    request->link = &messages->posted;
    if (request->next != NULL)
        request->next->link = &request->next;
    messages->posted = request;
}

void messages_unlist(RequestState *request)
{
    if (request->link == NULL)
        return;
    *request->link = request->next;
    if (request->next != NULL)
        request->next->link = request->link;
    request->next = NULL;
    request->link = NULL;
}

bool messages_tell(Messages *messages, RequestState *request)
{
    if (request->link == NULL)
        return true;
    messages_unlist(request);
    if (messages->trail == NULL) /* the collector of garbage has been there */
        return true;
    return trail_end_asked(messages->trail, request->ticket, request->error == Py_None ? NULL : request->error);
}

void messages_let_posted_go(RequestState *request)
{
    if (request->link == NULL)
        return;
    PyObject *error = PyErr_Occurred() ? arguments_raised() : NULL;
    if (!messages_tell((Messages *)request->by, request))
        PyErr_WriteUnraisable((PyObject *)request->by);
    arguments_raise(error);
}

/* The first that has ended, or that has not, as is asked; borrowed. */
static RequestState *posted_that_is(const Messages *messages, bool done)
{
    RequestState *request = messages->posted;
    while (request != NULL && request->done != done)
        request = request->next;
    return request;
}

PyObject *messages_py_look(Messages *messages, PyObject *Py_UNUSED(unused))
{
    RequestState *request;
    /* From the beginning each time: telling may run other code. */
    while ((request = posted_that_is(messages, true)) != NULL) {
        Py_INCREF(request);
        bool told = messages_tell(messages, request);
        Py_DECREF(request);
        if (!told)
            return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *messages_py_lose(Messages *messages, PyObject *error)
{
    RequestState *request;
    while ((request = posted_that_is(messages, false)) != NULL) {
        Py_INCREF(error);
        Py_XSETREF(request->error, error);
        request->done = true;
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ posting */

/* Whether the engine would only put this receive into its line, and nobody has to be woken for it. */
static bool posted_may_enter(Messages *messages, const Letter *letter)
{
    const Way *way = letter->way;
    return way != NULL && letter->nbytes <= (way->pid > 0 ? MOST_READ_NBYTES : (size_t)way->rings->eager_nbytes) && messages_sound(messages, way) && state_is_none(way->peer->gone) &&
           !messages_is_kept(messages, letter);
}

static RequestState *posted_new(Messages *messages, const Letter *letter)
{
    RequestState *request = (RequestState *)messages->request_type->tp_alloc(messages->request_type, 0);
    if (request == NULL)
        return NULL;
    request->engine = Py_NewRef(messages->engine);
    request->array = Py_NewRef(letter->array);
    request->by = Py_NewRef(messages);
    request->peer = PyLong_FromLong(letter->peer);
    request->from = letter->peer;
    request->tag = letter->tag;
    request->dtype = letter->mark;
    if (request->peer == NULL || !messages_enter(messages, letter->tag, letter->peer, request))
        Py_CLEAR(request);
    return request;
}

bool messages_leave_alone(Messages *messages, RequestState *request)
{
    ProgressState *progress = messages->progress;
    progress->last_drive = (double)native_monotonic_ns() / 1e9; /* the engine's thread does not come between */
    if (progress->ticks && !lock_is_held(messages->lock)) {
        if (!request->done && !request->watched) {
            request->watched = true;
            progress->pending++;
        }
        return true;
    }
    PyObject *issued = PyObject_CallOneArg(messages->issued, (PyObject *)request);
    Py_XDECREF(issued);
    return issued != NULL;
}

PyObject *messages_post(Messages *messages, const Letter *letter, PyObject *const *args)
{
    Letter posted = *letter;
    int collects = PyGC_Disable();
    RequestState *request = posted_may_enter(messages, letter) ? posted_new(messages, letter) : NULL;
    if (collects)
        PyGC_Enable();
    if (request == NULL)
        return arguments_declined(Py_None);
    if (letter->nbytes > (size_t)letter->way->rings->eager_nbytes && !messages_leave_alone(messages, request)) {
        Py_DECREF(request);
        return NULL;
    }
    messages_begin_noting(messages, &posted, text_irecv, 0);
    PyObject *ticket = trail_release_message(messages->trail, posted.serial);
    messages_list(messages, request, Py_XNewRef(ticket));
    PyObject *work = messages_work(messages, letter, args, request, ticket);
    Py_DECREF(request);
    return work;
}

/* ------------------------------------------------------------------ the message */

static bool posted_fits(const Messages *messages, const Way *way, const RequestState *request, const Frame *frame)
{
    unsigned wanted = request->dtype == messages->raw ? 0 : request->dtype;
    bool comes_along = frame->length <= (uint64_t)way->rings->eager_nbytes && frame->length <= frame->room;
    return frame->length <= (uint64_t)PyArray_NBYTES((PyArrayObject *)request->array) && (wanted == 0 || frame->marks >> 32 == wanted) &&
           (comes_along || rings_kind_of(frame) == OFFER);
}

void messages_strand(Messages *messages, RequestState *request)
{
    if (request->done)
        return;
    PyObject *error = arguments_raised(), *told = PyObject_CallOneArg(messages->strand, (PyObject *)request);
    Py_XDECREF(told);
    arguments_raise(error);
}

bool messages_end(Messages *messages, RequestState *request, PyObject *source)
{
    ProgressState *progress = messages->progress;
    Py_XSETREF(request->source, Py_NewRef(source));
    if ((!request->watched || !lock_is_held(messages->lock)) && state_is_none(request->promise) && progress->followers == 0) {
        if (request->watched && !request->done)
            progress->pending--;
        request->done = true;
        return true;
    }
    PyObject *told = PyObject_CallFunctionObjArgs(messages->met, request, source, NULL);
    if (told == NULL)
        messages_strand(messages, request);
    Py_XDECREF(told);
    return told != NULL;
}

/* Give a frame to the request that it meets, if it does. */
static RequestState *posted_fill(Messages *messages, const Way *way, const Frame *frame)
{
    int peer = (int)(way - messages->ways);
    unsigned tag = (unsigned)(frame->first >> 32);
    bool is_offer = frame->first == (rings_frame_word(OFFER, tag) | READABLE) && frame->address != 0 && way->pid > 0;
    RequestState *request = is_offer || frame->first == rings_frame_word(MESSAGE, tag) ? messages_first_posted(messages, tag, peer) : NULL;
    if (request == NULL || !posted_fits(messages, way, request, frame))
        return NULL;
    Py_INCREF(request);
    if (!messages_leave(messages, tag, peer, request)) {
        Py_DECREF(request);
        return NULL;
    }
    if (!is_offer)
        memcpy(PyArray_DATA((PyArrayObject *)request->array), frame->payload, frame->length);
    rings_advance(way->rings, is_offer ? 0 : frame->length);
    request->nbytes = frame->length;
    return request;
}

bool messages_meet_posted(Messages *messages, const Way *way, const Frame *frame)
{
    if (PyDict_GET_SIZE(messages->receives) == 0 && messages->fresh == NULL)
        return false;
    Way *met = &messages->ways[way - messages->ways];
    Frame taken = *frame;
    int collects = PyGC_Disable();
    RequestState *request = posted_fill(messages, way, frame);
    if (collects)
        PyGC_Enable();
    if (request == NULL)
        return false;
    if (rings_kind_of(&taken) == OFFER)
        messages_read_posted(messages, met, request, taken);
    else if (messages_end(messages, request, request->peer))
        messages_count(messages, met, taken.length);
    Py_DECREF(request);
    return true;
}

/* Take in what has come by the way of a request; true while it makes sense to look for more. */
static bool posted_goes_on(Messages *messages, const Way *way, const RequestState *request)
{
    Frame frame;
    return messages_sound(messages, way) && !messages_has_frame(messages, way, &frame) && !PyErr_Occurred() && !request->done;
}

/* Look for the message of a request that is the first in its line. */
static bool posted_look(Messages *messages, Way *way, RequestState *request)
{
    Letter letter = {.first = way, .end = way + 1, .way = way, .peer = (int)(way - messages->ways), .tag = (unsigned)request->tag};
    int64_t waited_ns = messages->patience.waited_ns;
    bool seated = false, come;
    int looks = 0;
    do
        come = messages_look(messages, &letter, &seated);
    while (come && !request->done && posted_goes_on(messages, way, request) && ++looks < MOST_LOOKS); /* it was credit */
    if (messages->patience.waited_ns > waited_ns)
        trail_waited_message(messages->trail, messages->patience.waited_ns - waited_ns);
    bool well = !seated || messages_stand_up(messages);
    messages->in_vain = !come;
    return well && !PyErr_Occurred();
}

/* Whether what comes next may end a request: the message of a receive that is the first in its line, or the receipt of a
   message that was sent. */
static bool posted_is_next(Messages *messages, RequestState *request, int peer)
{
    return request->array == NULL || messages_first_posted(messages, (unsigned)request->tag, peer) == request;
}

bool messages_take_posted(Messages *messages, RequestState *request, bool waits)
{
    long peer = request->by == (PyObject *)messages ? PyLong_AsLong(request->peer) : -1;
    if (request->done || peer < 0 || peer >= messages->size || messages->progress->owner != 0)
        return request->done && !PyErr_Occurred();
    Way *way = &messages->ways[peer];
    bool looked = request->looked;
    request->looked = false;
    if (!waits || looked)
        return posted_goes_on(messages, way, request) ? false : request->done && !PyErr_Occurred();
    if (posted_goes_on(messages, way, request) && posted_is_next(messages, request, (int)peer) && !posted_look(messages, way, request))
        return false;
    return request->done && !PyErr_Occurred();
}

PyObject *messages_py_take(Messages *messages, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !Py_IS_TYPE(args[0], messages->request_type)) {
        PyErr_SetString(PyExc_TypeError, "take(request, waits)");
        return NULL;
    }
    bool taken = messages_take_posted(messages, (RequestState *)args[0], args[1] == Py_True);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(taken);
}

PyObject *messages_py_woken(Messages *messages, PyObject *slept_ns)
{
    int64_t ns = PyLong_AsLongLong(slept_ns);
    if (ns == -1 && PyErr_Occurred())
        return NULL;
    if (messages->in_vain)
        patience_learn(&messages->patience, ns);
    messages->in_vain = false;
    Py_RETURN_NONE;
}
