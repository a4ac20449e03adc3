/* How data passes through the board. All sizes are this rank's own: nothing that another rank has written is a size. */
#include "collectives.h"
#include "copies.h"
#include "shared.h"
#include "streaming.h"

/* A wait without an end must not keep a signal, or the end of the group, from being noticed for longer. */
static const int64_t LOOK_NS = 5000000;
/* How long a wait sleeps before Python looks around for the first time. */
static const int64_t FIRST_DOZE_NS = 20000000;
/* After how long those that read from a rank have begun, if they want it to write as well: so long, and a nanosecond more for so
   many bytes, which is little beside what it saves. */
static const int64_t BEGUN_NS = 200000;
enum { BEGUN_PER_NS = 32 };

/* ------------------------------------------------------------------ waiting */

void collectives_begin(Call *call)
{
    Meanwhile begin = call->begin;
    call->begin = (Meanwhile){0};
    if (begin.run != NULL)
        begin.run(begin.what);
}

void collectives_let_go(Call *call)
{
    collectives_begin(call);
    if (call->holds) {
        call->let_go = PyEval_SaveThread();
        call->holds = false;
    }
}

void collectives_take_back(Call *call)
{
    if (!call->holds) {
        PyEval_RestoreThread(call->let_go);
        call->holds = true;
    }
}

/* For how long a call may sleep before its deadline begins to count: little beside that, and not at all once it does. */
static int64_t collectives_first_doze_ns(const Call *call)
{
    if (call->deadline == Py_None)
        return FIRST_DOZE_NS;
    double timeout_s = PyFloat_CheckExact(call->deadline) ? PyFloat_AS_DOUBLE(call->deadline) : 0;
    return timeout_s * 1e8 < (double)FIRST_DOZE_NS ? (int64_t)(timeout_s * 1e8) : FIRST_DOZE_NS;
}

/* Sleep for the first time, which needs nothing of Python's; tell whether all have come. */
static bool collectives_doze(Call *call)
{
    int64_t longest_ns = collectives_first_doze_ns(call);
    if (longest_ns == 0 || board_given_up(call->board))
        return false;
    bool held = call->holds;
    collectives_let_go(call);
    bool all = board_doze(call->board, longest_ns);
    if (held)
        collectives_take_back(call);
    return all;
}

/* Returns with the interpreter, and an exception set, or as it was called. */
static bool collectives_wait_for_the_late(Call *call)
{
    if (collectives_doze(call))
        return true;
    bool held = call->holds;
    collectives_take_back(call);
    PyObject *deadline = PyObject_CallOneArg(call->await, call->deadline);
    if (deadline == NULL)
        return false;
    Py_SETREF(call->deadline, deadline);
    if (!held)
        collectives_let_go(call);
    return true;
}

/* Notice, in the midst of large data, what waits would have noticed. */
bool collectives_look_around(Call *call)
{
    int64_t now = native_monotonic_ns();
    if (call->looked_ns == 0)
        call->looked_ns = now;
    if (now - call->looked_ns < LOOK_NS && !board_given_up(call->board))
        return true;
    bool held = call->holds;
    collectives_take_back(call); /* from a busy thread this takes as long */
    call->looked_ns = native_monotonic_ns();
    if (PyErr_CheckSignals() < 0)
        return false;
    if (!held)
        collectives_let_go(call);
    return !board_given_up(call->board) || collectives_wait_for_the_late(call);
}

bool collectives_meet_all(Call *call)
{
    collectives_begin(call);
    return board_come(call->board, call->holds) ? collectives_look_around(call) : collectives_wait_for_the_late(call);
}

Ending collectives_exchange(Call *call)
{
    Meanwhile begin = call->begin;
    call->begin = (Meanwhile){0};
    if (!board_come_with(call->board, call->about, call->holds, begin) && !collectives_wait_for_the_late(call))
        return BROKEN;
    return board_alike(call->board, call->about) ? DONE : UNLIKE;
}

unsigned long long collectives_flip(Call *call)
{
    return call->written = call->board->parity ^= 1;
}

Ending collectives_meet(Call *call)
{
    collectives_flip(call);
    return collectives_exchange(call);
}

/* ------------------------------------------------------------------ from rank to rank */

