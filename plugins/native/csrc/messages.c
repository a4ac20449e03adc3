/* The shortcuts for messages between ranks that share memory: straight from the program's array into the ring and from
   there into the other program's array. Whatever is out of the ordinary is left to Python's engine: another message that
   comes first, a receive that waits already, a peer that leaves, anything that takes long.

   The engine's lock guards all that is looked at here. Python's objects do not change while this holds the interpreter,
   so a look at whether anybody has the lock takes its place; who lets the interpreter go takes the lock, or the seat. */
#include "messages.h"
#include "arguments.h"
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* Long messages pass in pieces, so that the receiver reads while the sender writes; and no more than this at a time, so
   that they stay in the caches. */
enum { PIECE_NBYTES = 32 << 10, UNREAD_NBYTES = 512 << 10 };
/* Where ranks share processors the receiver had better read the sender's memory from here on, if it may. Where each has its
   own, one that writes to the ring and one that reads there are faster while the message stays in the caches; from the second
   length on two are that each copy half of it from array to array. */
enum { READ_FROM_NBYTES = 128 << 10, READ_ALWAYS_NBYTES = 4 << 20 };
/* Which part of its window is received from a peer before it gets credit for it. */
enum { CREDITED_PARTS = 4 };
/* After so long somebody else must have a say. */
static const int64_t LOOK_NS = 5000000;
/* For how long a receive sleeps before Python goes on; a time-out begins to count there. */
enum { DOZE_MS = 4 };

/* ------------------------------------------------------------------ arguments */

