/* The shortcuts for messages between ranks that share memory: straight from the program's array into the ring and from
   there into the other program's array. Whatever is out of the ordinary is left to Python's engine: another message that
   comes first, a receive that waits already, a peer that leaves, anything that takes long.

   The engine's lock guards all that is looked at here. Python's objects do not change while this holds the interpreter,
   so a look at whether anybody has the lock takes its place; who lets the interpreter go takes the lock, or the seat. */
#include "arguments.h"
#include "fields.h"
#include "recorder.h"
#include "rings.h"
#include <string.h>
#include <sys/uio.h>

enum { MOST_PEERS = 64, MARKED_TYPES = 25, BFLOAT16 = MARKED_TYPES - 1 };
/* Long messages pass in pieces, so that the receiver reads while the sender writes; and no more than this at a time, so
   that they stay in the caches. */
enum { PIECE_NBYTES = 32 << 10, UNREAD_NBYTES = 512 << 10 };
/* Where ranks share processors the receiver had better read the sender's memory from here on, if it may; and so much at a
   time. Where each has its own, one that writes and one that reads are faster while these are near each other; from the
   second length on they are no faster even then. */
enum { READ_FROM_NBYTES = 128 << 10, READ_ALWAYS_NBYTES = 8 << 20, READ_AT_ONCE_NBYTES = 4 << 20 };
/* How much is received before Python hears of it, which gives credit for it. */
enum { TOLD_NBYTES = 256 << 10 };
/* After so long somebody else must have a say. */
static const int64_t LOOK_NS = 5000000;

typedef struct {
    Rings *rings; /* NULL for a rank without any */
    PyObject *pipe, *peer, *window;
    long name;    /* its global rank */
    pid_t pid;    /* its process, if that one's memory may be read; else 0 */
    uint64_t due; /* what was received and Python has not heard of */
} Way;

typedef struct {
    PyObject_HEAD
    Trail *trail;
    PyObject *comm, *engine, *fate, *seat, *deferred, *arrivals, *receives, *fetching;
    PyObject *mark, *locked, *lock, *release, *settle;            /* of theirs */
    PyObject *register_offer, *offer, *offered, *ask_for, *answer; /* of the engine's offers */
    PyObject *go_on_sending, *go_on_receiving, *finish, *receive, *taken; /* what is left to Python */
    int size;
    unsigned most_tag, raw;
    uint64_t window_nbytes, message_nbytes;
    Patience patience;
    Field failure, failing, leaving, holder, callers; /* of the communicator, fate, engine and seat */
    Field connection, gone, queue, rest, unconfirmed; /* of peers, pipes and windows */
    unsigned marks[MARKED_TYPES]; /* of the dtypes, by NumPy's numbers; 0 for those not yet asked for */
    Way ways[MOST_PEERS];
} Messages;

/* One message. */
typedef struct {
    PyArrayObject *array;
    Way *way;
    int peer;
    unsigned tag, mark;
    size_t nbytes;
    uint64_t serial;   /* of its entry in the recorder; 0 for none */
    int64_t waited_ns; /* how long all messages before it have waited */
} Letter;

static PyObject *text_send, *text_recv, *text_release, *text_moved;

/* ------------------------------------------------------------------ arguments */

static bool mark_of(Messages *messages, PyArrayObject *array, unsigned *mark)
{
    int kind = kind_of(array), place = kind == BF16 ? BFLOAT16 : PyArray_TYPE(array);
    if (kind < 0 || place >= MARKED_TYPES)
        return false;
    if (messages->marks[place] == 0) {
        PyObject *told = PyObject_CallOneArg(messages->mark, (PyObject *)PyArray_DESCR(array));
        messages->marks[place] = told == NULL ? 0 : (unsigned)PyLong_AsUnsignedLong(told);
        Py_XDECREF(told);
    }
    *mark = messages->marks[place];
    return *mark != 0;
}

/* Say that nothing was done; but an interrupt is an interrupt. */
static PyObject *declined(PyObject *nothing)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return NULL;
    PyErr_Clear();
    return Py_NewRef(nothing);
}

