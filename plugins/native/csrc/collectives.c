/* How data passes through the board. All sizes are this rank's own: nothing that another rank has written is a size. */
#include "collectives.h"
#include "shared.h"
#include "streaming.h"

/* A wait without an end must not keep a signal, or the end of the group, from being noticed for longer. */
static const int64_t LOOK_NS = 5000000;
/* How long a wait sleeps before Python looks around for the first time. */
static const int64_t FIRST_DOZE_NS = 20000000;
/* What is reduced is passed on immediately, while it is in the nearest cache. */
enum { PIECE = 8192, LARGE = 65536 };
/* Results of so many bytes are more than the nearer caches hold. */
enum { STREAMED = 2 << 20 };
/* How much is copied from another rank's memory between looks around. */
enum { FETCHED = 4 << 20 };

/* ------------------------------------------------------------------ waiting */

static void collectives_let_go(Call *call)
{
    if (call->holds) {
        call->let_go = PyEval_SaveThread();
        call->holds = false;
    }
}

static void collectives_take_back(Call *call)
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
static bool collectives_look_around(Call *call)
{
    int64_t now = native_monotonic_ns();
    if (now - call->looked_ns < LOOK_NS && !board_given_up(call->board))
        return true;
    call->looked_ns = now;
    bool held = call->holds;
    collectives_take_back(call);
    if (PyErr_CheckSignals() < 0)
        return false;
    if (!held)
        collectives_let_go(call);
    return !board_given_up(call->board) || collectives_wait_for_the_late(call);
}

static bool collectives_meet_all(Call *call)
{
    return board_come(call->board, call->holds) ? collectives_look_around(call) : collectives_wait_for_the_late(call);
}