size_t collectives_within(Part part, size_t start, size_t room)
{
    size_t left = part.count > start ? part.count - start : 0;
    return left < room ? left : room;
}

/* Where the slot of a rank is in another's area. */
static size_t collectives_slot(const Board *board, const Route *route, int rank)
{
    return route->slots == 1 ? 0 : board_slot_nbytes(board, route->slots) * (size_t)rank;
}

static bool collectives_is_fetched(const Route *route, Part part)
{
    return part.count >= route->fetch_count;
}

static void collectives_write_pieces(Call *call, const Route *route, size_t start, size_t room, unsigned long long parity)
{
    Board *board = call->board;
    for (int i = 0; i < route->sends; i++) {
        Part part = route->send[i].part;
        size_t slot = collectives_slot(board, route, route->send[i].peer);
        size_t now = collectives_within(part, start, room);
        if (collectives_is_fetched(route, part))
            memcpy(board_area(board, board->rank, parity) + slot, &part.bytes, start == 0 ? sizeof part.bytes : 0);
        else if (now > 0)
            board_put(board, parity, slot, part.bytes + start * route->item, now * route->item);
    }
}

const unsigned char *collectives_piece_of(const Call *call, const Route *route, int i, unsigned long long parity)
{
    return board_area(call->board, route->take[i].peer, parity) + collectives_slot(call->board, route, call->board->rank);
}

static void collectives_put(void *to, const void *from, size_t nbytes, bool streamed)
{
    if (streamed)
        streaming_copy(to, from, nbytes);
    else
        memcpy(to, from, nbytes);
}

/* Whether what comes is too large for the caches. */
static bool collectives_streams(const Route *route)
{
    size_t nbytes = 0;
    for (int i = 0; i < route->takes; i++)
        nbytes += route->take[i].part.count * route->item;
    return nbytes >= STREAMED;
}

/* Have what this rank has for itself at its place. */
static void collectives_keep(const Route *route, Kept *kept)
{
    if (!kept->there && kept->to.count > 0 && kept->to.bytes != kept->from.bytes)
        collectives_put(kept->to.bytes, kept->from.bytes, kept->to.count * route->item, collectives_streams(route));
    kept->there = true;
}

static size_t collectives_longest_of(const Route *route)
{
    size_t longest = 0;
    for (int i = 0; i < route->sends; i++)
        longest = route->send[i].part.count > longest ? route->send[i].part.count : longest;
    for (int i = 0; i < route->takes; i++)
        longest = route->take[i].part.count > longest ? route->take[i].part.count : longest;
    return longest;
}

/* Whether others may still read what an array lies over. */
static bool collectives_offers(const Route *route, Part array)
{
    bool offers = false;
    for (int i = 0; i < route->sends; i++)
        offers = offers || collectives_touch(route->send[i].part, array, route->item);
    return offers;
}

/* Which of the parts that this rank takes is the only one that is fetched; -1 if there are more, or none. */
static int collectives_only_fetched(const Route *route)
{
    int only = -1, count = 0;
    for (int i = 0; i < route->takes; i++)
        if (collectives_is_fetched(route, route->take[i].part)) {
            only = i;
            count++;
        }
    return count == 1 ? only : -1;
}

/* Read a part from the memory of its owner. If it is `shared` that one may write pieces of it, until this rank and it have met. */
static Ending collectives_read(Call *call, Part part, size_t item, int owner, uint64_t address, bool shared, bool *readable)
{
    const Board *board = call->board;
    Joint *joint = board_copy_of(board, board->rank);
    size_t nbytes = part.count * item;
    Copied copied;
    joint_open(joint, shared ? board_ident_of(board, owner) : 0, nbytes, part.bytes);
    while ((copied = copies_read_last(joint, board->pids[owner], address, part.bytes, nbytes)) == COPIED)
        if (!collectives_look_around(call))
            return BROKEN;
    *readable = copied != REFUSED;
    if (!*readable)
        joint_shut(joint);
    return DONE;
}