static bool take_arguments(Messages *messages, Letter *letter, PyObject *const *args, Py_ssize_t count, bool written)
{
    if (count != 3 || !PyLong_CheckExact(args[1]) || !PyLong_CheckExact(args[2]))
        return false;
    long peer = PyLong_AsLong(args[1]), tag = PyLong_AsLong(args[2]);
    letter->array = plain(args[0], written);
    if (letter->array == NULL || tag < 0 || tag > (long)messages->most_tag || !mark_of(messages, letter->array, &letter->mark))
        return false;
    letter->tag = (unsigned)tag;
    letter->serial = 0;
    letter->waited_ns = messages->patience.waited_ns;
    letter->nbytes = (size_t)PyArray_NBYTES(letter->array);
    /* Most groups have all ranks, where each has its own place. */
    int at = peer >= 0 && peer < messages->size && messages->ways[peer].name == peer ? (int)peer : 0;
    while (at < messages->size && messages->ways[at].name != peer)
        at++;
    letter->peer = at;
    letter->way = &messages->ways[at];
    return at < messages->size && letter->way->rings != NULL;
}

/* ------------------------------------------------------------------ whether nothing is in the way */

static bool is_free(const Messages *messages)
{
    PyObject *locked = PyObject_CallNoArgs(messages->locked);
    Py_XDECREF(locked);
    return locked == Py_False;
}

static bool has_failed(const Messages *messages)
{
    return look_at(messages->comm, messages->failure) != Py_None || look_at(messages->fate, messages->failing) != Py_False;
}

static bool sound(const Messages *messages, const Way *way)
{
    return way->rings->out != NULL && !way->rings->closing && !has_failed(messages) &&
           look_at(messages->engine, messages->leaving) == Py_False && look_at(way->peer, messages->connection) == way->pipe &&
           is_free(messages);
}

/* Whether nothing is before what is written now. */
static bool is_idle(const Messages *messages, const Way *way)
{
    return look_at(way->pipe, messages->rest) == Py_None && PyObject_Size(look_at(way->pipe, messages->queue)) == 0;
}

static bool may_send(const Messages *messages, const Way *way)
{
    return sound(messages, way) && is_idle(messages, way) && look_at(way->peer, messages->gone) == Py_None;
}

/* Whether a message with this tag, or a receive that it would meet, waits already. */
static bool is_awaited(const Messages *messages, const Letter *letter)
{
    if (PyDict_GET_SIZE(messages->arrivals) == 0 && PyDict_GET_SIZE(messages->receives) == 0)
        return false;
    PyObject *tag = PyLong_FromUnsignedLong(letter->tag), *own = Py_BuildValue("(Ii)", letter->tag, letter->peer);
    PyObject *anyones = Py_BuildValue("(IO)", letter->tag, Py_None);
    bool found = tag == NULL || own == NULL || anyones == NULL || PyDict_Contains(messages->arrivals, tag) != 0 ||
                 PyDict_Contains(messages->receives, own) != 0 || PyDict_Contains(messages->receives, anyones) != 0;
    Py_XDECREF(tag);
    Py_XDECREF(own);
    Py_XDECREF(anyones);
    return found;
}

static bool may_receive(const Messages *messages, const Letter *letter)
{
    bool empty = PyObject_Not(look_at(messages->seat, messages->holder)) == 1;
    return empty && sound(messages, letter->way) && !is_awaited(messages, letter);
}

/* ------------------------------------------------------------------ flow control */

static bool unconfirmed(const Messages *messages, const Way *way, uint64_t *nbytes)
{
    *nbytes = PyLong_AsUnsignedLongLong(look_at(way->window, messages->unconfirmed));
    return !PyErr_Occurred();
}

static bool set_unconfirmed(const Messages *messages, const Way *way, uint64_t nbytes)
{
    PyObject *made = PyLong_FromUnsignedLongLong(nbytes);
    if (made != NULL)
        put_into(way->window, messages->unconfirmed, made);
    return made != NULL;
}

/* Count a message against the peer's window, of which so much was used before. */
static bool spend(const Messages *messages, const Letter *letter, uint64_t before)
{
    return set_unconfirmed(messages, letter->way, before + letter->nbytes + messages->message_nbytes);
}

