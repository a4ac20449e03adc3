/* The engine's lock guards all that is read and written here, and is held but while this thread looks for more between
   two frames: then it has the progress lock, and lets the interpreter go. So what has been read of a frame can be handed
   to Python's reader before anybody else reads on. */
#include "wire.h"
#include "arguments.h"
#include "recorder.h"
#include "rings.h"
#include "waiting.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* The byte behind a payload that is all there. */
enum { GOOD = 1 };
/* How long a look holds the interpreter: about as long as an answer takes to come. */
enum { HELD_NS = 25000 };
/* How long the rest of a frame may keep others from the engine's lock. */
enum { REST_NS = 2000000 };
/* How much is received before Python hears of it, which gives credit for it. */
enum { WIRE_TOLD_NBYTES = 256 << 10 };
static PyObject *text_copy, *text_update, *text_digest;

int wire_add_texts(void)
{
    text_copy = PyUnicode_InternFromString("copy");
    text_update = PyUnicode_InternFromString("update");
    text_digest = PyUnicode_InternFromString("digest");
    return text_copy == NULL || text_update == NULL || text_digest == NULL ? -1 : 0;
}

Head wire_message_head(unsigned tag, size_t nbytes, unsigned mark)
{
    return (Head){.first = rings_frame_word(MESSAGE, tag), .length = nbytes, .marks = (uint64_t)mark << 32};
}

bool wire_has_room(const Wire *wire, int peer, size_t nbytes)
{
    return peer >= 0 && peer < wire->size && wire->links[peer].room.buf != NULL && nbytes <= (size_t)wire->links[peer].room.len;
}

bool wire_is_done(const Parcel *parcels, int count)
{
    for (int i = 0; i < count; i++)
        if (!parcels[i].sent || !parcels[i].taken || parcels[i].rest != NULL)
            return false;
    return true;
}

void wire_drop(Parcel *parcels, int count)
{
    for (int i = 0; i < count; i++)
        Py_CLEAR(parcels[i].rest);
}

/* ------------------------------------------------------------------ whether nothing is in the way */

static bool wire_has_failed(const Wire *wire)
{
    return wire->turn->closed || wire->failure->failing || wire->engine->leaving;
}

/* The connection that leads to a rank, if it is one that is served here. */
static ConnectionState *wire_connection(const Wire *wire, int peer)
{
    PyObject *found = wire->links[peer].peer->connection;
    if (found == NULL || !PyObject_TypeCheck(found, &ConnectionStateType))
        return NULL;
    ConnectionState *connection = (ConnectionState *)found;
    return connection->plain && !connection->closed && !connection->deaf ? connection : NULL;
}

/* Whether the next byte that comes begins a frame. */
static bool wire_at_a_frame(const ConnectionState *connection)
{
    if (connection->reader == NULL || !PyObject_TypeCheck(connection->reader, &ReaderStateType))
        return false;
    const ReaderState *reader = (ReaderState *)connection->reader;
    return state_is_none(reader->whole) && reader->start == reader->end;
}

/* Whether a message from a rank, or a receive that it would meet, waits already. */
static bool wire_is_awaited(const Wire *wire, int peer, unsigned tag)
{
    if (PyDict_GET_SIZE(wire->arrivals) == 0 && PyDict_GET_SIZE(wire->receives) == 0)
        return false;
    PyObject *own = Py_BuildValue("(Ii)", tag, wire->links[peer].rank), *anyones = Py_BuildValue("(IO)", tag, Py_None);
    bool found = own == NULL || anyones == NULL || PyDict_Contains(wire->lines, own) != 0 ||
                 PyDict_Contains(wire->receives, own) != 0 || PyDict_Contains(wire->receives, anyones) != 0;
    Py_XDECREF(own);
    Py_XDECREF(anyones);
    PyErr_Clear();
    return found;
}

/* ------------------------------------------------------------------ the lock */

