/* The engine's lock guards all that is read and written here, and is held but while this thread looks for more between
   two frames: then it has the progress lock, and lets the interpreter go. So what has been read of a frame can be handed
   to Python's reader before anybody else reads on. */
#include "wire.h"
#include "arguments.h"
#include "guards.h"
#include "recorder.h"
#include "rings.h"
#include "tls.h"
#include "waiting.h"
#include <poll.h>
#include <sched.h>
#include <string.h>

/* The byte behind a payload that is all there. */
enum { GOOD = 1 };
/* For how long a wait sleeps before Python goes on; a time-out begins to count there. */
enum { DOZE_MS = 4 };
/* A rank with so long between two looks had no processor: then waits only glance for a while, as a rank that
   sleeps is given the processor immediately when something comes, and one that has looked all the time is not. */
enum { AWAY_NS = 500000, GLANCE_NS = 10000, RESIGNED_WAITS = 200 };
/* How long a look holds the interpreter: about as long as an answer takes to come. */
enum { HELD_NS = 25000 };
/* How much is received before Python hears of it, which gives credit for it. */
enum { WIRE_TOLD_NBYTES = 256 << 10 };
/* For how much longer frames move and follow on each other, or stand still, in a thread that looks for no signals, such as that
   of asynchronous calls: to ask for the interpreter is to wait for what the program computes. Time-outs are noticed as late. */
enum { UNASKED_NS = 60000000 };

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
    bool encrypts = state_is_none(connection->tls) || PyObject_TypeCheck(connection->tls, &TlsType);
    bool served = encrypts && connection->plain && !connection->closed && !connection->deaf && guards_known(connection->mine) && guards_known(connection->theirs);
    return served ? connection : NULL;
}

/* Whether the next byte that comes begins a frame. */
static bool wire_at_a_frame(const ConnectionState *connection)
{
    if (connection->reader == NULL || !PyObject_TypeCheck(connection->reader, &ReaderStateType))
        return false;
    const ReaderState *reader = (ReaderState *)connection->reader;
    return state_is_none(reader->whole) && reader->start == reader->end;
}

/* Whether something waits with a key, which is taken; what cannot be found out is left to Python likewise. */
static bool wire_has_key(PyObject *lines, PyObject *key)
{
    bool found = hooks_has_key(lines, key);
    PyErr_Clear();
    return found;
}

bool wire_is_kept(const Wire *wire, int peer, unsigned tag)
{
    return PyDict_GET_SIZE(wire->lines) != 0 && wire_has_key(wire->lines, Py_BuildValue("(Ii)", tag, wire->links[peer].rank));
}

/* Whether a message from a rank, or a receive that it would meet, waits already. */
static bool wire_is_awaited(const Wire *wire, int peer, unsigned tag)
{
    if (wire_is_kept(wire, peer, tag))
        return true;
    return PyDict_GET_SIZE(wire->receives) != 0 && (wire_has_key(wire->receives, Py_BuildValue("(Ii)", tag, wire->links[peer].rank)) ||
                                                    wire_has_key(wire->receives, Py_BuildValue("(IO)", tag, Py_None)));
}

/* Whether what follows on a parcel may go on and come in without the interpreter, for as long as the lock is held. */
static bool wire_may_chain(const Wire *wire, const Parcel *parcel, const ConnectionState *connection)
{
    return parcel->next != NULL && connection != NULL && wire_at_a_frame(connection) && !wire_is_awaited(wire, parcel->peer, parcel->next_tag);
}

/* ------------------------------------------------------------------ the lock */

/* Take the engine's lock if it is free, nobody else moves messages, and the group is as it should be. */
static bool wire_enter(const Wire *wire)
{
    if (wire->progress->owner != 0 || wire_has_failed(wire))
        return false;
    return lock_try(wire->lock);
}

/* Whether others have left anything to the holder of the lock. */
static bool wire_is_left_something(const Wire *wire)
{
    return PyObject_Size(wire->deferred) != 0;
}