/* Count what was received; Python gives credit for it. */
static bool count_received(Messages *messages, const Letter *letter, uint64_t nbytes)
{
    Way *way = letter->way;
    way->due += nbytes + messages->message_nbytes;
    if (way->due < TOLD_NBYTES)
        return true;
    uint64_t due = way->due - messages->message_nbytes;
    way->due = 0;
    PyObject *told = PyObject_CallFunction(messages->taken, "iK", letter->peer, (unsigned long long)due);
    Py_XDECREF(told);
    return told != NULL;
}

/* Count what was copied from another process's memory, beside what Python has. */
static bool count_copied(Messages *messages, size_t nbytes)
{
    PyObject *before = PyObject_GetAttr(messages->fetching, text_moved), *more = PyLong_FromSize_t(nbytes);
    PyObject *sum = before == NULL || more == NULL ? NULL : PyNumber_Add(before, more);
    bool counted = sum != NULL && PyObject_SetAttr(messages->fetching, text_moved, sum) == 0;
    Py_XDECREF(before);
    Py_XDECREF(more);
    Py_XDECREF(sum);
    return counted;
}

/* ------------------------------------------------------------------ the recorder */

static void begin_noting(Messages *messages, Letter *letter, PyObject *op)
{
    letter->serial = trail_begin_message(messages->trail, op, (PyObject *)PyArray_DESCR(letter->array), (int64_t)letter->nbytes,
                                         letter->way->name, (long)letter->tag, 1);
}

static void end_noting(Messages *messages, const Letter *letter)
{
    trail_end_message(messages->trail, letter->serial, messages->patience.waited_ns - letter->waited_ns);
}

/* An error says so in the recorder too, if the message stands there. */
static void note_error(Messages *messages, const Letter *letter)
{
    if (letter->serial != 0)
        trail_break_message(messages->trail, letter->serial);
}

/* ------------------------------------------------------------------ long messages: without the interpreter */

/* Raise what was kept aside, whatever has come of a call after it; or what that has raised. */
static bool raise_again(PyObject *error, PyObject *done)
{
    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(done);
    return error == NULL && done != NULL;
}

static bool take_lock(Messages *messages)
{
    PyObject *locked = PyObject_CallOneArg(messages->lock, Py_False);
    Py_XDECREF(locked);
    return locked == Py_True;
}

/* Give the lock back, and do what others have left to whoever has it. */
static bool give_lock_back(Messages *messages)
{
    PyObject *error = PyErr_Occurred() ? raised() : NULL; /* nothing is called with an exception set */
    PyObject *done = PyObject_CallNoArgs(messages->release);
    if (done != NULL && PyObject_Size(messages->deferred) != 0)
        Py_SETREF(done, PyObject_CallNoArgs(messages->settle));
    return raise_again(error, done);
}

static bool has_room(void *what)
{
    return rings_unread(what) + PIECE_NBYTES <= UNREAD_NBYTES && rings_fit(what, PIECE_NBYTES);
}

static bool has_news(void *what)
{
    return rings_have_news(what);
}

/* Let Python wait for the rest of a message that has gone half-way; without it an exception is set already. The public
   call gives the group up after an interrupt. */
static bool finish(Messages *messages, PyObject *rest, const char *verb, const Letter *letter)
{
    PyObject *done = rest == NULL ? NULL : PyObject_CallFunction(messages->finish, "Osi", rest, verb, letter->peer);
    Py_XDECREF(rest);
    Py_XDECREF(done);
    return done != NULL;
}

static size_t write_pieces(Messages *messages, const Letter *letter, const unsigned char *data)
{
    Rings *rings = letter->way->rings;
    size_t sent = 0;
    int64_t until = monotonic_ns() + LOOK_NS;
    while (sent < letter->nbytes) {
        size_t now = letter->nbytes - sent < PIECE_NBYTES ? letter->nbytes - sent : PIECE_NBYTES;
        if (has_room(rings) && rings_write(rings, (Frame){.first = PIECE, .length = now}, data + sent, now)) {
            rings_wake(rings);
            sent += now;
        } else if (!patience_look(&messages->patience, has_room, rings, false) || monotonic_ns() > until) {
            break;
        }
    }
    return sent;
}