/* Take the engine's lock if it is free, nobody else moves messages, and the group is as it should be. */
static bool wire_enter(const Wire *wire)
{
    if (wire->progress->owner != 0 || wire_has_failed(wire))
        return false;
    PyObject *locked = PyObject_CallOneArg(wire->lock, Py_False);
    Py_XDECREF(locked);
    return locked == Py_True;
}

/* Call what takes nothing, although an exception may be set, which stays. */
static bool wire_do(PyObject *deed)
{
    PyObject *error = PyErr_Occurred() ? arguments_raised() : NULL, *done = PyObject_CallNoArgs(deed);
    bool well = error == NULL && done != NULL;
    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(done);
    return well;
}

/* Do what others have left to whoever had the lock, which is free again. */
static bool wire_settle(const Wire *wire)
{
    return PyObject_Size(wire->deferred) == 0 || wire_do(wire->settle);
}

/* Give the lock back; an exception stays. */
static bool wire_leave(const Wire *wire)
{
    bool well = wire_do(wire->unlock);
    return wire_settle(wire) && well;
}

/* Call a hook, which expects the lock to be held; its result is owned by the caller, NULL with an exception set. */
static PyObject *wire_call(PyObject *hook, PyObject *args)
{
    PyObject *result = args == NULL ? NULL : PyObject_CallObject(hook, args);
    Py_XDECREF(args);
    return result;
}

/* ------------------------------------------------------------------ guards */

/* The tag of a header; none is there for one that is not guarded. False with an exception set. */
static bool wire_tag(PyObject *guard, const void *head, unsigned char tag[HEAD_TAG_NBYTES])
{
    const GuardState *state = (GuardState *)guard;
    unsigned char text[sizeof state->number + HEAD_NBYTES];
    memcpy(text, &state->number, sizeof state->number);
    memcpy(text + sizeof state->number, head, HEAD_NBYTES);
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)text, sizeof text), *made = NULL, *done = NULL, *digest = NULL;
    if (bytes != NULL && (made = PyObject_CallMethodNoArgs(state->keyed, text_copy)) != NULL &&
        (done = PyObject_CallMethodOneArg(made, text_update, bytes)) != NULL)
        digest = PyObject_CallMethodNoArgs(made, text_digest);
    bool well = digest != NULL && PyBytes_CheckExact(digest) && PyBytes_GET_SIZE(digest) == HEAD_TAG_NBYTES;
    if (well)
        memcpy(tag, PyBytes_AS_STRING(digest), HEAD_TAG_NBYTES);
    else if (digest != NULL)
        PyErr_SetString(PyExc_TypeError, "a guard makes other tags");
    Py_XDECREF(bytes);
    Py_XDECREF(made);
    Py_XDECREF(done);
    Py_XDECREF(digest);
    return well;
}

static bool wire_is_guarded(PyObject *guard)
{
    return !state_is_none(guard) && PyObject_TypeCheck(guard, &GuardStateType);
}

static size_t wire_unit(PyObject *guard)
{
    return HEAD_NBYTES + (wire_is_guarded(guard) ? HEAD_TAG_NBYTES : 0);
}

/* ------------------------------------------------------------------ sending */

typedef struct {
    struct iovec pieces[4];
    int count;
    size_t nbytes;
} Gathered;

static void wire_gather(Gathered *gathered, const void *bytes, size_t nbytes)
{
    if (nbytes > 0)
        gathered->pieces[gathered->count++] = (struct iovec){(void *)(uintptr_t)bytes, nbytes};
    gathered->nbytes += nbytes;
}

/* Let Python send what has not left of a frame. */
static bool wire_keep(const Wire *wire, Parcel *parcel, const Gathered *frame, size_t sent)
{
    PyObject *rest = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(frame->nbytes - sent));
    unsigned char *to = rest == NULL ? NULL : (unsigned char *)PyBytes_AS_STRING(rest);
    for (int i = 0; to != NULL && i < frame->count; i++) {
        size_t skipped = sent < frame->pieces[i].iov_len ? sent : frame->pieces[i].iov_len;
        memcpy(to, (unsigned char *)frame->pieces[i].iov_base + skipped, frame->pieces[i].iov_len - skipped);
        to += frame->pieces[i].iov_len - skipped;
        sent -= skipped;
    }
    PyObject *kept = wire_call(wire->keep, rest == NULL ? NULL : Py_BuildValue("(iNI)", wire->links[parcel->peer].rank, rest, (unsigned)(parcel->out.first >> 32)));
    if (kept == Py_None)
        Py_CLEAR(kept);
    else
        parcel->rest = kept;
    return !PyErr_Occurred();
}

