/* Messages that are only offered: the receiver reads the sender's memory, and answers with a receipt. The engine knows every
   offer, so that it can end each as any other; here one rank writes the offer, and the other reads the memory. A sender that
   waits for the receipt copies as well, as long as pieces are left: two processors copy up to twice as fast as one. */
#include "messages.h"
#include "arguments.h"
#include "copies.h"
#include <sched.h>

/* For how long a rank copies before somebody else must have a say. */
static const int64_t COPY_NS = 5000000;
/* How often a receiver looks for the sender's last piece before it lets others have the processor. */
enum { BRIEF_LOOKS = 1000 };

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

/* An offer that its sender waits for. */
typedef struct {
    const Letter *letter;
    uint32_t ident;
    bool copies; /* whether this rank has copied some of it since it looked last */
} Offered;

/* Whether anything is to be done: the receipt has come, or something else; or the receiver has begun to copy. */
static bool offers_has_news(void *what)
{
    const Offered *offered = what;
    const Rings *rings = offered->letter->way->rings;
    return rings_have_news(rings) || joint_has_left(rings_joint(rings, false), offered->ident);
}

/* Copy pieces until none is left, or somebody else must have a say. */
static void offers_copy(Offered *offered, int64_t until)
{
    const Letter *letter = offered->letter;
    Joint *joint = rings_joint(letter->way->rings, false);
    while (native_monotonic_ns() < until && copies_write_first(joint, offered->ident, letter->way->pid, PyArray_DATA(letter->array), letter->nbytes) != NONE_LEFT)
        offered->copies = true;
}