static size_t read_pieces(Messages *messages, const Letter *letter, unsigned char *data, size_t length)
{
    Rings *rings = letter->way->rings;
    size_t filled = 0;
    int64_t until = monotonic_ns() + LOOK_NS;
    Frame frame;
    while (filled < length) {
        if (!rings_next(rings, &frame)) {
            if (!patience_look(&messages->patience, has_news, rings, false) || monotonic_ns() > until)
                break;
            continue;
        }
        if (kind_of_frame(&frame) != PIECE || frame.length > length - filled || frame.length > frame.room)
            break; /* Python says what is wrong */
        memcpy(data + filled, frame.payload, frame.length);
        filled += frame.length;
        rings_advance(rings, frame.length);
    }
    return filled;
}

static bool send_long(Messages *messages, Letter *letter, Frame header, uint64_t before)
{
    Rings *rings = letter->way->rings;
    unsigned char *data = PyArray_DATA(letter->array);
    size_t sent;
    if (!take_lock(messages))
        return false;
    if (!rings_write(rings, header, NULL, 0)) {
        give_lock_back(messages);
        return false;
    }
    begin_noting(messages, letter, text_send);
    if (!spend(messages, letter, before)) {
        give_lock_back(messages);
        return false;
    }
    rings_enter(rings);
    Py_BEGIN_ALLOW_THREADS
    sent = write_pieces(messages, letter, data);
    Py_END_ALLOW_THREADS
    rings_leave(rings);
    if (sent == letter->nbytes)
        return give_lock_back(messages);
    PyObject *rest = PyObject_CallFunction(messages->go_on_sending, "OiIn", letter->array, letter->peer, letter->tag, (Py_ssize_t)sent);
    if (!give_lock_back(messages))
        Py_CLEAR(rest);
    return finish(messages, rest, "send to", letter);
}

/* Take credit that comes before the message. */
static bool take_credit(const Messages *messages, const Way *way, const Frame *frame)
{
    uint64_t before;
    if (kind_of_frame(frame) != CREDIT || !unconfirmed(messages, way, &before) || frame->length > before ||
        !set_unconfirmed(messages, way, before - frame->length))
        return false;
    rings_advance(way->rings, 0);
    return true;
}

static bool stand_up(Messages *messages)
{
    PyObject *error = PyErr_Occurred() ? raised() : NULL;
    return raise_again(error, PyObject_CallMethodNoArgs(messages->seat, text_release));
}

typedef enum { NOTHING, TAKEN, FAILED } Taken;

/* ------------------------------------------------------------------ offers: the receiver reads the sender's memory */

/* Whether a receipt for this offer is the next frame. */
static bool take_receipt(Messages *messages, const Letter *letter, uint64_t ident)
{
    Rings *rings = letter->way->rings;
    Frame frame;
    do {
        if (!rings_next(rings, &frame))
            return false;
    } while (take_credit(messages, letter->way, &frame));
    if (kind_of_frame(&frame) != RECEIPT || (frame.marks & 0xffffffff) != ident)
        return false;
    PyObject *key = Py_BuildValue("(iK)", letter->peer, (unsigned long long)ident);
    bool known = key != NULL && PyDict_DelItem(messages->offered, key) == 0;
    PyErr_Clear();
    Py_XDECREF(key);
    if (known)
        rings_advance(rings, 0);
    return known;
}

/* Look for the receipt for about as long as reading takes. */
static bool await_receipt(Messages *messages, const Letter *letter)
{
    Rings *rings = letter->way->rings;
    int64_t until = monotonic_ns() + (int64_t)(letter->nbytes < LOOK_NS ? letter->nbytes : LOOK_NS);
    bool come;
    rings_enter(rings);
    Py_BEGIN_ALLOW_THREADS
    do
        come = patience_look(&messages->patience, has_news, rings, false);
    while (!come && messages->patience.may_spin && monotonic_ns() < until);
    Py_END_ALLOW_THREADS
    rings_leave(rings);
    return come;
}