/* Send a message if nothing is before it. False with an exception set; else `sent` tells. */
static bool wire_post(const Wire *wire, Parcel *parcel)
{
    const Link *link = &wire->links[parcel->peer];
    if (link->peer->owed_nbytes != 0) {
        PyObject *paid = wire_call(wire->pay, Py_BuildValue("(i)", link->rank));
        Py_XDECREF(paid);
        if (paid == NULL)
            return false;
    }
    ConnectionState *connection = wire_connection(wire, parcel->peer);
    if (connection == NULL || connection->broken || connection->writing || !state_is_none(link->peer->gone) ||
        link->window->unconfirmed + parcel->out.length + wire->message_nbytes > wire->window_nbytes)
        return true;
    unsigned char head[HEAD_NBYTES + HEAD_TAG_NBYTES], good = GOOD;
    memcpy(head, &parcel->out, HEAD_NBYTES);
    if (wire_is_guarded(connection->mine) && !wire_tag(connection->mine, head, head + HEAD_NBYTES))
        return false;
    Gathered frame = {.count = 0};
    wire_gather(&frame, head, wire_unit(connection->mine));
    wire_gather(&frame, parcel->record, parcel->record_nbytes);
    wire_gather(&frame, parcel->data, parcel->nbytes);
    wire_gather(&frame, &good, 1);
    struct msghdr message = {.msg_iov = frame.pieces, .msg_iovlen = (size_t)frame.count};
    ssize_t sent = sendmsg(connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0)
        return true; /* Python tries again, and finds out why */
    connection->went_nbytes += (unsigned long long)sent;
    link->window->unconfirmed += parcel->out.length + wire->message_nbytes;
    if (wire_is_guarded(connection->mine))
        ((GuardState *)connection->mine)->number++;
    parcel->sent = true;
    return (size_t)sent == frame.nbytes || wire_keep(wire, parcel, &frame, (size_t)sent);
}

/* ------------------------------------------------------------------ receiving */

/* NOTHING has come; SOME has, and more is to come; it is ALL there, or this is LEFT to Python. */
typedef enum { CAME_NOTHING, CAME_SOME, CAME_ALL, CAME_LEFT, CAME_ERROR } Came;

static size_t wire_frame_nbytes(const Parcel *parcel, size_t unit)
{
    return unit + parcel->in.length + 1;
}

/* Where the bytes of a frame go from `at` on: header, payload and what is behind it. */
static int wire_places(Parcel *parcel, size_t unit, size_t at, struct iovec places[3])
{
    struct iovec all[3] = {{parcel->head, unit}, {parcel->room, parcel->in.length}, {&parcel->trailer, 1}};
    int count = 0;
    for (int i = 0; i < 3; i++) {
        size_t skipped = at < all[i].iov_len ? at : all[i].iov_len;
        at -= skipped;
        if (skipped < all[i].iov_len)
            places[count++] = (struct iovec){(unsigned char *)all[i].iov_base + skipped, all[i].iov_len - skipped};
    }
    return count;
}

/* Read what has come of a frame. It needs no interpreter, but nobody else may read: -1 for nothing, 0 for the end. */
static ssize_t wire_read(Parcel *parcel, ConnectionState *connection, size_t unit)
{
    struct iovec places[3];
    struct msghdr message = {.msg_iov = places, .msg_iovlen = (size_t)wire_places(parcel, unit, parcel->got, places)};
    ssize_t count = recvmsg(connection->fd, &message, MSG_DONTWAIT);
    if (count > 0) {
        parcel->got += (size_t)count;
        connection->came_nbytes += (unsigned long long)count;
        return count;
    }
    return count < 0 && (errno == EAGAIN || errno == EINTR) ? -1 : 0;
}