/* Look for the receipt for about as long as reading takes, and copy meanwhile. */
static bool offers_await_receipt(Messages *messages, Offered *offered)
{
    const Letter *letter = offered->letter;
    Rings *rings = letter->way->rings;
    int64_t until = native_monotonic_ns() + (int64_t)(letter->nbytes < COPY_NS ? letter->nbytes : COPY_NS);
    bool come;
    offered->copies = false;
    if (messages->patience.may_spin && rings_share_processor(rings))
        return false;
    rings_enter(rings);
    Py_BEGIN_ALLOW_THREADS
    do {
        patience_look(&messages->patience, offers_has_news, offered, false);
        offers_copy(offered, until);
        come = rings_have_news(rings);
    } while (!come && (messages->patience.may_spin || messages->patience.resigned == 0) && native_monotonic_ns() < until);
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

/* Wait for the receipt as long as it makes sense here; whether it has come. An exception may be set. */
static bool offers_met(Messages *messages, const Letter *letter, unsigned long long ident)
{
    Offered offered = {.letter = letter, .ident = (uint32_t)ident};
    do {
        if (offers_await_receipt(messages, &offered))
            return messages_sound(messages, letter->way) && offers_take_receipt(messages, letter, ident);
    } while (offered.copies && messages_sound(messages, letter->way) && PyErr_CheckSignals() == 0);
    return false;
}

bool messages_send_offer(Messages *messages, Letter *letter)
{
    unsigned long long ident = 0;
    messages_begin_noting(messages, letter, text_send, 0);
    RequestState *request = offers_make(messages, letter, &ident);
    bool met = request != NULL && ident != 0 && offers_met(messages, letter, ident);
    if (met || PyErr_Occurred()) {
        Py_XDECREF(request);
        return met;
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

/* A message that is being copied out of its sender's memory. */
typedef struct {
    PyArrayObject *array;
    Way *way;
    uint64_t from, nbytes;
    Joint *joint; /* that of the ring, or `alone` if another copy has it */
    Joint alone;
} Reading;

/* What an attempt to go on with it has come to. */
typedef enum { UNREADABLE, HALF_READ, READ } Read;

static void offers_begin_reading(Reading *reading, const Frame *offer)
{
    Way *way = reading->way;
    bool together = !way->joint;
    reading->from = offer->address;
    reading->nbytes = offer->length;
    reading->joint = together ? rings_joint(way->rings, true) : &reading->alone;
    way->joint |= together;
    rings_enter(way->rings);
    Py_INCREF(reading->array);
    joint_open(reading->joint, together ? offers_ident_of(offer) : 0, offer->length, PyArray_DATA(reading->array));
}

/* Let the sender take no more. If it stands still in the midst of a piece it may go on at any time, so that the array has to
   stay for ever; and a copy that came later could not know whose piece ends. */
static void offers_leave_reading(Reading *reading)
{
    joint_shut(reading->joint);
    bool ends = !joint_is_written_to(reading->joint);
    if (ends)
        Py_DECREF(reading->array);
    if (reading->joint != &reading->alone)
        reading->way->joint = !ends;
    rings_leave(reading->way->rings);
}

/* Wait for the piece that the sender is writing; or read it too if that one could not. */
static Read offers_await_piece(const Reading *reading, int64_t until)
{
    for (unsigned n = 1; joint_is_written_to(reading->joint); n++) {
        if (n < BRIEF_LOOKS)
            RELAX();
        else if (native_monotonic_ns() < until)
            sched_yield();
        else
            return HALF_READ; /* whoever looks after the sender tells that it has died */
    }
    int64_t missing = joint_not_written(reading->joint);
    return missing < 0 || copies_read_piece(reading->way->pid, reading->from, PyArray_DATA(reading->array), reading->nbytes, (uint64_t)missing) ? READ : UNREADABLE;
}

/* Copy from the sender's memory without the interpreter, for a while. */
static Read offers_read_on(const Reading *reading)
{
    int64_t until = native_monotonic_ns() + COPY_NS;
    Copied copied;
    while ((copied = copies_read_last(reading->joint, reading->way->pid, reading->from, PyArray_DATA(reading->array), reading->nbytes)) == COPIED)
        if (native_monotonic_ns() >= until)
            return HALF_READ;
    return copied == REFUSED ? UNREADABLE : offers_await_piece(reading, until);
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

/* Read all of an offered message as long as it makes sense; if signals are `heard` one of them may end it, with an exception. */
static Read offers_read(Messages *messages, PyArrayObject *array, Way *way, const Frame *offer, bool heard)
{
    Reading reading = {.array = array, .way = way};
    Read come;
    offers_begin_reading(&reading, offer);
    do {
        Py_BEGIN_ALLOW_THREADS
        come = offers_read_on(&reading);
        Py_END_ALLOW_THREADS
    } while (come == HALF_READ && (!heard || PyErr_CheckSignals() == 0) && !messages_has_failed(messages));
    offers_leave_reading(&reading);
    return come;
}

Taken messages_take_offer(Messages *messages, Letter *letter, Frame offer)
{
    rings_advance(letter->way->rings, 0);
    Read come = offers_read(messages, letter->array, letter->way, &offer, true);
    if (PyErr_Occurred())
        return FAILED;
    if (messages_has_failed(messages))
        return NOTHING; /* the slow path raises what all ranks raise */
    if (come == READ)
        return offers_end_reading(messages, letter, &offer) ? TAKEN : FAILED;
    PyObject *rest = PyObject_CallFunction(messages->ask_for, "OiI(KkK)", letter->array, letter->peer, letter->tag, (unsigned long long)offer.length,
                                           (unsigned long)offers_ident_of(&offer), (unsigned long long)(offer.marks >> 32));
    return messages_finish(messages, rest, "recv from", letter) ? TAKEN : FAILED;
}

void messages_read_posted(Messages *messages, Way *way, RequestState *request, Frame offer)
{
    Letter letter = {.array = (PyArrayObject *)request->array, .way = way, .peer = (int)(way - messages->ways)};
    Read come = offers_read(messages, letter.array, way, &offer, false); /* a signal ends no request */
    if (request->done) /* it has been given up meanwhile */
        return;
    if (come == READ && !messages_has_failed(messages)) {
        request->nbytes = offer.length;
        PyObject *error = offers_end_reading(messages, &letter, &offer) ? NULL : arguments_raised();
        messages_end(messages, request, request->peer); /* its message is here, whatever has come to the receipt */
        arguments_raise(error);
        return;
    }
    PyObject *asked = PyObject_CallFunction(messages->ask_on, "Oi(KkK)", request, letter.peer, (unsigned long long)offer.length,
                                            (unsigned long)offers_ident_of(&offer), (unsigned long long)(offer.marks >> 32));
    if (asked == NULL)
        messages_strand(messages, request);
    Py_XDECREF(asked);
}