static Ending collectives_read_all(Call *call, const Route *route, const uint64_t addresses[MOST_PARTS], bool *readable)
{
    Ending ending = DONE;
    int only = call->lends ? collectives_only_fetched(route) : -1;
    for (int i = 0; i < route->takes && ending == DONE && *readable; i++)
        if (collectives_is_fetched(route, route->take[i].part))
            ending = collectives_read(call, route->take[i].part, route->item, route->take[i].peer, addresses[i], i == only, readable);
    return ending;
}

/* Whether this rank has something for others to read, nothing to read itself, and a processor. Where it is one of several that
   a root reads from, that reads from one after the other. */
static bool collectives_may_help(const Call *call, const Route *route)
{
    const Board *board = call->board;
    bool alone = board->size == 2 || route->sends > 1 || route->send[0].peer == TO_ALL;
    return call->lends && route->takes == 0 && route->sends > 0 && alone && board->patience.may_spin && board->writes;
}

/* Write a piece of a part that a rank reads, if any is left; tell whether it was one, or that rank has not begun. */
static void collectives_write(Board *board, Part part, size_t item, int peer, bool *copied, bool *awaited)
{
    Joint *joint = board_copy_of(board, peer);
    uint32_t ident = board_ident_of(board, board->rank);
    Copied now = copies_write_first(joint, ident, board->pids[peer], part.bytes, part.count * item);
    board->writes = now != REFUSED;
    *copied = *copied || now == COPIED;
    *awaited = *awaited || !joint_is_known(joint, ident);
}

/* Write a piece to each rank that reads from this one. */
static Ending collectives_write_to_each(Call *call, const Route *route, bool *copied, bool *awaited)
{
    Board *board = call->board;
    *copied = *awaited = false;
    for (int i = 0; i < route->sends; i++)
        for (int k = 1; k < board->size && board->writes; k++) {
            int peer = (board->rank + k) % board->size;
            if ((route->send[i].peer != TO_ALL && route->send[i].peer != peer) || !collectives_is_fetched(route, route->send[i].part))
                continue;
            collectives_write(board, route->send[i].part, route->item, peer, copied, awaited);
            if (!collectives_look_around(call))
                return BROKEN;
        }
    return DONE;
}

/* Write what others read, until nothing is left. Those that have not begun after a while read everything: they have no compiled
   parts, or have not got a processor. */
static Ending collectives_help(Call *call, const Route *route)
{
    int64_t until = native_monotonic_ns() + BEGUN_NS + (int64_t)(collectives_longest_of(route) * route->item / BEGUN_PER_NS);
    bool copied, awaited;
    do {
        if (collectives_write_to_each(call, route, &copied, &awaited) == BROKEN)
            return BROKEN;
        RELAX();
    } while (call->board->writes && (copied || (awaited && native_monotonic_ns() < until)));
    return DONE;
}

/* Have each rank that may still write to this one's arrays stop; if one stands in the midst of a piece, they have to stay. */
static Ending collectives_break_off(Call *call, const Route *route)
{
    Joint *joint = board_copy_of(call->board, call->board->rank);
    if (route->takes > 0) {
        joint_shut(joint);
        call->written_to = joint_is_written_to(joint);
    }
    return BROKEN;
}

/* Copy what is long from the memory of its owners, and meet: then nobody reads this rank's arrays any more, or writes to them.
   `left` is 0, or of how many elements the longest part is, as some rank could not copy: so it is with memory of a device's
   driver. */
static Ending collectives_fetch(Call *call, const Route *route, const uint64_t addresses[MOST_PARTS], Kept *kept, uint64_t *left)
{
    Board *board = call->board;
    bool copied = true, helps = collectives_may_help(call, route);
    Ending ending = helps ? collectives_help(call, route) : collectives_read_all(call, route, addresses, &copied);
    if (ending == BROKEN)
        return collectives_break_off(call, route);
    if (!collectives_offers(route, kept->to)) /* the others are still at work */
        collectives_keep(route, kept);
    copied = copied && (board->writes || !helps);
    const uint64_t about[RECORD_WORDS] = {[LONGEST] = collectives_longest_of(route) | (copied ? 0 : FETCHES)};
    bool come = board_come_with(board, about, call->holds, (Meanwhile){0});
    if (!(come ? collectives_look_around(call) : collectives_wait_for_the_late(call))) /* here, too, it is heard that a peer has died */
        return collectives_break_off(call, route);
    uint64_t told = board_longest(board), longest = route->told ? told & ~FETCHES : collectives_longest_of(route);
    *left = (told & FETCHES) != 0 ? longest : 0;
    return DONE;
}