static bool messages_mark_of(Messages *messages, PyArrayObject *array, unsigned *mark)
{
    int kind = arguments_kind(array), place = kind == BF16 ? BFLOAT16 : PyArray_TYPE(array);
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

static void messages_go_by(Messages *messages, Letter *letter, int peer)
{
    letter->peer = peer;
    letter->way = &messages->ways[peer];
}

/* Take the rank that a message goes to or comes from; None is any, which serves where each can be looked at. */
static bool messages_take_peer(Messages *messages, Letter *letter, PyObject *given)
{
    letter->way = NULL;
    letter->first = messages->ways;
    letter->end = messages->ways + messages->size;
    if (given == Py_None)
        return messages->all_near;
    long name = PyLong_AsLong(given);
    /* Most groups have all ranks, where each has its own place. */
    int at = name >= 0 && name < messages->size && messages->ways[name].name == name ? (int)name : 0;
    while (at < messages->size && messages->ways[at].name != name)
        at++;
    if (at == messages->size || messages->ways[at].rings == NULL)
        return false;
    messages_go_by(messages, letter, at);
    letter->first = letter->way;
    letter->end = letter->way + 1;
    return true;
}

bool messages_take_arguments(Messages *messages, Letter *letter, PyObject *const *args, Py_ssize_t count, bool written)
{
    if ((count != TAG + 1 && count != ARGUMENTS) || !(PyLong_CheckExact(args[1]) || (written && args[1] == Py_None)) || !PyLong_CheckExact(args[2]))
        return false;
    long tag = PyLong_AsLong(args[2]);
    letter->array = arguments_plain(args[0], written);
    if (letter->array == NULL || tag < 0 || tag > (long)messages->most_tag || !messages_mark_of(messages, letter->array, &letter->mark))
        return false;
    letter->tag = (unsigned)tag;
    letter->serial = letter->came_nbytes = 0;
    letter->received = written;
    letter->waited_ns = messages->patience.waited_ns;
    letter->nbytes = (size_t)PyArray_NBYTES(letter->array);
    return messages_take_peer(messages, letter, args[1]);
}

/* ------------------------------------------------------------------ whether nothing is in the way */

bool messages_has_failed(const Messages *messages)
{
    return messages->turn->closed || messages->failure->failing;
}

bool messages_sound(const Messages *messages, const Way *way)
{
    return way->rings->out != NULL && !way->rings->closing && !messages_has_failed(messages) &&
           !messages->engine->leaving && way->peer->connection == (PyObject *)way->pipe && !lock_is_held(messages->lock);
}

/* Whether nothing is before what is written now. */
bool messages_is_idle(const Way *way)
{
    return state_is_none(way->pipe->rest) && PyObject_Size(way->pipe->queue) == 0;
}

bool messages_may_send(const Messages *messages, const Way *way)
{
    return messages_sound(messages, way) && messages_is_idle(way) && state_is_none(way->peer->gone);
}

/* Whether a message with this tag, or a receive that it would meet, waits already. */
static bool messages_is_awaited(Messages *messages, const Letter *letter)
{
    if (messages_is_kept(messages, letter) || messages_has_fresh(messages, letter))
        return true;
    if (PyDict_GET_SIZE(messages->receives) == 0)
        return false;
    bool found = hooks_has_key(messages->receives, Py_BuildValue("(IO)", letter->tag, Py_None));
    for (Way *way = letter->first; way < letter->end && !found; way++)
        found = hooks_has_key(messages->receives, Py_BuildValue("(Ii)", letter->tag, (int)(way - messages->ways)));
    return found;
}

/* Whether all ways that it may come by stand. */
static bool messages_all_sound(const Messages *messages, const Letter *letter)
{
    for (const Way *way = letter->first; way < letter->end; way++)
        if (way->rings != NULL && !messages_sound(messages, way))
            return false;
    return true;
}

static bool messages_may_receive(Messages *messages, const Letter *letter)
{
    return messages->progress->owner == 0 && messages_all_sound(messages, letter) && !messages_is_awaited(messages, letter);
}

/* ------------------------------------------------------------------ flow control */

/* Count a message against the peer's window. */
static void messages_spend(const Messages *messages, const Letter *letter)
{
    letter->way->window->unconfirmed += letter->nbytes + messages->message_nbytes;
}

bool messages_count(Messages *messages, Way *way, uint64_t nbytes)
{
    way->due += nbytes + messages->message_nbytes;
    if (way->due < messages->window_nbytes / CREDITED_PARTS)
        return true;
    if (messages_may_send(messages, way) && rings_write(way->rings, (Frame){.first = CREDIT, .length = way->due}, NULL, 0)) {
        rings_wake(way->rings);
        way->due = 0;
        return true;
    }
    PyErr_Clear();
    uint64_t due = way->due - messages->message_nbytes; /* Python counts this beside the bytes */
    way->due = 0;
    PyObject *told = PyObject_CallFunction(messages->taken, "iK", (int)(way - messages->ways), (unsigned long long)due);
    Py_XDECREF(told);
    return told != NULL;
}

/* ------------------------------------------------------------------ the recorder */

void messages_begin_noting(Messages *messages, Letter *letter, PyObject *op, int64_t began_ns)
{
    letter->serial = trail_begin_message(messages->trail, op, (PyObject *)PyArray_DESCR(letter->array), (int64_t)letter->nbytes,
                                         letter->way == NULL ? -1 : letter->way->name, (long)letter->tag, 0, began_ns);
}

static void messages_end_noting(Messages *messages, const Letter *letter)
{
    trail_end_message(messages->trail, letter->serial, letter->way->name, messages->patience.waited_ns - letter->waited_ns);
}

/* An error says so in the recorder too, if the message stands there. */
static void messages_note_error(Messages *messages, const Letter *letter)
{
    if (letter->serial != 0)
        trail_break_message(messages->trail, letter->serial);
}

/* ------------------------------------------------------------------ long messages: without the interpreter */

/* Give the lock back, and do what others have left to its holder. */
static bool messages_give_lock_back(Messages *messages)
{
    lock_release(messages->lock);
    return PyObject_Size(messages->deferred) == 0 ? !PyErr_Occurred() : arguments_do(messages->settle);
}

static bool messages_has_room(void *what)
{
    return rings_unread(what) + PIECE_NBYTES <= UNREAD_NBYTES && rings_fit(what, PIECE_NBYTES);
}

bool messages_has_news(void *what)
{
    return rings_have_news(what);
}

bool messages_finish(Messages *messages, PyObject *rest, const char *verb, const Letter *letter)
{
    PyObject *done = rest == NULL ? NULL : PyObject_CallFunction(messages->finish, "Osi", rest, verb, letter->peer);
    Py_XDECREF(rest);
    Py_XDECREF(done);
    return done != NULL;
}

static size_t messages_write_pieces(Messages *messages, const Letter *letter, const unsigned char *data)
{
    Rings *rings = letter->way->rings;
    size_t sent = 0;
    int64_t until = native_monotonic_ns() + LOOK_NS;
    while (sent < letter->nbytes) {
        size_t now = letter->nbytes - sent < PIECE_NBYTES ? letter->nbytes - sent : PIECE_NBYTES;
        if (messages_has_room(rings) && rings_write(rings, (Frame){.first = PIECE, .length = now}, data + sent, now)) {
            rings_wake(rings);
            sent += now;
        } else if (!patience_look(&messages->patience, messages_has_room, rings, false) || native_monotonic_ns() > until) {
            break;
        }
    }
    return sent;
}

static size_t messages_read_pieces(Messages *messages, const Letter *letter, unsigned char *data, size_t length)
{
    Rings *rings = letter->way->rings;
    size_t filled = 0;
    int64_t until = native_monotonic_ns() + LOOK_NS;
    Frame frame;
    while (filled < length) {
        if (!rings_next(rings, &frame)) {
            if (!patience_look(&messages->patience, messages_has_news, rings, false) || native_monotonic_ns() > until)
                break;
            continue;
        }
        if (rings_kind_of(&frame) != PIECE || frame.length > length - filled || frame.length > frame.room)
            break; /* Python says what is wrong */
        memcpy(data + filled, frame.payload, frame.length);
        filled += frame.length;
        rings_advance(rings, frame.length);
    }
    return filled;
}

static bool messages_send_long(Messages *messages, Letter *letter, Frame header)
{
    Rings *rings = letter->way->rings;
    unsigned char *data = PyArray_DATA(letter->array);
    size_t sent;
    if (!lock_try(messages->lock))
        return false;
    int64_t began_ns = native_monotonic_ns();
    if (!rings_write(rings, header, NULL, 0)) {
        messages_give_lock_back(messages);
        return false;
    }
    messages_begin_noting(messages, letter, text_send, began_ns);
    messages_spend(messages, letter);
    rings_enter(rings);
    Py_BEGIN_ALLOW_THREADS
    sent = messages_write_pieces(messages, letter, data);
    Py_END_ALLOW_THREADS
    rings_leave(rings);
    if (sent == letter->nbytes)
        return messages_give_lock_back(messages);
    PyObject *rest = PyObject_CallFunction(messages->go_on_sending, "OiIn", letter->array, letter->peer, letter->tag, (Py_ssize_t)sent);
    if (!messages_give_lock_back(messages))
        Py_CLEAR(rest);
    return messages_finish(messages, rest, "send to", letter);
}

/* Take credit that comes before the message. */
static bool messages_take_credit(const Way *way, const Frame *frame)
{
    if (rings_kind_of(frame) != CREDIT || frame->length > way->window->unconfirmed)
        return false;
    way->window->unconfirmed -= frame->length;
    rings_advance(way->rings, 0);
    return true;
}

bool messages_stand_up(Messages *messages)
{
    return arguments_do(messages->stand_up);
}

/* ------------------------------------------------------------------ sending */

static Frame messages_header(const Letter *letter)
{
    return (Frame){.first = rings_frame_word(MESSAGE, letter->tag), .length = letter->nbytes, .marks = (uint64_t)letter->mark << 32};
}

static bool messages_fits(const Messages *messages, const Letter *letter)
{
    return letter->way->window->unconfirmed + letter->nbytes + messages->message_nbytes <= messages->window_nbytes;
}

static bool messages_is_brief(const Letter *letter)
{
    return letter->nbytes <= (size_t)letter->way->rings->eager_nbytes;
}

/* Send a brief message; false, without an error, if there is no room. */
static bool messages_send_brief(Messages *messages, Letter *letter, PyObject *op)
{
    Frame header = messages_header(letter);
    Rings *rings = letter->way->rings;
    int64_t began_ns = native_monotonic_ns(); /* no message is received before it was sent */
    if (!rings_write(rings, header, PyArray_DATA(letter->array), letter->nbytes))
        return false;
    rings_wake(rings);
    messages_begin_noting(messages, letter, op, began_ns); /* what does not wait need not be noted before */
    messages_spend(messages, letter);
    return true;
}

PyObject *messages_py_send(Messages *messages, PyObject *const *args, Py_ssize_t count)
{
    Letter letter;
    if (!messages_take_arguments(messages, &letter, args, count, false) || !messages_may_send(messages, letter.way))
        return arguments_declined(Py_False);
    bool sent = false, fits = messages_fits(messages, &letter), brief = messages_is_brief(&letter);
    bool may_read = letter.way->pid > 0 && (!messages->patience.may_spin || letter.nbytes >= READ_ALWAYS_NBYTES);
    if (may_read && letter.nbytes >= READ_FROM_NBYTES && (!brief || rings_awaited(letter.way->rings, letter.tag)))
        sent = messages_send_offer(messages, &letter); /* a brief message that nobody waits for must not wait either */
    else if (fits && brief)
        sent = messages_send_brief(messages, &letter, text_send);
    else if (fits)
        sent = messages_send_long(messages, &letter, messages_header(&letter));
    if (sent)
        messages_end_noting(messages, &letter);
    else if (PyErr_Occurred())
        messages_note_error(messages, &letter);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(sent);
}

/* Begin to send, which is the end of it if there is room; a message that is not brief is offered. Else nothing is done. */
PyObject *messages_py_isend(Messages *messages, PyObject *const *args, Py_ssize_t count)
{
    Letter letter;
    if (count != ARGUMENTS || !messages_take_arguments(messages, &letter, args, count, false) || !messages_may_send(messages, letter.way))
        return arguments_declined(Py_None);
    if (!messages_is_brief(&letter) && letter.way->pid > 0)
        return messages_begin_offer(messages, &letter, args);
    if (!messages_is_brief(&letter) || !messages_fits(messages, &letter) || !messages_send_brief(messages, &letter, text_isend))
        return arguments_declined(Py_None);
    messages_end_noting(messages, &letter);
    return messages_work(messages, &letter, args, NULL, trail_ticket(messages->trail, letter.serial));
}

/* ------------------------------------------------------------------ receiving */

static Taken messages_take_long(Messages *messages, Letter *letter, uint64_t length, bool *seated)
{
    Rings *rings = letter->way->rings;
    unsigned char *data = PyArray_DATA(letter->array);
    size_t filled;
    if (!lock_try(messages->lock))
        return NOTHING;
    rings_advance(rings, 0);
    rings_enter(rings);
    Py_BEGIN_ALLOW_THREADS
    filled = messages_read_pieces(messages, letter, data, length);
    Py_END_ALLOW_THREADS
    rings_leave(rings);
    if (filled == length)
        return messages_give_lock_back(messages) && messages_count(messages, letter->way, length) ? TAKEN : FAILED;
    PyObject *rest = PyObject_CallFunction(messages->go_on_receiving, "OiIKn", letter->array, letter->peer, letter->tag,
                                           (unsigned long long)length, (Py_ssize_t)filled);
    bool well = messages_give_lock_back(messages);
    if ((*seated && !messages_stand_up(messages)) || !well)
        Py_CLEAR(rest);
    *seated = false;
    return messages_finish(messages, rest, "recv from", letter) ? TAKEN : FAILED;
}

bool messages_has_frame(Messages *messages, const Way *way, Frame *frame)
{
    do {
        /* What has been taken in may have ended the group. */
        if (PyErr_Occurred() || !messages_sound(messages, way) || !rings_next(way->rings, frame))
            return false;
    } while (messages_take_credit(way, frame) || messages_meet_offered(messages, way, frame) || messages_meet_posted(messages, way, frame));
    return true;
}

/* Find the way by which a frame has come. One from anyone is looked for behind the way of the last, so that each rank has
   its turn. */
static bool messages_meet(Messages *messages, Letter *letter, Frame *frame)
{
    if (letter->way != NULL)
        return messages_has_frame(messages, letter->way, frame);
    for (int n = 1; n <= messages->size; n++) {
        int peer = (messages->latest + n) % messages->size;
        if (messages->ways[peer].rings == NULL || !messages_has_frame(messages, &messages->ways[peer], frame))
            continue;
        messages_go_by(messages, letter, messages->latest = peer);
        return true;
    }
    return false;
}

/* The next frame, if it may be what is wanted. */
static bool messages_next(Messages *messages, Letter *letter, Frame *frame)
{
    unsigned wanted = letter->mark == messages->raw ? 0 : letter->mark;
    return messages_meet(messages, letter, frame) && frame->length <= letter->nbytes && (wanted == 0 || frame->marks >> 32 == wanted);
}

static bool messages_is_the_message(const Messages *messages, const Letter *letter, const Frame *frame)
{
    return frame->first == rings_frame_word(MESSAGE, letter->tag) && frame->length <= messages->window_nbytes;
}

/* Take a brief message. */
static Taken messages_take_brief(Messages *messages, Letter *letter, const Frame *frame)
{
    if (frame->length > frame->room)
        return NOTHING;
    memcpy(PyArray_DATA(letter->array), frame->payload, frame->length);
    rings_advance(letter->way->rings, frame->length);
    letter->came_nbytes = frame->length;
    return messages_count(messages, letter->way, frame->length) ? TAKEN : FAILED;
}

/* Take the next message if it is the one that is wanted. */
static Taken messages_take(Messages *messages, Letter *letter, bool *seated)
{
    Frame frame;
    if (!messages_next(messages, letter, &frame))
        return NOTHING;
    if (frame.first == (rings_frame_word(OFFER, letter->tag) | READABLE) && frame.address != 0 && letter->way->pid > 0)
        return messages_take_offer(messages, letter, frame);
    if (!messages_is_the_message(messages, letter, &frame))
        return NOTHING;
    if (frame.length > (uint64_t)letter->way->rings->eager_nbytes)
        return messages_take_long(messages, letter, frame.length, seated);
    return messages_take_brief(messages, letter, &frame);
}

/* What Python calls the rank that a message comes from. */
static PyObject *messages_source(const Letter *letter)
{
    return messages_is_anyones(letter) ? Py_NewRef(Py_None) : PyLong_FromLong(letter->peer);
}

/* Learn from Python by which way a message has come, and how long it is; None for none. */
static Taken messages_learn(Messages *messages, Letter *letter, PyObject *told)
{
    int peer = -1;
    unsigned long long nbytes = 0;
    bool well = told != NULL && (told == Py_None || PyArg_ParseTuple(told, "iK", &peer, &nbytes));
    Py_XDECREF(told);
    if (!well)
        return FAILED;
    if (peer < 0 || peer >= messages->size)
        return NOTHING;
    messages_go_by(messages, letter, peer);
    letter->came_nbytes = nbytes;
    return TAKEN;
}

/* Take a message that Python has taken in before. */
static Taken messages_claim(Messages *messages, Letter *letter)
{
    if (!messages_is_kept(messages, letter) || messages_has_failed(messages) || messages->engine->leaving)
        return NOTHING;
    if (PyErr_Occurred())
        return FAILED;
    PyObject *told = PyObject_CallFunction(messages->claim, "ONII", letter->array, messages_source(letter), letter->tag, letter->mark);
    return messages_learn(messages, letter, told);
}

/* Take a brief message that is the next. */
static Taken messages_take_next(Messages *messages, Letter *letter)
{
    Frame frame;
    if (!messages_may_receive(messages, letter) || !messages_next(messages, letter, &frame) ||
        !messages_is_the_message(messages, letter, &frame) || frame.length > (uint64_t)letter->way->rings->eager_nbytes)
        return NOTHING;
    return messages_take_brief(messages, letter, &frame);
}

/* Take a message that is here. */
static Taken messages_take_now(Messages *messages, Letter *letter)
{
    Taken taken = messages_claim(messages, letter);
    return taken == NOTHING ? messages_take_next(messages, letter) : taken;
}

/* Note a receive that has ended; false if it has failed. */
static bool messages_end_receiving(Messages *messages, const Letter *letter, Taken taken)
{
    if (taken == TAKEN)
        messages_end_noting(messages, letter);
    else
        messages_note_error(messages, letter);
    return taken == TAKEN;
}

/* Begin to receive, which is the end of it if a message is there. */
PyObject *messages_py_irecv(Messages *messages, PyObject *const *args, Py_ssize_t count)
{
    Letter letter;
    if (count != ARGUMENTS || !messages_take_arguments(messages, &letter, args, count, true))
        return arguments_declined(Py_None);
    Taken taken = messages_take_now(messages, &letter);
    if (taken == NOTHING)
        return PyErr_Occurred() ? arguments_declined(Py_None) : messages_post(messages, &letter, args);
    messages_begin_noting(messages, &letter, text_irecv, 0);
    if (!messages_end_receiving(messages, &letter, taken))
        return NULL;
    return messages_work(messages, &letter, args, NULL, trail_ticket(messages->trail, letter.serial));
}

/* Take the seat, which is free: the interpreter is let go, and nobody else may read the rings. */
static void messages_sit_down(Messages *messages)
{
    messages->progress->callers++;
    messages->progress->owner = PyThread_get_thread_ident();
}

/* Whether something has come by any of the ways of a letter. */
static bool messages_any_news(void *what)
{
    const Letter *letter = what;
    for (const Way *way = letter->first; way < letter->end; way++)
        if (way->rings != NULL && rings_have_news(way->rings))
            return true;
    return false;
}

/* Begin or end to use the memory of all ways of a letter; tell whether they are there. */
static bool messages_use(const Letter *letter, void (*begin_or_end)(Rings *))
{
    bool there = true;
    for (const Way *way = letter->first; way < letter->end; way++)
        if (way->rings != NULL) {
            there = there && way->rings->out != NULL && !way->rings->closing;
            begin_or_end(way->rings);
        }
    return there;
}

/* Whether nothing waits for room: whoever makes it rings too, but there may be some already. */
static bool messages_all_idle(const Letter *all)
{
    for (const Way *way = all->first; way < all->end; way++)
        if (way->rings != NULL && (way->rings->out == NULL || !messages_is_idle(way)))
            return false;
    return true;
}

/* Where this rank tells those that write to it that it sleeps. */
static Word *messages_asleep(const Messages *messages, const Letter *letter)
{
    const Way *way = letter->first;
    while (way->rings == NULL)
        way++;
    return (Word *)(uintptr_t)((unsigned char *)way->rings->memory.buf + messages->asleep);
}

static void messages_sleep_at_bell(const Messages *messages)
{
    struct pollfd watched = {.fd = messages->descriptor, .events = POLLIN};
    unsigned char rung[64];
    if (poll(&watched, 1, DOZE_MS) > 0) {
        ssize_t heard = read(messages->bell, rung, sizeof rung); /* nothing if something else has woken it */
        (void)heard;
    }
}

/* Sleep until anything comes by any way, or there is anything else to do for the engine, but not for long. Where all that
   comes is written to memory, a word wakes: of a pipe the system believes that the writer is about to sleep, and has the
   reader run in its place, where neither finds the other at work. */
static void messages_doze(const Messages *messages, Letter *all, Word *asleep)
{
    atomic_store_explicit(asleep, messages->all_near ? AT_WORD : AT_BELL, memory_order_relaxed);
    /* Either a peer, which looks there once it has written, sees that this rank sleeps, or this rank sees what it wrote. */
    atomic_thread_fence(memory_order_seq_cst);
    if (messages_any_news(all))
        ;
    else if (messages->all_near)
        rings_sleep_at_word(asleep, DOZE_MS);
    else
        messages_sleep_at_bell(messages);
    atomic_store_explicit(asleep, AWAKE, memory_order_relaxed);
    rings_note_processor(asleep);
}

/* Whether one of those whose message is looked for is next on this rank's processor. */
static bool messages_keeps_from_coming(const Letter *letter)
{
    for (const Way *way = letter->first; way < letter->end; way++)
        if (way->rings != NULL && rings_share_processor(way->rings))
            return true;
    return false;
}

/* Handle signals now: else their handlers would run within what gives the seat back. An interrupt has ended a wait alone. */
static bool messages_undisturbed(const Messages *messages)
{
    if (PyErr_CheckSignals() == 0)
        return true;
    PyObject *error = arguments_raised(), *told = PyObject_CallOneArg(messages->only_waited, error);
    Py_XDECREF(told);
    arguments_raise(error);
    return false;
}

/* Look, and sleep if that is in vain, with the seat. The thread that takes in what comes for idle engines may be asleep
   already; then it is Python that wakes it. */
static bool messages_look_seated(Messages *messages, Letter *letter)
{
    Letter all = *letter;
    all.first = messages->ways;
    all.end = messages->ways + messages->size;
    Word *asleep = messages->descriptor >= 0 && messages_all_idle(&all) ? messages_asleep(messages, letter) : NULL;
    int64_t slept_ns = 0;
    bool come;
    messages_use(&all, rings_enter);
    if (asleep != NULL)
        rings_note_processor(asleep);
    bool in_vain = asleep != NULL && messages->patience.may_spin && messages_keeps_from_coming(letter);
    Py_BEGIN_ALLOW_THREADS
    come = !in_vain && patience_look(&messages->patience, messages_any_news, letter, false);
    if (!come && asleep != NULL && atomic_load_explicit(asleep, memory_order_relaxed) == AWAKE) {
        int64_t began_ns = native_monotonic_ns();
        messages_doze(messages, &all, asleep);
        slept_ns = native_monotonic_ns() - began_ns;
        come = messages_any_news(letter);
    }
    Py_END_ALLOW_THREADS
    bool there = messages_use(&all, rings_leave);
    messages->patience.waited_ns += slept_ns;
    if (come && slept_ns > 0)
        patience_learn(&messages->patience, slept_ns);
    return messages_undisturbed(messages) && there && come;
}

bool messages_look(Messages *messages, Letter *letter, bool *seated)
{
    int brief = messages->patience.may_spin && messages_keeps_from_coming(letter) ? 1 : BRIEF;
    for (int n = 0; n < brief; n++) {
        if (messages_any_news(letter))
            return true;
        RELAX();
    }
    if (!*seated)
        messages_sit_down(messages);
    *seated = true;
    return messages_look_seated(messages, letter);
}

/* Receive a message that is not here. Who waits for anyone does not say so: each that reads it might wait until its message
   is read, and one of them is. */
static Taken messages_await(Messages *messages, Letter *letter)
{
    bool seated = false, come;
    int looks = 0;
    Taken taken = NOTHING;
    do {
        if (!messages_is_anyones(letter))
            rings_wait_for(letter->way->rings, letter->tag); /* what was read since is no word of it any more */
        come = messages_look(messages, letter, &seated);
        if (come && (!seated || !lock_is_held(messages->lock)))
            taken = messages_take(messages, letter, &seated);
        if (PyErr_Occurred())
            taken = FAILED;
    } while (come && taken == NOTHING && !messages_any_news(letter) && ++looks < MOST_LOOKS); /* it was credit */
    if (seated && !messages_stand_up(messages))
        taken = FAILED;
    if (taken != NOTHING)
        return taken;
    int64_t began_ns = native_monotonic_ns();
    PyObject *told = PyObject_CallFunction(messages->receive, "ONI", letter->array, messages_source(letter), letter->tag);
    if (!come)
        patience_learn(&messages->patience, native_monotonic_ns() - began_ns);
    return messages_learn(messages, letter, told);
}

PyObject *messages_py_recv(Messages *messages, PyObject *const *args, Py_ssize_t count)
{
    Letter letter;
    if (!messages_take_arguments(messages, &letter, args, count, true))
        return arguments_declined(Py_None);
    Taken taken = messages_take_now(messages, &letter);
    if (taken == NOTHING && (PyErr_Occurred() || !messages_may_receive(messages, &letter)))
        return arguments_declined(Py_None);
    messages_begin_noting(messages, &letter, text_recv, 0);
    if (taken == NOTHING)
        taken = messages_await(messages, &letter);
    if (taken == FAILED && !messages_is_anyones(&letter) && letter.way->rings->out != NULL)
        rings_wait_no_more(letter.way->rings);
    return messages_end_receiving(messages, &letter, taken) ? PyLong_FromLong(letter.way->name) : NULL;
}
