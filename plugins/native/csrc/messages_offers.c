/* Messages that are only offered: the receiver reads the sender's memory, and answers with a receipt. The engine knows every
   offer, so that it can end each as any other; here one rank writes the offer, and the other reads the memory. */
#include "messages.h"
#include "arguments.h"
#include <sys/uio.h>

/* How much is read at a time, and for how long before somebody else must have a say. */
enum { READ_AT_ONCE_NBYTES = 4 << 20 };
static const int64_t READ_NS = 5000000;

static uint32_t offers_ident_of(const Frame *frame)
{
    return (uint32_t)frame->marks;
}

/* ------------------------------------------------------------------ the sender */

/* Offer a message, and return its request, which has ended if nobody can take it; NULL with an exception set. */
static RequestState *offers_make(Messages *messages, const Letter *letter, unsigned long long *ident)
{
    PyObject *made = PyObject_CallFunction(messages->register_offer, "OiII", letter->array, letter->peer, letter->tag, letter->mark), *request = NULL;
    if (made != NULL && PyArg_ParseTuple(made, "O!K", messages->request_type, &request, ident))
        Py_INCREF(request);
    Py_XDECREF(made);
    if (request == NULL || *ident == 0)
        return (RequestState *)request;
    Frame frame = {.first = rings_frame_word(OFFER, letter->tag) | READABLE, .length = letter->nbytes,
                   .marks = *ident | (uint64_t)letter->mark << 32, .address = (uint64_t)(uintptr_t)PyArray_DATA(letter->array)};
    if (messages_may_send(messages, letter->way) && rings_write(letter->way->rings, frame, NULL, 0)) {
        rings_wake(letter->way->rings);
    } else {
        PyObject *offered = PyObject_CallFunction(messages->offer, "OKi", request, *ident, letter->peer);
        if (offered == NULL)
            Py_CLEAR(request);
        Py_XDECREF(offered);
    }
    return (RequestState *)request;
}

/* Take the request that a receipt is for out of those that are offered. It is owned; NULL if it is for none, or if `here` is
   asked for and compiled code does not end it. */
static RequestState *offers_take(Messages *messages, const Way *way, const Frame *frame, bool here)
{
    int collects = PyGC_Disable(); /* the ring and the offers must stay as they are */
    PyObject *key = Py_BuildValue("(iK)", (int)(way - messages->ways), (unsigned long long)offers_ident_of(frame));
    RequestState *request = key == NULL ? NULL : (RequestState *)PyDict_GetItemWithError(messages->offered, key);
    if (request != NULL && here && (!Py_IS_TYPE(request, messages->request_type) || request->by != (PyObject *)messages))
        request = NULL;
    Py_XINCREF(request);
    if (request != NULL && PyDict_DelItem(messages->offered, key) < 0)
        Py_CLEAR(request);
    if (request != NULL)
        rings_advance(way->rings, 0);
    Py_XDECREF(key);
    if (collects)
        PyGC_Enable();
    return request;
}

bool messages_meet_offered(Messages *messages, const Way *way, const Frame *frame)
{
    RequestState *request = rings_kind_of(frame) == RECEIPT ? offers_take(messages, way, frame, true) : NULL;
    if (request == NULL)
        return false;
    messages_end(messages, request, Py_None);
    Py_DECREF(request);
    return true;
}

/* Look for the receipt for about as long as reading takes. */
static bool offers_await_receipt(Messages *messages, const Letter *letter)
{
    Rings *rings = letter->way->rings;
    int64_t until = native_monotonic_ns() + (int64_t)(letter->nbytes < READ_NS ? letter->nbytes : READ_NS);
    bool come;
    if (messages->patience.may_spin && rings_share_processor(rings))
        return false;
    rings_enter(rings);
    Py_BEGIN_ALLOW_THREADS
    do
        come = patience_look(&messages->patience, messages_has_news, rings, false);
    while (!come && messages->patience.may_spin && native_monotonic_ns() < until);
    Py_END_ALLOW_THREADS
    rings_leave(rings);
    return come;
}

/* Whether a receipt for this offer is the next frame. */
static bool offers_take_receipt(Messages *messages, const Letter *letter, unsigned long long ident)
{
    Frame frame;
    if (!messages_has_frame(messages, letter->way, &frame) || rings_kind_of(&frame) != RECEIPT || offers_ident_of(&frame) != ident)
        return false;
    RequestState *request = offers_take(messages, letter->way, &frame, false);
    PyErr_Clear();
    Py_XDECREF(request);
    return request != NULL;
}

bool messages_send_offer(Messages *messages, Letter *letter)
{
    unsigned long long ident = 0;
    messages_begin_noting(messages, letter, text_send, 0);
    RequestState *request = offers_make(messages, letter, &ident);
    if (request != NULL && ident != 0 && offers_await_receipt(messages, letter) && messages_sound(messages, letter->way) &&
        offers_take_receipt(messages, letter, ident)) {
        Py_DECREF(request);
        return true;
    }
    return messages_finish(messages, (PyObject *)request, "send to", letter);
}