/* Whether the outcome is in memory that all ranks have in common: then it is there already, but for parts that lie elsewhere,
   which their ranks copy to their places. If only some have it there, these write now what the others wait for. */
static bool collectives_have_in_common(Call *call, const Route *route, Kept *kept, size_t room, Ending *ending)
{
    uint64_t every, any;
    board_told_in_common(call->board, &every, &any);
    if ((any & COMMON) == 0)
        return false;
    bool all = ((every ^ any) & ~(uint64_t)IN_PLACE) == 0;
    if (all && (every & IN_PLACE) != 0)
        return true;
    if (all)
        collectives_keep(route, kept);
    else if (route->word != 0)
        collectives_write_pieces(call, route, 0, room, call->written);
    if (!collectives_meet_all(call))
        *ending = BROKEN;
    return all;
}

/* Take piece after piece, the first of which has been written, and write the next meanwhile. */
static Ending collectives_take_pieces(Call *call, const Route *route, uint64_t longest, size_t room, TakePieces take, void *more)
{
    for (uint64_t start = 0;; start += room) {
        unsigned long long parity = call->written;
        bool last = longest <= room || start >= longest - room;
        if (!last)
            collectives_write_pieces(call, route, start + room, room, collectives_flip(call));
        take(call, route, start, room, parity, more);
        if (last)
            return DONE;
        if (!collectives_meet_all(call))
            return BROKEN;
    }
}

/* Take what is passed through the slots, and then what is fetched; all of it through the slots where that cannot be. */
static Ending collectives_take(Call *call, const Route *route, size_t room, TakePieces take, void *more, Kept *kept)
{
    uint64_t told = route->told ? board_longest(call->board) : route->longest, addresses[MOST_PARTS], left = 0;
    for (int i = 0; i < route->takes; i++) /* before the place is written to again */
        memcpy(&addresses[i], collectives_piece_of(call, route, i, call->written), sizeof addresses[i]);
    Ending ending = collectives_take_pieces(call, route, told & ~FETCHES, room, take, more);
    if (ending == DONE && (told & FETCHES) != 0)
        ending = collectives_fetch(call, route, addresses, kept, &left);
    if (ending != DONE || left == 0)
        return ending;
    Route whole = *route;
    whole.fetch_count = SIZE_MAX;
    collectives_write_pieces(call, &whole, 0, room, collectives_flip(call));
    return collectives_meet_all(call) ? collectives_take_pieces(call, &whole, left, room, take, more) : BROKEN;
}

Ending collectives_pass(Call *call, const Route *route, TakePieces take, void *more, Kept *kept)
{
    size_t room = board_slot_nbytes(call->board, route->slots) / route->item;
    if (collectives_longest_of(route) > LARGE / route->item)
        collectives_let_go(call);
    collectives_flip(call);
    if (route->word == 0)
        collectives_write_pieces(call, route, 0, room, call->written);
    Ending ending = collectives_exchange(call);
    bool there = ending == DONE && route->common && collectives_have_in_common(call, route, kept, room, &ending);
    if (ending == DONE && !there)
        ending = collectives_take(call, route, room, take, more, kept);
    collectives_take_back(call);
    return ending;
}

static void collectives_copy(Call *call, const Route *route, size_t start, size_t room, unsigned long long parity, void *more)
{
    bool streamed = *(bool *)more;
    for (int i = 0; i < route->takes; i++) {
        Part part = route->take[i].part;
        size_t now = collectives_within(part, start, room);
        if (now > 0 && !collectives_is_fetched(route, part))
            collectives_put(part.bytes + start * route->item, collectives_piece_of(call, route, i, parity), now * route->item, streamed);
    }
}

Ending collectives_move(Call *call, const Route *route, Part to, Part from)
{
    bool streamed = collectives_streams(route);
    Kept kept = {to, from, false};
    Ending ending = collectives_pass(call, route, collectives_copy, &streamed, &kept);
    if (ending == DONE)
        collectives_keep(route, &kept);
    return ending;
}
