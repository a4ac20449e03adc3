/* Receives that are posted before their messages come. Each is a request of Python's engine and stands in its line there, so
   that the engine serves it as any other; only the one who posts it, and the one who waits for it, are compiled.

   The engine's lock guards the lines too: see messages.c for what takes its place. The collector of garbage, which may run
   Python's code and with it other threads wherever memory is taken, waits while a line and a ring must stay as they are. */
#include "messages.h"
#include "arguments.h"
#include <string.h>

/* A line is no longer here, since C finds the first of many slowly; then the engine takes in the messages. */
enum { MOST_POSTED = 32 };
/* What is longer is read by the engine, which handles signals meanwhile. */
enum { MOST_READ_NBYTES = 64 << 20 };

/* ------------------------------------------------------------------ the line that a receive stands in */

/* The key of a line, which most programs ask for again; borrowed. NULL with an exception set. */
static PyObject *posted_key(Messages *messages, unsigned tag, int peer)
{
    Way *way = &messages->ways[peer];
    if (way->key == NULL || way->key_tag != tag) {
        Py_XSETREF(way->key, Py_BuildValue("(Ii)", tag, peer));
        way->key_tag = tag;
    }
    return way->key;
}

/* A line without anything, which is the last that has become so if there is one. */
static PyObject *posted_line(Messages *messages)
{
    PyObject *line = messages->spare;
    messages->spare = NULL;
    return line != NULL ? line : PyODict_New();
}

/* Put a request at the end of its line; false if that is long, or with an exception set. */
static bool posted_enter(Messages *messages, unsigned tag, int peer, RequestState *request)
{
    PyObject *key = posted_key(messages, tag, peer), *line = key == NULL ? NULL : PyDict_GetItemWithError(messages->receives, key);
    bool made = line == NULL && !PyErr_Occurred();
    if (made && ((line = posted_line(messages)) == NULL || PyDict_SetItem(messages->receives, key, line) < 0))
        Py_CLEAR(line);
    bool has_room = line != NULL && PyDict_GET_SIZE(line) < MOST_POSTED;
    PyObject *number = has_room ? PyIter_Next(messages->numbers) : NULL, *name = PyLong_FromVoidPtr(request);
    PyObject *place = number == NULL ? NULL : PyTuple_Pack(2, number, request);
    bool entered = place != NULL && name != NULL && PyODict_SetItem(line, name, place) == 0;
    if (made && line != NULL) {
        if (!entered)
            PyDict_DelItem(messages->receives, key);
        Py_DECREF(line);
    }
    Py_XDECREF(number);
    Py_XDECREF(name);
    Py_XDECREF(place);
    return entered;
}

/* The first in the line of a tag and a rank, if it was posted here and no receive from anyone may be before it; borrowed. An
   exception may be set. */
static RequestState *posted_first(Messages *messages, unsigned tag, int peer)
{
    PyObject *name, *place, *key, *line;
    Py_ssize_t at = 0;
    if (messages_has_key(messages->receives, Py_BuildValue("(IO)", tag, Py_None)))
        return NULL;
    if ((key = posted_key(messages, tag, peer)) == NULL)
        return NULL;
    line = PyDict_GetItemWithError(messages->receives, key);
    if (line == NULL || !PyODict_Check(line) || PyDict_GET_SIZE(line) > MOST_POSTED || !PyDict_Next(line, &at, &name, &place) || !PyTuple_Check(place) || PyTuple_GET_SIZE(place) != 2)
        return NULL;
    RequestState *request = (RequestState *)PyTuple_GET_ITEM(place, 1);
    return Py_IS_TYPE(request, messages->request_type) && request->by == (PyObject *)messages ? request : NULL;
}

/* Take the first out of its line; false with an exception set. */
static bool posted_leave(Messages *messages, unsigned tag, int peer, RequestState *request)
{
    PyObject *key = posted_key(messages, tag, peer), *name = PyLong_FromVoidPtr(request);
    PyObject *line = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(messages->receives, key));
    bool left = line != NULL && name != NULL && PyODict_DelItem(line, name) == 0;
    if (left && PyDict_GET_SIZE(line) == 0) {
        left = PyDict_DelItem(messages->receives, key) == 0;
        if (left && messages->spare == NULL && Py_REFCNT(line) == 1)
            messages->spare = Py_NewRef(line);
    }
    Py_XDECREF(line);
    Py_XDECREF(name);
    return left;
}

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
           (PyDict_GET_SIZE(messages->arrivals) == 0 || !messages_has_key(messages->arrivals, PyLong_FromUnsignedLong(letter->tag)));
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
    request->tag = letter->tag;
    request->dtype = letter->mark;
    if (request->peer == NULL || !posted_enter(messages, letter->tag, letter->peer, request))
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
    Py_XDECREF(told);
    return told != NULL;
}

/* Give a frame to the request that it meets, if it does. */
static RequestState *posted_fill(Messages *messages, const Way *way, const Frame *frame)
{
    int peer = (int)(way - messages->ways);
    unsigned tag = (unsigned)(frame->first >> 32);
    bool is_offer = frame->first == (rings_frame_word(OFFER, tag) | READABLE) && frame->address != 0 && way->pid > 0;
    RequestState *request = is_offer || frame->first == rings_frame_word(MESSAGE, tag) ? posted_first(messages, tag, peer) : NULL;
    if (request == NULL || !posted_fits(messages, way, request, frame))
        return NULL;
    Py_INCREF(request);
    if (!posted_leave(messages, tag, peer, request)) {
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
    if (PyDict_GET_SIZE(messages->receives) == 0)
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
    return request->array == NULL || posted_first(messages, (unsigned)request->tag, peer) == request;
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