/* Offer a message, and wait until it has been read. */
static bool send_offer(Messages *messages, Letter *letter)
{
    Rings *rings = letter->way->rings;
    unsigned long long ident;
    begin_noting(messages, letter, text_send);
    PyObject *made = PyObject_CallFunction(messages->register_offer, "OiI", letter->array, letter->peer, letter->tag), *request;
    if (made == NULL || !PyArg_ParseTuple(made, "OK", &request, &ident)) {
        Py_XDECREF(made);
        return finish(messages, NULL, "send to", letter);
    }
    Py_INCREF(request);
    Py_DECREF(made);
    Frame frame = {.first = frame_word(OFFER, letter->tag) | READABLE, .length = letter->nbytes,
                   .marks = ident | (uint64_t)letter->mark << 32, .address = (uint64_t)(uintptr_t)PyArray_DATA(letter->array)};
    if (ident == 0)
        return finish(messages, request, "send to", letter);
    if (may_send(messages, letter->way) && rings_write(rings, frame, NULL, 0)) {
        rings_wake(rings);
    } else {
        PyObject *offered = PyObject_CallFunction(messages->offer, "OKi", request, ident, letter->peer);
        if (offered == NULL)
            Py_CLEAR(request);
        Py_XDECREF(offered);
    }
    if (request != NULL && await_receipt(messages, letter) && sound(messages, letter->way) &&
        take_receipt(messages, letter, ident)) {
        Py_DECREF(request);
        return true;
    }
    return finish(messages, request, "send to", letter);
}

/* Copy from the sender's memory without the interpreter, for a while; how much of it has been copied so far, or -1. */
static ssize_t read_on(const Letter *letter, uint64_t address, size_t length, size_t done)
{
    unsigned char *data = PyArray_DATA(letter->array);
    int64_t until = monotonic_ns() + LOOK_NS;
    do {
        size_t now = length - done < READ_AT_ONCE_NBYTES ? length - done : READ_AT_ONCE_NBYTES;
        struct iovec here = {data + done, now}, there = {(void *)(uintptr_t)(address + done), now};
        if (process_vm_readv(letter->way->pid, &here, 1, &there, 1, 0) != (ssize_t)now)
            return -1;
        done += now;
    } while (done < length && monotonic_ns() < until);
    return (ssize_t)done;
}

/* Tell the sender that its message has been read. */
static bool answer(Messages *messages, const Letter *letter, uint64_t ident)
{
    Rings *rings = letter->way->rings;
    if (sound(messages, letter->way) && is_idle(messages, letter->way) && rings_write(rings, (Frame){.first = RECEIPT, .marks = ident}, NULL, 0)) {
        rings_wake(rings);
        return true;
    }
    PyErr_Clear();
    PyObject *done = PyObject_CallFunction(messages->answer, "iK", letter->peer, (unsigned long long)ident);
    Py_XDECREF(done);
    return done != NULL;
}

static Taken take_offer(Messages *messages, Letter *letter, Frame offer)
{
    size_t length = (size_t)offer.length;
    ssize_t done = 0;
    rings_advance(letter->way->rings, 0);
    while (done >= 0 && (size_t)done < length) {
        Py_BEGIN_ALLOW_THREADS
        done = read_on(letter, offer.address, length, (size_t)done);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return FAILED;
        if (has_failed(messages))
            return NOTHING; /* the general way raises what all ranks raise */
    }
    if (done >= 0)
        return count_copied(messages, length) && answer(messages, letter, offer.marks & 0xffffffff) ? TAKEN : FAILED;
    PyObject *rest = PyObject_CallFunction(messages->ask_for, "OiIKKK", letter->array, letter->peer, letter->tag,
                                           (unsigned long long)length, (unsigned long long)(offer.marks & 0xffffffff),
                                           (unsigned long long)(offer.marks >> 32));
    return finish(messages, rest, "recv from", letter) ? TAKEN : FAILED;
}

/* ------------------------------------------------------------------ sending */