/* Hand what has been read to Python's reader, before anybody else can read on. */
static bool wire_feed(const Wire *wire, Parcel *parcel, size_t unit)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)parcel->got);
    unsigned char *to = bytes == NULL ? NULL : (unsigned char *)PyBytes_AS_STRING(bytes);
    struct iovec places[3];
    int count = wire_places(parcel, unit, 0, places);
    for (size_t at = 0, i = 0; to != NULL && i < (size_t)count && at < parcel->got; i++) {
        size_t now = parcel->got - at < places[i].iov_len ? parcel->got - at : places[i].iov_len;
        memcpy(to + at, places[i].iov_base, now);
        at += now;
    }
    parcel->got = 0;
    parcel->headed = false;
    PyObject *fed = wire_call(wire->feed, bytes == NULL ? NULL : Py_BuildValue("(iN)", wire->links[parcel->peer].rank, bytes));
    Py_XDECREF(fed);
    return fed != NULL;
}

/* Take credit off the beginning of what has come; what is behind it moves to the front. */
static void wire_take_credit(const Wire *wire, Parcel *parcel, size_t unit, uint64_t nbytes)
{
    unsigned char *room = parcel->room;
    size_t behind = parcel->got - unit, payload = behind < parcel->in.length ? behind : parcel->in.length;
    size_t front = payload < unit ? payload : unit;
    wire->links[parcel->peer].window->unconfirmed -= nbytes;
    memcpy(parcel->head, room, front);
    memmove(room, room + front, payload - front);
    if (behind > payload) { /* the byte behind the payload is one of the payload now, or of the header */
        if (payload - front < parcel->in.length && front == unit)
            room[payload - front] = parcel->trailer;
        else
            parcel->head[front] = parcel->trailer;
    }
    parcel->got = behind;
}

static bool wire_is_credit(const Wire *wire, const Parcel *parcel, const Head *head)
{
    return head->first == CREDIT && head->marks == 0 && head->address == 0 && head->length <= wire->links[parcel->peer].window->unconfirmed;
}

/* Look at the header that has come. */
static Came wire_look_at_head(const Wire *wire, Parcel *parcel, ConnectionState *connection, size_t unit)
{
    unsigned char tag[HEAD_TAG_NBYTES];
    Head head;
    memcpy(&head, parcel->head, sizeof head);
    bool wanted = memcmp(&head, &parcel->in, sizeof head) == 0;
    if (!wanted && !wire_is_credit(wire, parcel, &head))
        return CAME_LEFT;
    if (wire_is_guarded(connection->theirs)) {
        if (!wire_tag(connection->theirs, parcel->head, tag))
            return CAME_ERROR;
        if (memcmp(tag, parcel->head + HEAD_NBYTES, sizeof tag) != 0)
            return CAME_LEFT; /* Python says what is wrong */
        if (!wanted)
            ((GuardState *)connection->theirs)->number++;
    }
    if (!wanted)
        wire_take_credit(wire, parcel, unit, head.length);
    parcel->headed = wanted;
    return CAME_SOME;
}

static Came wire_judge(Wire *wire, Parcel *parcel, ConnectionState *connection, size_t unit)
{
    while (!parcel->headed && parcel->got >= unit) {
        Came came = wire_look_at_head(wire, parcel, connection, unit);
        if (came != CAME_SOME)
            return came;
    }
    if (!parcel->headed || parcel->got < wire_frame_nbytes(parcel, unit))
        return CAME_SOME;
    if (parcel->trailer != GOOD)
        return CAME_LEFT;
    if (wire_is_guarded(connection->theirs))
        ((GuardState *)connection->theirs)->number++;
    wire->links[parcel->peer].due += parcel->in.length + wire->message_nbytes;
    parcel->taken = true;
    return CAME_ALL;
}