PyObject *messages_begin_offer(Messages *messages, const Letter *letter, PyObject *const *args)
{
    Letter offered = *letter;
    unsigned long long ident = 0;
    RequestState *request = offers_make(messages, letter, &ident);
    if (request == NULL || !messages_leave_alone(messages, request)) {
        Py_XDECREF(request);
        return NULL;
    }
    Py_XSETREF(request->by, Py_NewRef(messages));
    messages_begin_noting(messages, &offered, text_isend, 0);
    PyObject *ticket = trail_release_message(messages->trail, offered.serial);
    messages_list(messages, request, Py_XNewRef(ticket));
    PyObject *work = messages_work(messages, letter, args, request, ticket);
    Py_DECREF(request);
    return work;
}

/* ------------------------------------------------------------------ the receiver */

/* Copy from the sender's memory without the interpreter, for a while; how much of it has been copied so far, or -1. */
static ssize_t offers_read_on(const Letter *letter, uint64_t address, size_t length, size_t done)
{
    unsigned char *data = PyArray_DATA(letter->array);
    int64_t until = native_monotonic_ns() + READ_NS;
    do {
        size_t now = length - done < READ_AT_ONCE_NBYTES ? length - done : READ_AT_ONCE_NBYTES;
        struct iovec here = {data + done, now}, there = {(void *)(uintptr_t)(address + done), now};
        if (process_vm_readv(letter->way->pid, &here, 1, &there, 1, 0) != (ssize_t)now)
            return -1;
        done += now;
    } while (done < length && native_monotonic_ns() < until);
    return (ssize_t)done;
}

/* Tell the sender that its message has been read. */
static bool offers_answer(Messages *messages, const Letter *letter, uint32_t ident)
{
    Rings *rings = letter->way->rings;
    if (messages_sound(messages, letter->way) && messages_is_idle(letter->way) && rings_write(rings, (Frame){.first = RECEIPT, .marks = ident}, NULL, 0)) {
        rings_wake(rings);
        return true;
    }
    PyErr_Clear();
    PyObject *done = PyObject_CallFunction(messages->answer, "ik", letter->peer, (unsigned long)ident);
    Py_XDECREF(done);
    return done != NULL;
}

/* Let Python count what was copied, and tell the sender. */
static bool offers_end_reading(Messages *messages, const Letter *letter, const Frame *offer)
{
    PyObject *counted = PyObject_CallFunction(messages->copied, "n", (Py_ssize_t)offer->length);
    Py_XDECREF(counted);
    return counted != NULL && offers_answer(messages, letter, offers_ident_of(offer));
}

Taken messages_take_offer(Messages *messages, Letter *letter, Frame offer)
{
    ssize_t done = 0;
    rings_advance(letter->way->rings, 0);
    while (done >= 0 && (uint64_t)done < offer.length) {
        Py_BEGIN_ALLOW_THREADS
        done = offers_read_on(letter, offer.address, (size_t)offer.length, (size_t)done);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return FAILED;
        if (messages_has_failed(messages))
            return NOTHING; /* the slow path raises what all ranks raise */
    }
    if (done >= 0)
        return offers_end_reading(messages, letter, &offer) ? TAKEN : FAILED;
    PyObject *rest = PyObject_CallFunction(messages->ask_for, "OiI(KkK)", letter->array, letter->peer, letter->tag, (unsigned long long)offer.length,
                                           (unsigned long)offers_ident_of(&offer), (unsigned long long)(offer.marks >> 32));
    return messages_finish(messages, rest, "recv from", letter) ? TAKEN : FAILED;
}

void messages_read_posted(Messages *messages, Way *way, RequestState *request, Frame offer)
{
    Letter letter = {.array = (PyArrayObject *)request->array, .way = way, .peer = (int)(way - messages->ways)};
    ssize_t done = 0;
    while (done >= 0 && (uint64_t)done < offer.length && !messages_has_failed(messages)) { /* a signal ends no request */
        Py_BEGIN_ALLOW_THREADS
        done = offers_read_on(&letter, offer.address, (size_t)offer.length, (size_t)done);
        Py_END_ALLOW_THREADS
    }
    if (request->done) /* it has been given up meanwhile */
        return;
    if (done >= 0 && !messages_has_failed(messages)) {
        request->nbytes = offer.length;
        if (offers_end_reading(messages, &letter, &offer))
            messages_end(messages, request, request->peer);
        return;
    }
    PyObject *asked = PyObject_CallFunction(messages->ask_on, "Oi(KkK)", request, letter.peer, (unsigned long long)offer.length,
                                            (unsigned long)offers_ident_of(&offer), (unsigned long long)(offer.marks >> 32));
    Py_XDECREF(asked);
}