/* Send a brief message; false, without an error, if there is no room. */
static bool send_brief(Messages *messages, Letter *letter, Frame header, uint64_t before)
{
    Rings *rings = letter->way->rings;
    if (!rings_write(rings, header, PyArray_DATA(letter->array), letter->nbytes))
        return false;
    rings_wake(rings);
    begin_noting(messages, letter, text_send); /* what does not wait need not be noted before */
    return spend(messages, letter, before);
}

static PyObject *py_send(Messages *messages, PyObject *const *args, Py_ssize_t count)
{
    Letter letter;
    uint64_t before;
    if (!take_arguments(messages, &letter, args, count, false) || !may_send(messages, letter.way) || !unconfirmed(messages, letter.way, &before))
        return declined(Py_False);
    bool sent = false, fits = before + letter.nbytes + messages->message_nbytes <= messages->window_nbytes;
    Frame header = {.first = frame_word(MESSAGE, letter.tag), .length = letter.nbytes, .marks = (uint64_t)letter.mark << 32};
    bool brief = letter.nbytes <= (size_t)letter.way->rings->eager_nbytes;
    bool may_read = letter.way->pid > 0 && (!messages->patience.may_spin || letter.nbytes >= READ_ALWAYS_NBYTES);
    if (may_read && letter.nbytes >= READ_FROM_NBYTES && (!brief || rings_awaited(letter.way->rings, letter.tag)))
        sent = send_offer(messages, &letter); /* a brief message that nobody waits for must not wait either */
    else if (fits && brief)
        sent = send_brief(messages, &letter, header, before);
    else if (fits)
        sent = send_long(messages, &letter, header, before);
    if (sent)
        end_noting(messages, &letter);
    else if (PyErr_Occurred())
        note_error(messages, &letter);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(sent);
}

/* ------------------------------------------------------------------ receiving */

static Taken take_long(Messages *messages, Letter *letter, uint64_t length, bool *seated)
{
    Rings *rings = letter->way->rings;
    unsigned char *data = PyArray_DATA(letter->array);
    size_t filled;
    if (!take_lock(messages))
        return NOTHING;
    rings_advance(rings, 0);
    rings_enter(rings);
    Py_BEGIN_ALLOW_THREADS
    filled = read_pieces(messages, letter, data, length);
    Py_END_ALLOW_THREADS
    rings_leave(rings);
    if (filled == length)
        return give_lock_back(messages) && count_received(messages, letter, length) ? TAKEN : FAILED;
    PyObject *rest = PyObject_CallFunction(messages->go_on_receiving, "OiIKn", letter->array, letter->peer, letter->tag,
                                           (unsigned long long)length, (Py_ssize_t)filled);
    bool well = give_lock_back(messages);
    if ((*seated && !stand_up(messages)) || !well)
        Py_CLEAR(rest);
    *seated = false;
    return finish(messages, rest, "recv from", letter) ? TAKEN : FAILED;
}

/* Take the next message if it is the one that is wanted; nobody has the lock. */
static Taken take(Messages *messages, Letter *letter, bool *seated)
{
    Rings *rings = letter->way->rings;
    Frame frame;
    unsigned wanted = letter->mark == messages->raw ? 0 : letter->mark;
    do {
        if (!rings_next(rings, &frame))
            return NOTHING;
    } while (take_credit(messages, letter->way, &frame));
    if (frame.length > letter->nbytes || (wanted != 0 && frame.marks >> 32 != wanted))
        return NOTHING;
    if (frame.first == (frame_word(OFFER, letter->tag) | READABLE) && frame.address != 0 && letter->way->pid > 0)
        return take_offer(messages, letter, frame);
    if (frame.first != frame_word(MESSAGE, letter->tag) || frame.length > messages->window_nbytes)
        return NOTHING;
    if (frame.length > (uint64_t)rings->eager_nbytes)
        return take_long(messages, letter, frame.length, seated);
    if (frame.length > frame.room)
        return NOTHING;
    memcpy(PyArray_DATA(letter->array), frame.payload, frame.length);
    rings_advance(rings, frame.length);
    return count_received(messages, letter, frame.length) ? TAKEN : FAILED;
}