/* Take in what has come for a parcel; nobody else has the lock. */
static Came wire_look_for(Wire *wire, Parcel *parcel)
{
    ConnectionState *connection = wire_connection(wire, parcel->peer);
    if (connection == NULL)
        return CAME_LEFT;
    size_t unit = wire_unit(connection->theirs);
    if (parcel->got == 0 && (!wire_at_a_frame(connection) || wire_is_awaited(wire, parcel->peer, (unsigned)(parcel->in.first >> 32))))
        return CAME_LEFT;
    ssize_t count = wire_read(parcel, connection, unit);
    if (count < 0)
        return CAME_NOTHING;
    Came came = count == 0 ? CAME_LEFT : wire_judge(wire, parcel, connection, unit);
    if (came != CAME_LEFT)
        return came;
    if (parcel->got > 0 && !wire_feed(wire, parcel, unit))
        return CAME_ERROR;
    return count == 0 ? CAME_LEFT : CAME_SOME; /* another message has come before, perhaps */
}

/* Tell Python of what was received, which gives credit for it. */
static bool wire_tell(const Wire *wire, int peer)
{
    Link *link = &wire->links[peer];
    if (link->due < WIRE_TOLD_NBYTES)
        return true;
    uint64_t due = link->due - wire->message_nbytes;
    link->due = 0;
    PyObject *told = PyObject_CallFunction(wire->taken, "iK", link->rank, (unsigned long long)due);
    Py_XDECREF(told);
    return told != NULL;
}

/* ------------------------------------------------------------------ waiting */

static bool wire_expects(const Parcel *parcel)
{
    return !parcel->taken && !parcel->left;
}

/* Look at every parcel that is expected; tell by `some` whether anything has come. False with an exception set. */
static bool wire_look_around(Wire *wire, Parcel *parcels, int count, int *expected, bool *some)
{
    *expected = 0;
    *some = false;
    for (int i = 0; i < count; i++) {
        if (!wire_expects(&parcels[i]))
            continue;
        Came came = wire_look_for(wire, &parcels[i]);
        if (came == CAME_ERROR || (came == CAME_ALL && !wire_tell(wire, parcels[i].peer)))
            return false;
        parcels[i].left = came == CAME_LEFT;
        *some = *some || came != CAME_NOTHING;
        *expected += wire_expects(&parcels[i]);
    }
    return true;
}

static Parcel *wire_half_way(Parcel *parcels, int count)
{
    for (int i = 0; i < count; i++)
        if (wire_expects(&parcels[i]) && parcels[i].got > 0)
            return &parcels[i];
    return NULL;
}

/* Read the rest of a frame without the interpreter; the lock keeps others from reading. */
static bool wire_read_rest(Wire *wire, Parcel *parcel)
{
    ConnectionState *connection = wire_connection(wire, parcel->peer);
    if (connection == NULL)
        return true;
    size_t unit = wire_unit(connection->theirs), all = parcel->headed ? wire_frame_nbytes(parcel, unit) : unit;
    int64_t until = native_monotonic_ns() + REST_NS;
    Py_INCREF(connection);
    Py_BEGIN_ALLOW_THREADS
    while (parcel->got < all && native_monotonic_ns() < until)
        if (wire_read(parcel, connection, unit) == 0)
            break;
    Py_END_ALLOW_THREADS
    Came came = wire_judge(wire, parcel, connection, unit);
    Py_DECREF(connection);
    if (came == CAME_LEFT) {
        parcel->left = true;
        return wire_feed(wire, parcel, unit);
    }
    return came != CAME_ERROR && (came != CAME_ALL || wire_tell(wire, parcel->peer));
}

/* Sleep nowhere, but let the interpreter go until a socket can be read, or a time. The progress lock is this thread's. */
static void wire_watch(const Wire *wire, const Parcel *parcels, int count, int64_t until)
{
    struct pollfd watched[MOST_PARCELS];
    nfds_t watches = 0;
    for (int i = 0; i < count; i++)
        if (wire_expects(&parcels[i])) {
            ConnectionState *connection = wire_connection(wire, parcels[i].peer);
            if (connection == NULL)
                return;
            watched[watches++] = (struct pollfd){.fd = connection->fd, .events = POLLIN};
        }
    Py_BEGIN_ALLOW_THREADS
    while (poll(watched, watches, 0) == 0 && native_monotonic_ns() < until)
        RELAX();
    Py_END_ALLOW_THREADS
}