/* Do what others have left to the holder of the lock, which is free again. */
static bool wire_settle(const Wire *wire)
{
    return !wire_is_left_something(wire) || arguments_do(wire->settle);
}

/* Give the lock back; an exception stays. */
static bool wire_leave(const Wire *wire)
{
    lock_hand_over(wire->lock);
    return wire_settle(wire);
}

/* Call a hook, which expects the lock to be held; its result is owned by the caller, NULL with an exception set. */
static PyObject *wire_call(PyObject *hook, PyObject *args)
{
    PyObject *result = args == NULL ? NULL : PyObject_CallObject(hook, args);
    Py_XDECREF(args);
    return result;
}

/* Call a hook about a rank, as the engine calls it. */
static bool wire_ask(PyObject *hook, int rank)
{
    PyObject *done = PyObject_CallFunction(hook, "i", rank);
    Py_XDECREF(done);
    return done != NULL;
}

/* ------------------------------------------------------------------ sending */

/* Let Python send what has not left of a frame. */
static bool wire_keep(const Wire *wire, Parcel *parcel)
{
    size_t all = parcel->cover_nbytes + parcel->record_nbytes + parcel->nbytes + 1;
    PyObject *rest = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(all - parcel->went));
    if (rest != NULL)
        parcels_copy_rest(parcel, (unsigned char *)PyBytes_AS_STRING(rest));
    parcel->went = all;
    PyObject *kept = wire_call(wire->keep, rest == NULL ? NULL : Py_BuildValue("(iNI)", wire->links[parcel->peer].rank, rest, (unsigned)(parcel->out.first >> 32)));
    if (kept == Py_None)
        Py_CLEAR(kept);
    else
        parcel->rest = kept;
    return !PyErr_Occurred();
}

/* Put a header behind those that a parcel's frame begins with; false where it cannot be tagged. */
static bool wire_cover(Parcel *parcel, const ConnectionState *connection, const Head *head)
{
    size_t unit = guards_unit(connection->mine);
    unsigned char *cover = parcel->cover + parcel->cover_nbytes;
    memcpy(cover, head, HEAD_NBYTES);
    unsigned ahead = parcel->cover_nbytes == 0 ? 0 : 1;
    parcel->cover_nbytes += unit;
    return guards_tag(connection->mine, ahead, head, cover + HEAD_NBYTES);
}

/* Whether the peer's window has room for a parcel's message. */
static bool wire_fits(const Wire *wire, const Parcel *parcel)
{
    return wire->links[parcel->peer].window->unconfirmed + parcel->out.length + wire->message_nbytes <= wire->window_nbytes;
}

/* Begin to send a message if nothing is before it, with the credit that is owed; `sent` tells. Only the lock is needed. */
static void wire_post(Wire *wire, Parcel *parcel, ConnectionState *connection)
{
    Link *link = &wire->links[parcel->peer];
    if (connection == NULL || connection->broken || connection->writing || !state_is_none(link->peer->gone) || !wire_fits(wire, parcel))
        return;
    uint64_t due = link->due < WIRE_TOLD_NBYTES ? 0 : link->due;
    Head credit = {.first = CREDIT, .length = link->peer->owed_nbytes + due};
    parcel->cover_nbytes = 0;
    if (credit.length > 0 && !wire_cover(parcel, connection, &credit))
        return;
    if (!wire_cover(parcel, connection, &parcel->out))
        return;
    parcel->went = 0;
    if (parcels_send(parcel, connection) < 0)
        return;
    if (credit.length > 0)
        guards_count(connection->mine, &credit);
    guards_count(connection->mine, &parcel->out);
    link->peer->owed_nbytes = 0;
    link->due -= due;
    link->window->unconfirmed += parcel->out.length + wire->message_nbytes;
    parcel->sent = true;
}

/* ------------------------------------------------------------------ receiving */

/* NOTHING has come; SOME has, and more is to come; it is ALL there, or this is LEFT to Python. */
typedef enum { CAME_NOTHING, CAME_SOME, CAME_ALL, CAME_LEFT, CAME_ERROR } Came;