/* Take the seat, which is free: the interpreter is let go, and nobody else may read the ring. */
static bool sit_down(Messages *messages)
{
    PyObject *me = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    PyObject *more = PyLong_FromLong(PyLong_AsLong(look_at(messages->seat, messages->callers)) + 1);
    if (me == NULL || more == NULL) {
        Py_XDECREF(me);
        Py_XDECREF(more);
        return false;
    }
    put_into(messages->seat, messages->callers, more);
    put_into(messages->seat, messages->holder, me);
    return true;
}

/* Look for something that comes; with the seat if that has taken more than a moment. */
static bool look(Messages *messages, Rings *rings, unsigned tag, bool *seated)
{
    rings_wait_for(rings, tag);
    for (int n = 0; n < BRIEF; n++) {
        if (rings_have_news(rings))
            return true;
        RELAX();
    }
    if (!(*seated = sit_down(messages)))
        return false;
    bool come;
    rings_enter(rings);
    Py_BEGIN_ALLOW_THREADS
    come = patience_look(&messages->patience, has_news, rings, false);
    Py_END_ALLOW_THREADS
    come = come && rings->out != NULL && !rings->closing;
    rings_leave(rings);
    return come;
}

static PyObject *py_recv(Messages *messages, PyObject *const *args, Py_ssize_t count)
{
    Letter letter;
    bool seated = false;
    if (!take_arguments(messages, &letter, args, count, true) || !may_receive(messages, &letter))
        return declined(Py_None);
    begin_noting(messages, &letter, text_recv);
    bool come = look(messages, letter.way->rings, letter.tag, &seated);
    Taken taken = PyErr_Occurred() ? FAILED : NOTHING;
    if (come && (!seated || is_free(messages)))
        taken = take(messages, &letter, &seated);
    if (seated && !stand_up(messages))
        taken = FAILED;
    if (taken == NOTHING) {
        if (!come)
            patience_learn(&messages->patience);
        PyObject *done = PyObject_CallFunction(messages->receive, "OiI", letter.array, letter.peer, letter.tag);
        taken = done == NULL ? FAILED : TAKEN;
        Py_XDECREF(done);
    }
    if (taken == FAILED) {
        if (letter.way->rings->out != NULL)
            rings_wait_no_more(letter.way->rings);
        note_error(messages, &letter);
        return NULL;
    }
    end_noting(messages, &letter);
    return PyLong_FromLong(letter.way->name);
}

/* ------------------------------------------------------------------ the type */

#define HELD(messages)                                                                                               \
    {                                                                                                                \
        (PyObject **)&(messages)->trail, &(messages)->comm, &(messages)->engine, &(messages)->fate, &(messages)->seat, \
            &(messages)->deferred, &(messages)->arrivals, &(messages)->receives, &(messages)->fetching,                      \
            &(messages)->mark, &(messages)->locked, &(messages)->lock, &(messages)->release, &(messages)->settle,    \
            &(messages)->register_offer, &(messages)->offer, &(messages)->offered, &(messages)->ask_for,             \
            &(messages)->answer,                                                                                     \
            &(messages)->go_on_sending, &(messages)->go_on_receiving, &(messages)->finish,   \
            &(messages)->receive, &(messages)->taken                                                                 \
    }

static int messages_traverse(Messages *messages, visitproc visit, void *arg)
{
    PyObject **held[] = HELD(messages);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_VISIT(*held[i]);
    for (int peer = 0; peer < messages->size; peer++) {
        Py_VISIT(messages->ways[peer].pipe);
        Py_VISIT(messages->ways[peer].peer);
        Py_VISIT(messages->ways[peer].window);
    }
    return 0;
}

static int messages_clear(Messages *messages)
{
    PyObject **held[] = HELD(messages);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_CLEAR(*held[i]);
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
    messages_clear(messages);
    Py_TYPE(messages)->tp_free((PyObject *)messages);
}