/* Let lock and interpreter go, with the progress lock instead, until something comes or a time; tell by `held` whether
   the lock is held again. False with an exception set. */
static bool wire_wait(Wire *wire, const Parcel *parcels, int count, int64_t until, bool *held)
{
    wire->progress->callers++;
    wire->progress->owner = PyThread_get_thread_ident();
    *held = false;
    bool well = wire_do(wire->unlock);
    if (well)
        wire_watch(wire, parcels, count, until);
    well = wire_do(wire->stand_up) && well && wire_settle(wire);
    *held = well && wire_enter(wire);
    return well && !PyErr_Occurred();
}

/* Hand over what has been read of frames that are not all there. */
static bool wire_leave_rest(Wire *wire, Parcel *parcels, int count)
{
    for (Parcel *parcel; (parcel = wire_half_way(parcels, count)) != NULL;) {
        ConnectionState *connection = wire_connection(wire, parcel->peer);
        parcel->left = true;
        if (connection != NULL && !wire_feed(wire, parcel, wire_unit(connection->theirs)))
            return false;
    }
    return true;
}

static void wire_learn(Wire *wire, bool found)
{
    int64_t next = found ? 2 * wire->spin_ns : wire->spin_ns / 2;
    wire->spin_ns = next > wire->most_ns ? wire->most_ns : next < wire->least_ns ? wire->least_ns : next;
}

/* Receive what is expected, as long as a look may take; the lock is held, and still is afterwards if `held` says so. */
static bool wire_receive_all(Wire *wire, Parcel *parcels, int count, bool *held)
{
    int64_t began = 0, now = 0, held_until = 0;
    int expected;
    bool some, well;
    while ((well = wire_look_around(wire, parcels, count, &expected, &some)) && expected > 0) {
        now = native_monotonic_ns();
        began = began == 0 ? now : began;
        held_until = held_until == 0 || some ? now + HELD_NS : held_until;
        Parcel *half = wire_half_way(parcels, count);
        if (now - began >= wire->spin_ns + (half == NULL ? 0 : REST_NS))
            break;
        if (now < held_until)
            RELAX();
        else if (half != NULL)
            well = wire_read_rest(wire, half);
        else if ((well = wire_wait(wire, parcels, count, began + wire->spin_ns, held)))
            held_until = 1; /* it has let others in already */
        if (!well || !*held)
            break;
    }
    if (began != 0) {
        wire->waited_ns += native_monotonic_ns() - began;
        wire_learn(wire, well && expected == 0);
    }
    return well;
}

/* Do what can be done with the lock held; tell by `held` whether it still is. */
static bool wire_carry(Wire *wire, Parcel *parcels, int count, bool *held)
{
    for (int i = 0; i < count; i++)
        if (!parcels[i].sent && !wire_post(wire, &parcels[i]))
            return false;
    bool well = wire_receive_all(wire, parcels, count, held);
    PyObject *error = well ? NULL : arguments_raised();
    bool left = !*held || wire_leave_rest(wire, parcels, count);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return well && left;
}

bool wire_swap(Wire *wire, Parcel *parcels, int count)
{
    for (int i = 0; i < count; i++) {
        parcels[i].sent = parcels[i].out.first == 0;
        parcels[i].taken = parcels[i].in.first == 0;
        parcels[i].left = parcels[i].headed = false;
        parcels[i].got = 0;
        parcels[i].rest = NULL;
    }
    bool held = wire_enter(wire);
    if (!held)
        return !PyErr_Occurred();
    bool well = wire_carry(wire, parcels, count, &held);
    wire->progress->last_drive = (double)native_monotonic_ns() * 1e-9;
    return (!held || wire_leave(wire)) && well;
}