Ending collectives_exchange(Call *call)
{
    if (!board_come_with(call->board, call->about, call->holds) && !collectives_wait_for_the_late(call))
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

/* ------------------------------------------------------------------ reductions to all */

Ending collectives_one_shot(Call *call, void *array, size_t count, Op op, Kind kind, bool takes)
{
    Board *board = call->board;
    Kind wide = kernels_accumulation_kind(op, kind);
    Merge merge = kernels_merge_of(op, wide);
    unsigned long long parity = collectives_flip(call);
    if (count * kernels_kind_nbytes(wide) > LARGE)
        collectives_let_go(call);
    kernels_widen(board_area(board, board->rank, parity), array, kind, wide, count);
    Ending ending = collectives_exchange(call);
    if (ending != DONE) {
        collectives_take_back(call);
        return ending;
    }
    unsigned char total[PIECE];
    size_t item = kernels_kind_nbytes(wide), step = PIECE / item, narrow_item = kernels_kind_nbytes(kind);
    for (size_t start = 0; takes && start < count; start += step) {
        size_t now = count - start < step ? count - start : step;
        void *into = wide == kind ? (unsigned char *)array + start * item : total;
        merge(into, board_area(board, 0, parity) + start * item, board_area(board, 1, parity) + start * item, now);
        for (int peer = 2; peer < board->size; peer++)
            merge(into, into, board_area(board, peer, parity) + start * item, now);
        if (op == AVG)
            kernels_average(into, wide, now, board->size);
        if (wide != kind)
            kernels_narrow((unsigned char *)array + start * narrow_item, into, kind, wide, now);
    }
    collectives_take_back(call);
    return DONE;
}

typedef struct {
    size_t first, count;
} Share;

/* The part of the block from `start` on that rank `peer` reduces. */
static Share collectives_share_of(size_t total, size_t start, size_t step, int peer, int size)
{
    size_t block = total - start < step ? total - start : step;
    size_t begin = block * (size_t)peer / (size_t)size, end = block * ((size_t)peer + 1) / (size_t)size;
    return (Share){start + begin, end - begin};
}

typedef struct {
    Call *call;
    unsigned char *whole;
    size_t count, step, slot;
    Op op;
    Kind kind, wide;
} TwoShot;

/* Write the contributions to the shares of all others. */
static void collectives_write_shares(TwoShot *t, size_t start, unsigned long long parity)
{
    const Board *board = t->call->board;
    unsigned char *area = board_area(board, board->rank, parity);
    for (int k = 1; k < board->size; k++) {
        int peer = (board->rank + k) % board->size;
        Share share = collectives_share_of(t->count, start, t->step, peer, board->size);
        const unsigned char *from = t->whole + share.first * kernels_kind_nbytes(t->kind);
        kernels_widen(area + t->slot * (size_t)peer, from, t->kind, t->wide, share.count);
    }
}

/* Reduce this rank's share, in the array itself, and write it for the others. */
static void collectives_reduce_share(TwoShot *t, size_t start, unsigned long long parity)
{
    const Board *board = t->call->board;
    Merge merge = kernels_merge_of(t->op, t->wide);
    size_t item = kernels_kind_nbytes(t->kind), wide_item = kernels_kind_nbytes(t->wide), at_once = PIECE / wide_item;
    size_t mine = t->slot * (size_t)board->rank;
    unsigned char scratch[PIECE], *results = board_area(board, board->rank, parity) + mine;
    Share share = collectives_share_of(t->count, start, t->step, board->rank, board->size);
    for (size_t done = 0; done < share.count; done += at_once) {
        size_t now = share.count - done < at_once ? share.count - done : at_once;
        unsigned char *own = t->whole + (share.first + done) * item, *into = t->wide == t->kind ? own : scratch;
        if (into != own)
            kernels_widen(into, own, t->kind, t->wide, now);
        for (int k = 1; k < board->size; k++)
            merge(into, into, board_area(board, (board->rank + k) % board->size, parity) + mine + done * wide_item, now);
        if (t->op == AVG)
            kernels_average(into, t->wide, now, board->size);
        if (into != own)
            kernels_narrow(own, into, t->kind, t->wide, now);
        memcpy(results + done * item, own, now * item);
    }
}

static void collectives_read_results(TwoShot *t, size_t start, unsigned long long parity)
{
    const Board *board = t->call->board;
    size_t item = kernels_kind_nbytes(t->kind);
    for (int k = 1; k < board->size; k++) {
        int peer = (board->rank + k) % board->size;
        Share share = collectives_share_of(t->count, start, t->step, peer, board->size);
        memcpy(t->whole + share.first * item, board_area(board, peer, parity) + t->slot * (size_t)peer, share.count * item);
    }
}

/* Where another rank's array is, which has told its place in memory in common; NULL if that is none. */
static unsigned char *collectives_array_of(const TwoShot *t, const Blocks *blocks, int peer)
{
    uint64_t place = board_told_by(t->call->board, peer) & PLACES;
    return place < (uint64_t)blocks->count ? blocks->first + place * blocks->stride : NULL;
}

/* Reduce this rank's share of each block in all ranks' arrays themselves, which only it reads and writes there. */
static Ending collectives_reduce_in_place(TwoShot *t, const Blocks *blocks)
{
    const Board *board = t->call->board;
    Merge merge = kernels_merge_of(t->op, t->kind);
    size_t item = kernels_kind_nbytes(t->kind), at_once = PIECE / item;
    for (int peer = 0; peer < board->size; peer++)
        if (collectives_array_of(t, blocks, peer) == NULL)
            return GARBLED;
    for (size_t start = 0; start < t->count; start += t->step) {
        Share share = collectives_share_of(t->count, start, t->step, board->rank, board->size);
        for (size_t done = 0; done < share.count; done += at_once) {
            size_t now = share.count - done < at_once ? share.count - done : at_once, at = (share.first + done) * item;
            unsigned char *own = t->whole + at;
            for (int k = 1; k < board->size; k++)
                merge(own, own, collectives_array_of(t, blocks, (board->rank + k) % board->size) + at, now);
            if (t->op == AVG)
                kernels_average(own, t->kind, now, board->size);
            for (int k = 1; k < board->size; k++)
                memcpy(collectives_array_of(t, blocks, (board->rank + k) % board->size) + at, own, now * item);
        }
        if (!collectives_look_around(t->call))
            return BROKEN;
    }
    return collectives_meet_all(t->call) ? DONE : BROKEN;
}

/* Whether all ranks' arrays are in memory that they have in common; if only some are, these write now what others wait for. */
static bool collectives_reduces_in_place(TwoShot *t, const Blocks *blocks, Ending *ending)
{
    uint64_t every, any;
    board_told_in_common(t->call->board, &every, &any);
    if ((any & COMMON) == 0)
        return false;
    bool all = ((every ^ any) & ~(uint64_t)PLACES) == 0;
    if (all) {
        *ending = collectives_reduce_in_place(t, blocks);
        return true;
    }
    if (blocks != NULL)
        collectives_write_shares(t, 0, t->call->written);
    if (!collectives_meet_all(t->call))
        *ending = BROKEN;
    return false;
}

Ending collectives_two_shot(Call *call, void *array, size_t count, Op op, Kind kind, const Blocks *blocks)
{
    Board *board = call->board;
    TwoShot t = {call, array, count, 0, board_slot_nbytes(board, board->size), op, kind, kernels_accumulation_kind(op, kind)};
    t.step = t.slot / kernels_kind_nbytes(t.wide) * (size_t)board->size;
    collectives_let_go(call);
    collectives_flip(call);
    if (blocks == NULL)
        collectives_write_shares(&t, 0, call->written);
    Ending ending = collectives_exchange(call);
    if (ending == DONE && collectives_reduces_in_place(&t, blocks, &ending)) {
        collectives_take_back(call);
        return ending;
    }
    for (size_t start = 0; ending == DONE && start < count; start += t.step) {
        unsigned long long parity = call->written;
        collectives_reduce_share(&t, start, parity);
        if (start + t.step < count)
            collectives_write_shares(&t, start + t.step, collectives_flip(call));
        if (!collectives_meet_all(call))
            ending = BROKEN;
        else
            collectives_read_results(&t, start, parity);
    }
    collectives_take_back(call);
    return ending;
}

/* ------------------------------------------------------------------ from rank to rank */

static size_t collectives_within(Part part, size_t start, size_t room)
{
    size_t left = part.count > start ? part.count - start : 0;
    return left < room ? left : room;
}

static bool collectives_is_fetched(const Route *route, Part part)
{
    return part.count >= route->fetch_count;
}

static void collectives_write_pieces(Call *call, const Route *route, size_t start, size_t room, unsigned long long parity)
{
    const Board *board = call->board;
    unsigned char *area = board_area(board, board->rank, parity);
    for (int i = 0; i < route->sends; i++) {
        Part part = route->send[i].part;
        size_t slot = board_slot_nbytes(board, route->slots) * (size_t)route->send[i].slot;
        size_t now = collectives_within(part, start, room);
        if (collectives_is_fetched(route, part))
            memcpy(area + slot, &part.bytes, start == 0 ? sizeof part.bytes : 0);
        else if (now > 0)
            memcpy(area + slot, part.bytes + start * route->item, now * route->item);
    }
}

static const unsigned char *collectives_piece_of(const Call *call, const Route *route, int i, unsigned long long parity)
{
    size_t slot = board_slot_nbytes(call->board, route->slots) * (size_t)route->take[i].slot;
    return board_area(call->board, route->take[i].peer, parity) + slot;
}

/* Copy what is long from the memory of its owners, and meet: then nobody reads this rank's arrays any more. */
static Ending collectives_fetch(Call *call, const Route *route, const uint64_t addresses[MOST_PARTS])
{
    bool readable = true;
    for (int i = 0; i < route->takes; i++) {
        Part part = route->take[i].part;
        size_t nbytes = part.count * route->item;
        for (size_t done = 0; readable && collectives_is_fetched(route, part) && done < nbytes; done += FETCHED) {
            size_t now = nbytes - done < FETCHED ? nbytes - done : FETCHED;
            readable = board_fetch(call->board, route->take[i].peer, addresses[i] + done, part.bytes + done, now);
            if (!collectives_look_around(call))
                return BROKEN;
        }
    }
    if (!collectives_meet_all(call)) /* here, too, it is heard that a peer has died */
        return BROKEN;
    return readable ? DONE : UNREADABLE;
}

/* Whether the outcome is in memory that all ranks have in common: then it is there already, but for parts that lie elsewhere,
   which their ranks copy to their places. If only some have it there, these write now what the others wait for. */
static bool collectives_have_in_common(Call *call, const Route *route, Part to, Part from, size_t room, Ending *ending)
{
    uint64_t every, any;
    board_told_in_common(call->board, &every, &any);
    if ((any & COMMON) == 0)
        return false;
    bool all = ((every ^ any) & ~(uint64_t)IN_PLACE) == 0;
    if (all && (every & IN_PLACE) != 0)
        return true;
    if (all && to.bytes != from.bytes)
        memcpy(to.bytes, from.bytes, to.count * route->item);
    else if (!all && route->word != 0)
        collectives_write_pieces(call, route, 0, room, call->written);
    if (!collectives_meet_all(call))
        *ending = BROKEN;
    return all;
}

/* What is done with the pieces that have come: from element `start` on, so many of each part at the most. */
typedef void (*Take)(Call *call, const Route *route, size_t start, size_t room, unsigned long long parity, void *more);

static Ending collectives_pass(Call *call, const Route *route, Take take, void *more, Part to, Part from)
{
    size_t room = board_slot_nbytes(call->board, route->slots) / route->item, large = LARGE / route->item;
    uint64_t addresses[MOST_PARTS];
    for (int i = 0; i < route->sends + route->takes; i++)
        if ((i < route->sends ? route->send[i].part : route->take[i - route->sends].part).count > large)
            collectives_let_go(call);
    collectives_flip(call);
    if (route->word == 0)
        collectives_write_pieces(call, route, 0, room, call->written);
    Ending ending = collectives_exchange(call);
    if (ending == DONE && route->common && collectives_have_in_common(call, route, to, from, room, &ending)) {
        collectives_take_back(call);
        return ending;
    }
    uint64_t told = ending == DONE && route->told ? board_longest(call->board) : route->longest, longest = told & ~FETCHES;
    for (int i = 0; ending == DONE && i < route->takes; i++) /* before the place is written to again */
        memcpy(&addresses[i], collectives_piece_of(call, route, i, call->written), sizeof addresses[i]);
    for (uint64_t start = 0; ending == DONE; start += room) {
        unsigned long long parity = call->written;
        bool last = longest <= room || start >= longest - room;
        if (!last)
            collectives_write_pieces(call, route, start + room, room, collectives_flip(call));
        take(call, route, start, room, parity, more);
        if (last)
            break;
        if (!collectives_meet_all(call))
            ending = BROKEN;
    }
    if (ending == DONE && (told & FETCHES) != 0)
        ending = collectives_fetch(call, route, addresses);
    collectives_take_back(call);
    return ending;
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
    Ending ending = collectives_pass(call, route, collectives_copy, &streamed, to, from);
    if (ending == DONE && to.count > 0 && to.bytes != from.bytes)
        collectives_put(to.bytes, from.bytes, to.count * route->item, streamed);
    return ending;
}

typedef struct {
    const unsigned char *own;
    unsigned char *out;
    Op op;
    Kind kind;
    bool streamed;
} Combination;

static void collectives_merge_in(Call *call, const Route *route, size_t start, size_t room, unsigned long long parity, void *more)
{
    const Combination *c = more;
    Merge merge = kernels_merge_of(c->op, c->kind);
    size_t item = route->item, at_once = PIECE / item;
    size_t all = route->takes == 0 ? 0 : collectives_within(route->take[0].part, start, room);
    unsigned char scratch[PIECE];
    for (size_t done = 0; done < all; done += at_once) {
        size_t now = all - done < at_once ? all - done : at_once, at = (start + done) * item;
        const unsigned char *left = c->own + at;
        unsigned char *into = c->streamed ? scratch : c->out + at;
        for (int i = 0; i < route->takes; i++, left = into)
            merge(into, left, collectives_piece_of(call, route, i, parity) + done * item, now);
        if (c->op == AVG)
            kernels_average(into, c->kind, now, call->board->size);
        if (c->streamed)
            streaming_copy(c->out + at, into, now * item);
    }
}

Ending collectives_combine(Call *call, const Route *route, const void *own, void *out, Op op, Kind kind)
{
    bool streamed = route->takes > 0 && route->take[0].part.count * route->item >= STREAMED;
    Combination combination = {own, out, op, kind, streamed};
    return collectives_pass(call, route, collectives_merge_in, &combination, (Part){0}, (Part){0});
}