/* One (global rank, process to read or 0, rings, pipe, peer, window) for each rank; the rings are None where there are none. */
static bool take_ways(Messages *messages, PyObject *list)
{
    if (!PyList_CheckExact(list) || PyList_GET_SIZE(list) > MOST_PEERS) {
        PyErr_SetString(PyExc_ValueError, "a list of no more ranks than have pipes is wanted");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        Way *way = &messages->ways[messages->size++];
        PyObject *rings;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "liOOOO", &way->name, &way->pid, &rings, &way->pipe, &way->peer, &way->window)) {
            way->pipe = way->peer = way->window = NULL;
            return false;
        }
        way->rings = Py_IS_TYPE(rings, &RingsType) ? (Rings *)rings : NULL;
        Py_XINCREF(way->rings);
        Py_INCREF(way->pipe);
        Py_INCREF(way->peer);
        Py_INCREF(way->window);
    }
    return true;
}

/* Where all that is looked at keeps what is looked at; the peers, pipes and windows of all ranks are of one class each. */
static bool find_fields(Messages *messages)
{
    Way *way = messages->ways;
    while (way < messages->ways + messages->size && way->rings == NULL)
        way++;
    if (way == messages->ways + messages->size)
        return true; /* nobody is within reach, and nothing is looked at */
    const struct {
        Field *field;
        PyObject *object;
        const char *name;
    } wanted[] = {
        {&messages->failure, messages->comm, "failure"},   {&messages->failing, messages->fate, "failing"},
        {&messages->leaving, messages->engine, "leaving"}, {&messages->holder, messages->seat, "owner"},
        {&messages->callers, messages->seat, "callers"},   {&messages->connection, way->peer, "connection"},
        {&messages->gone, way->peer, "gone"},              {&messages->queue, way->pipe, "_queue"},
        {&messages->rest, way->pipe, "_rest"},             {&messages->unconfirmed, way->window, "unconfirmed"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if ((*wanted[i].field = field_of(wanted[i].object, wanted[i].name)) < 0)
            return false;
    return true;
}

static PyObject *messages_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *ways;
    unsigned long long window_nbytes, message_nbytes;
    int may_spin;
    Messages *messages = (Messages *)type->tp_alloc(type, 0);
    if (messages == NULL)
        return NULL;
    PyObject **held[] = HELD(messages);
    bool parsed = PyArg_ParseTuple(
        args, "O!OOOOOO!O!OOOOOOOOO!OOOOOOOO!pIIKK", &TrailType, &messages->trail, &messages->comm, &messages->engine, &messages->fate,
        &messages->seat, &messages->deferred, &PyDict_Type, &messages->arrivals, &PyDict_Type,
        &messages->receives, &messages->fetching, &messages->mark, &messages->locked, &messages->lock, &messages->release, &messages->settle,
        &messages->register_offer, &messages->offer, &PyDict_Type, &messages->offered, &messages->ask_for, &messages->answer, &messages->go_on_sending, &messages->go_on_receiving, &messages->finish, &messages->receive, &messages->taken, &PyList_Type, &ways,
        &may_spin, &messages->most_tag, &messages->raw, &window_nbytes, &message_nbytes);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (parsed)
            Py_INCREF(*held[i]);
        else
            *held[i] = NULL;
    if (!parsed || !take_ways(messages, ways) || !find_fields(messages)) {
        Py_DECREF(messages);
        return NULL;
    }
    messages->window_nbytes = window_nbytes;
    messages->message_nbytes = message_nbytes;
    messages->patience = patience_new(may_spin);
    return (PyObject *)messages;
}

static PyMethodDef methods[] = {
    {"send", (PyCFunction)(void (*)(void))py_send, METH_FASTCALL, NULL},
    {"recv", (PyCFunction)(void (*)(void))py_recv, METH_FASTCALL, NULL},
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
    .tp_methods = methods,
};

int messages_add_types(PyObject *module)
{
    const struct {
        PyObject **text;
        const char *letters;
    } texts[] = {
        {&text_send, "send"},
        {&text_recv, "recv"},
        {&text_release, "release"},
        {&text_moved, "moved_nbytes"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if ((*texts[i].text = PyUnicode_InternFromString(texts[i].letters)) == NULL)
            return -1;
    return PyModule_AddType(module, &MessagesType);
}