/* Hand what has been read to Python's reader, before anybody else can read on. */
static bool wire_feed(const Wire *wire, Parcel *parcel)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)parcel->got);
    if (bytes != NULL)
        parcels_copy_got(parcel, (unsigned char *)PyBytes_AS_STRING(bytes));
    parcel->got = 0;
    parcel->headed = parcel->open = false;
    PyObject *fed = wire_call(wire->feed, bytes == NULL ? NULL : Py_BuildValue("(iN)", wire->links[parcel->peer].rank, bytes));
    Py_XDECREF(fed);
    return fed != NULL;
}

/* Take credit off the beginning of what has come; what is behind it moves to the front. */
static void wire_take_credit(const Wire *wire, Parcel *parcel, uint64_t nbytes)
{
    unsigned char *room = parcel->room;
    size_t unit = parcel->in_unit;
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
static Came wire_look_at_head(const Wire *wire, Parcel *parcel, ConnectionState *connection)
{
    Head head;
    memcpy(&head, parcel->head, sizeof head);
    bool wanted = memcmp(&head, &parcel->in, sizeof head) == 0;
    if (!wanted && !wire_is_credit(wire, parcel, &head))
        return CAME_LEFT;
    if (!guards_match(connection->theirs, parcel->head, parcel->head + HEAD_NBYTES))
        return CAME_LEFT; /* Python says what is wrong */
    if (!wanted) {
        guards_count(connection->theirs, &head);
        wire_take_credit(wire, parcel, head.length);
    }
    parcel->headed = wanted;
    return CAME_SOME;
}

/* Look at what has come; only the lock is needed. */
static Came wire_judge(Wire *wire, Parcel *parcel, ConnectionState *connection)
{
    while (!parcel->headed && parcel->got >= parcel->in_unit) {
        Came came = wire_look_at_head(wire, parcel, connection);
        if (came != CAME_SOME)
            return came;
    }
    if (!parcel->headed || parcel->got < parcels_in_nbytes(parcel))
        return CAME_SOME;
    if (parcel->trailer != GOOD)
        return CAME_LEFT;
    guards_count(connection->theirs, &parcel->in);
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
    parcel->in_unit = guards_unit(connection->theirs);
    if (parcel->got == 0) {
        if (!wire_at_a_frame(connection) || wire_is_awaited(wire, parcel->peer, (unsigned)(parcel->in.first >> 32)))
            return CAME_LEFT;
        parcel->chained = wire_may_chain(wire, parcel, connection);
    }
    parcel->open = true;
    ssize_t count = parcels_read(parcel, connection);
    if (count < 0)
        return CAME_NOTHING;
    Came came = count == 0 ? CAME_LEFT : wire_judge(wire, parcel, connection);
    if (came != CAME_LEFT)
        return came;
    if (parcel->got > 0 && !wire_feed(wire, parcel))
        return CAME_ERROR;
    /* Another message has come before, perhaps; but where it is offered, nothing comes until Python asks for it. */
    bool left = count == 0 || wire_is_awaited(wire, parcel->peer, (unsigned)(parcel->in.first >> 32));
    return left ? CAME_LEFT : CAME_SOME;
}

/* Have Python take in what was decrypted behind what was awaited, as no poller sees it: before the lock is let go. */
static bool wire_take_in(const Wire *wire, const Parcel *parcels, int count)
{
    bool well = true;
    for (int i = 0; well && i < count; i++) {
        ConnectionState *connection = wire_connection(wire, parcels[i].peer);
        if (connection == NULL || state_is_none(connection->tls) || !tls_holds((Tls *)connection->tls))
            continue;
        PyObject *fed = wire_call(wire->feed, Py_BuildValue("(iy)", wire->links[parcels[i].peer].rank, ""));
        Py_XDECREF(fed);
        well = fed != NULL;
    }
    return well;
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

/* Look at every parcel that is expected; tell by `some` whether anything has come. False with an exception set. */
static bool wire_look_around(Wire *wire, Parcel *parcels, int count, int *expected, bool *some)
{
    *expected = 0;
    *some = false;
    for (int i = 0; i < count; i++) {
        if (!parcels_expects(&parcels[i]))
            continue;
        Came came = wire_look_for(wire, &parcels[i]);
        if (came == CAME_ERROR || (came == CAME_ALL && !wire_tell(wire, parcels[i].peer)))
            return false;
        parcels[i].left = came == CAME_LEFT;
        *some = *some || came != CAME_NOTHING;
        *expected += parcels_expects(&parcels[i]);
    }
    return true;
}

typedef enum { STANDS, HALF_WAY, LONG_WAY } Stage;

/* Whether frames are half-way, and whether they are long. */
static Stage wire_stage(const Parcel *parcels, int count)
{
    Stage stage = STANDS;
    for (int i = 0; i < count; i++) {
        if (parcels_is_leaving(&parcels[i]) || (parcels_expects(&parcels[i]) && parcels[i].headed && parcels[i].in.length > LONG_NBYTES))
            return LONG_WAY;
        if (parcels_is_half_way(&parcels[i]))
            stage = HALF_WAY;
    }
    return stage;
}

static void wire_judge_moved(void *user, Parcel *parcel, ConnectionState *connection)
{
    parcel->left = wire_judge(user, parcel, connection) == CAME_LEFT;
}

/* Go on with what follows on a parcel that is done; false where nothing does, or it cannot begin, or others want the lock,
   or it is time for signals and time-outs. Only the lock is needed, which has been held since what comes was looked for. */
static bool wire_chain(Wire *wire, Parcel *parcel, ConnectionState *connection, int64_t until)
{
    if (!parcel->chained || connection == NULL || !parcels_is_done(parcel) || native_monotonic_ns() >= until || lock_is_wanted(wire->lock) ||
        wire_has_failed(wire) || !parcel->next(parcel->user))
        return false;
    parcels_begin(parcel);
    parcel->in_unit = guards_unit(connection->theirs);
    parcel->open = parcel->chained = true;
    if (!parcel->sent)
        wire_post(wire, parcel, connection);
    return parcel->sent;
}

/* Move frames that are half-way without the interpreter, and those that follow on them, while the lock keeps others from
   it; tell for how long they moved. False with an exception set. */
static bool wire_move(Wire *wire, Parcel *parcels, int count, int64_t until, int64_t *moved_ns)
{
    ConnectionState *connections[MOST_PARCELS];
    for (int i = 0; i < count; i++) {
        connections[i] = wire_connection(wire, parcels[i].peer);
        Py_XINCREF(connections[i]);
    }
    int64_t unasked_ns = PyThread_get_thread_ident() == wire->main_thread ? 0 : UNASKED_NS, chain_until = until - MOVING_NS / 2 + unasked_ns;
    Stay stay = {.look_ns = LOOK_NS, .yields = wire->yields, .still_ns = STILL_NS + unasked_ns, .until = until + unasked_ns, .lock = wire->lock};
    *moved_ns = 0;
    Py_BEGIN_ALLOW_THREADS
    do
        *moved_ns += parcels_move(parcels, connections, count, &stay, wire_judge_moved, wire);
    while (count == 1 && wire_chain(wire, parcels, connections[0], chain_until));
    Py_END_ALLOW_THREADS
    bool well = true;
    for (int i = 0; i < count; i++) {
        if (well && connections[i] != NULL)
            well = wire_tell(wire, parcels[i].peer) && (!parcels[i].left || parcels[i].got == 0 || wire_feed(wire, &parcels[i]));
        Py_XDECREF(connections[i]);
    }
    return well;
}

/* Take note of when this thread looks, and looked before. */
static void wire_notice(Wire *wire, int64_t before, int64_t now)
{
    if (now - before >= AWAY_NS)
        wire->resigned = RESIGNED_WAITS;
}

/* Let the interpreter go until a socket can be read, or a time. The progress lock is this thread's. */
static void wire_watch(Wire *wire, const Parcel *parcels, int count, int64_t until)
{
    struct pollfd watched[MOST_PARCELS];
    nfds_t watches = 0;
    for (int i = 0; i < count; i++)
        if (parcels_expects(&parcels[i])) {
            ConnectionState *connection = wire_connection(wire, parcels[i].peer);
            if (connection == NULL)
                return;
            watched[watches++] = (struct pollfd){.fd = connection->fd, .events = POLLIN};
        }
    Py_BEGIN_ALLOW_THREADS
    int64_t before = native_monotonic_ns(), now = before;
    while (poll(watched, watches, 0) == 0 && wire->resigned == 0 && now < until) {
        if (wire->yields)
            sched_yield();
        else
            RELAX();
        now = native_monotonic_ns();
        wire_notice(wire, before, now);
        before = now;
    }
    Py_END_ALLOW_THREADS
}

/* Sleep without the interpreter until there is anything to do for the engine, but not for long. */
static void wire_doze(const Wire *wire)
{
    struct pollfd watched = {.fd = wire->descriptor, .events = POLLIN};
    Py_BEGIN_ALLOW_THREADS
    poll(&watched, 1, DOZE_MS);
    Py_END_ALLOW_THREADS
}

/* Let lock and interpreter go, with the progress lock instead, until something comes or a time, or asleep where that is
   0; tell by `held` whether the lock is held again. False with an exception set. */
static bool wire_wait(Wire *wire, Parcel *parcels, int count, int64_t until, bool *held)
{
    if (!wire_take_in(wire, parcels, count))
        return false;
    wire->progress->callers++;
    wire->progress->owner = PyThread_get_thread_ident();
    *held = false;
    for (int i = 0; i < count; i++)
        parcels[i].open = parcels[i].chained = false; /* others may read */
    lock_release(wire->lock);
    bool sleeps = !wire_is_left_something(wire); /* which comes first */
    if (sleeps && until == 0)
        wire_doze(wire);
    else if (sleeps)
        wire_watch(wire, parcels, count, until);
    bool well = PyErr_CheckSignals() == 0; /* else a handler would run within what lets the progress lock go */
    well = arguments_do(wire->stand_up) && well && wire_settle(wire);
    *held = well && wire_enter(wire);
    return well && !PyErr_Occurred();
}

/* Hand over what is half-way, either way. */
static bool wire_leave_rest(Wire *wire, Parcel *parcels, int count)
{
    bool well = true;
    for (int i = 0; i < count; i++) {
        Parcel *parcel = &parcels[i];
        if (parcels_is_leaving(parcel))
            well = wire_keep(wire, parcel) && well;
        if (!parcels_is_half_way(parcel))
            continue;
        parcel->left = true;
        if (well && wire_connection(wire, parcel->peer) != NULL)
            well = wire_feed(wire, parcel);
    }
    return well;
}

/* While nothing comes, make a tag that will be asked for next: of what comes first, then of what goes out. `looks` is how
   often nothing has come. */
static void wire_foresee(const Wire *wire, const Parcel *parcels, int count, int looks)
{
    for (int i = 0; looks <= 2 && i < count; i++) {
        ConnectionState *connection = wire_connection(wire, parcels[i].peer);
        if (connection == NULL || !parcels_expects(&parcels[i]) || parcels[i].headed)
            continue;
        if (looks == 1)
            guards_foresee(connection->theirs, &parcels[i].in);
        else
            guards_foresee(connection->mine, NULL);
    }
}

static void wire_learn(Wire *wire, bool found)
{
    int64_t next = found ? 2 * wire->spin_ns : wire->spin_ns / 2;
    wire->spin_ns = next > wire->most_ns ? wire->most_ns : next < wire->least_ns ? wire->least_ns : next;
}

/* Send what is leaving and receive what is expected, as long as a look may take; the lock is held, and still is
   afterwards if `held` says so. Nothing is half-way whenever it is let go. */
static bool wire_move_all(Wire *wire, Parcel *parcels, int count, bool *held)
{
    int64_t began = 0, now = 0, held_until = 0, until = 0, moved_ns;
    int expected, looks = 0;
    bool some, well, dozed = false;
    Stage stage = STANDS;
    while ((well = wire_look_around(wire, parcels, count, &expected, &some)) &&
           ((stage = wire_stage(parcels, count)) != STANDS || expected > 0)) {
        int64_t before = now;
        now = native_monotonic_ns();
        if (before != 0 && stage == STANDS)
            wire_notice(wire, before, now);
        if (began == 0) {
            began = now;
            until = now + MOVING_NS;
        }
        if (!some)
            wire_foresee(wire, parcels, count, ++looks);
        held_until = held_until == 0 || some ? now + HELD_NS : held_until;
        int64_t patience_ns = wire->resigned > 0 && wire->spin_ns > GLANCE_NS ? GLANCE_NS : wire->spin_ns;
        if (stage == STANDS && now - began >= patience_ns && wire->descriptor >= 0 && (!dozed || some)) {
            dozed = true;
            if (!(well = wire_wait(wire, parcels, count, 0, held)) || !*held)
                break;
            now = 0; /* to sleep is not to be kept away */
            continue;
        }
        if (now - began >= patience_ns + (stage == STANDS ? 0 : STILL_NS) || (stage != STANDS && now >= until))
            break;
        if (stage == LONG_WAY || (stage == HALF_WAY && now >= held_until)) {
            well = wire_move(wire, parcels, count, until, &moved_ns);
            began += moved_ns; /* then nobody was waited for */
        } else if (now < held_until && (stage != STANDS || !wire->yields))
            RELAX();
        else if ((well = wire_wait(wire, parcels, count, began + wire->spin_ns, held)))
            held_until = 1, now = 0; /* it has let others in already, who may have had the processor */
        if (!well || !*held)
            break;
    }
    if (began != 0) {
        wire->waited_ns += native_monotonic_ns() - began;
        wire->resigned -= wire->resigned > 0;
        wire_learn(wire, well && !dozed && expected == 0 && stage == STANDS);
    }
    return well;
}

/* Do what can be done with the lock held; tell by `held` whether it still is. */
static bool wire_carry(Wire *wire, Parcel *parcels, int count, bool *held)
{
    bool well = true;
    for (int i = 0; well && i < count; i++) {
        if (!parcels[i].sent && !wire_fits(wire, &parcels[i]))
            well = wire_ask(wire->refresh, wire->links[parcels[i].peer].rank); /* there may be credit, which nobody has read */
        ConnectionState *connection = wire_connection(wire, parcels[i].peer);
        parcels[i].chained = wire_may_chain(wire, &parcels[i], connection);
        if (well && !parcels[i].sent)
            wire_post(wire, &parcels[i], connection);
    }
    well = well && wire_move_all(wire, parcels, count, held);
    PyObject *error = well ? NULL : arguments_raised();
    bool left = !*held || (wire_leave_rest(wire, parcels, count) && wire_take_in(wire, parcels, count));
    arguments_raise(error);
    return well && left;
}

bool wire_pay(const Wire *wire)
{
    for (int peer = 0; peer < wire->size; peer++)
        if (wire->links[peer].peer != NULL && wire->links[peer].peer->owed_nbytes > 0)
            return arguments_do(wire->pay);
    return true;
}

bool wire_swap(Wire *wire, Parcel *parcels, int count)
{
    for (int i = 0; i < count; i++)
        parcels_begin(&parcels[i]);
    bool held = wire_enter(wire);
    if (!held)
        return !PyErr_Occurred();
    bool well = wire_carry(wire, parcels, count, &held);
    wire->progress->last_drive = (double)native_monotonic_ns() * 1e-9;
    return (!held || wire_leave(wire)) && well;
}

bool wire_glance(Wire *wire, Parcel *parcel)
{
    parcels_begin(parcel);
    if (!wire_enter(wire))
        return !PyErr_Occurred();
    int expected;
    bool some, well = wire_look_around(wire, parcel, 1, &expected, &some);
    well = wire_leave_rest(wire, parcel, 1) && wire_take_in(wire, parcel, 1) && well;
    return wire_leave(wire) && well;
}
