/* How data is reduced on its way through the board. */
#include "reductions.h"
#include "reduction.h"
#include "streaming.h"

/* ------------------------------------------------------------------ everyone reduces all */

/* Where a piece of what rank `peer` gives lies. Who takes the outcome alone has written nothing: its own contribution lies where
   the outcome grows, or in `own` if others come before it. */
static const unsigned char *reductions_piece_of(const Call *call, const Reduced *reduced, int peer, size_t at, const unsigned char *own)
{
    if (!reduced->alone || peer != call->board->rank)
        return board_area(call->board, peer, call->written) + at;
    return peer == 0 ? reduced->whole + at : own;
}

Ending reductions_one_shot(Call *call, const Reduced *reduced)
{
    Board *board = call->board;
    Reduction reduction;
    reduction_prepare(&reduction, reduced->op, reduced->kind);
    size_t count = reduced->count, item = reduction.item;
    unsigned char own[REDUCTION_NBYTES];
    collectives_flip(call);
    if (count * item > LARGE)
        collectives_let_go(call);
    if (!reduced->alone)
        board_put(board, call->written, 0, reduced->whole, count * item);
    Ending ending = collectives_exchange(call);
    for (size_t done = 0, now; ending == DONE && reduced->takes && done < count; done += now) {
        size_t at = done * item;
        unsigned char *out = reduced->whole + at;
        now = reduction_now(&reduction, count - done);
        if (reduced->alone && board->rank > 0)
            memcpy(own, out, now * item);
        reduction_begin(&reduction, reductions_piece_of(call, reduced, 0, at, own), out, now);
        for (int peer = 1; peer < board->size; peer++)
            reduction_add(&reduction, reductions_piece_of(call, reduced, peer, at, own));
        reduction_end(&reduction, out, board->size);
    }
    collectives_take_back(call);
    return ending;
}

/* ------------------------------------------------------------------ each reduces a share */

typedef struct {
    size_t first, count;
} Share;

/* The part of the block from `start` on that rank `peer` reduces. */
static Share reductions_share_of(size_t total, size_t start, size_t step, int peer, int size)
{
    size_t block = total - start < step ? total - start : step;
    size_t begin = block * (size_t)peer / (size_t)size, end = block * ((size_t)peer + 1) / (size_t)size;
    return (Share){start + begin, end - begin};
}

/* `step` is how many elements a block has, and `slot` how many bytes a slot. */
typedef struct {
    Call *call;
    const Reduced *reduced;
    size_t step, slot;
    Reduction reduction;
} TwoShot;

static int reductions_other(const Board *board, int k)
{
    return (board->rank + k) % board->size;
}

/* Write the contributions to the shares of all others. */
static void reductions_write_shares(TwoShot *t, size_t start, unsigned long long parity)
{
    Board *board = t->call->board;
    size_t item = t->reduction.item;
    for (int k = 1; k < board->size; k++) {
        int peer = reductions_other(board, k);
        Share share = reductions_share_of(t->reduced->count, start, t->step, peer, board->size);
        board_put(board, parity, t->slot * (size_t)peer, t->reduced->whole + share.first * item, share.count * item);
    }
}

/* Reduce this rank's share, and write it for the others; those that do not take the outcome keep their arrays. */
static void reductions_reduce_share(TwoShot *t, size_t start, unsigned long long parity)
{
    const Board *board = t->call->board;
    Reduction *reduction = &t->reduction;
    size_t item = reduction->item, mine = t->slot * (size_t)board->rank;
    unsigned char *results = board_area(board, board->rank, parity) + mine;
    Share share = reductions_share_of(t->reduced->count, start, t->step, board->rank, board->size);
    for (size_t done = 0, now; done < share.count; done += now) {
        unsigned char *own = t->reduced->whole + (share.first + done) * item;
        unsigned char *result = results + done * item, *out = t->reduced->takes ? own : result;
        now = reduction_now(reduction, share.count - done);
        reduction_begin(reduction, own, out, now);
        for (int k = 1; k < board->size; k++)
            reduction_add(reduction, board_area(board, reductions_other(board, k), parity) + mine + done * item);
        reduction_end(reduction, out, board->size);
        if (out != result)
            board_put(t->call->board, parity, mine + done * item, out, now * item);
    }
}

static void reductions_read_results(TwoShot *t, size_t start, unsigned long long parity)
{
    const Board *board = t->call->board;
    size_t item = t->reduction.item;
    for (int k = 1; k < board->size && t->reduced->takes; k++) {
        int peer = reductions_other(board, k);
        Share share = reductions_share_of(t->reduced->count, start, t->step, peer, board->size);
        memcpy(t->reduced->whole + share.first * item, board_area(board, peer, parity) + t->slot * (size_t)peer, share.count * item);
    }
}

/* Where another rank's array is, which has told its place in memory in common; NULL if that is none. */
static unsigned char *reductions_array_of(const TwoShot *t, const Blocks *blocks, int peer)
{
    uint64_t place = board_told_by(t->call->board, peer) & PLACES;
    return place < (uint64_t)blocks->count ? blocks->first + place * blocks->stride : NULL;
}

/* Reduce this rank's share of each block in all ranks' arrays themselves, which only it reads and writes there. */
static Ending reductions_reduce_in_place(TwoShot *t, const Blocks *blocks)
{
    const Board *board = t->call->board;
    Reduction *reduction = &t->reduction;
    size_t item = reduction->item, count = t->reduced->count;
    for (int peer = 0; peer < board->size; peer++)
        if (reductions_array_of(t, blocks, peer) == NULL)
            return GARBLED;
    for (size_t start = 0; start < count; start += t->step) {
        Share share = reductions_share_of(count, start, t->step, board->rank, board->size);
        for (size_t done = 0, now; done < share.count; done += now) {
            size_t at = (share.first + done) * item;
            unsigned char *own = t->reduced->whole + at;
            now = reduction_now(reduction, share.count - done);
            reduction_begin(reduction, own, own, now);
            for (int k = 1; k < board->size; k++)
                reduction_add(reduction, reductions_array_of(t, blocks, reductions_other(board, k)) + at);
            reduction_end(reduction, own, board->size);
            for (int k = 1; k < board->size; k++)
                memcpy(reductions_array_of(t, blocks, reductions_other(board, k)) + at, own, now * item);
        }
        if (!collectives_look_around(t->call))
            return BROKEN;
    }
    return collectives_meet_all(t->call) ? DONE : BROKEN;
}

/* Whether all ranks' arrays are in memory that they have in common; if only some are, these write now what others wait for. */
static bool reductions_goes_in_place(TwoShot *t, const Blocks *blocks, Ending *ending)
{
    uint64_t every, any;
    board_told_in_common(t->call->board, &every, &any);
    if ((any & COMMON) == 0)
        return false;
    bool all = ((every ^ any) & ~(uint64_t)PLACES) == 0;
    if (all) {
        *ending = reductions_reduce_in_place(t, blocks);
        return true;
    }
    if (blocks != NULL)
        reductions_write_shares(t, 0, t->call->written);
    if (!collectives_meet_all(t->call))
        *ending = BROKEN;
    return false;
}

Ending reductions_two_shot(Call *call, const Reduced *reduced, const Blocks *blocks)
{
    Board *board = call->board;
    TwoShot t; /* most of it is scratch, which needs no zeros */
    t.call = call;
    t.reduced = reduced;
    t.slot = board_slot_nbytes(board, board->size);
    reduction_prepare(&t.reduction, reduced->op, reduced->kind);
    t.step = t.slot / t.reduction.item * (size_t)board->size;
    collectives_let_go(call);
    collectives_flip(call);
    if (blocks == NULL)
        reductions_write_shares(&t, 0, call->written);
    Ending ending = collectives_exchange(call);
    if (ending == DONE && reductions_goes_in_place(&t, blocks, &ending)) {
        collectives_take_back(call);
        return ending;
    }
    for (size_t start = 0; ending == DONE && start < reduced->count; start += t.step) {
        unsigned long long parity = call->written;
        reductions_reduce_share(&t, start, parity);
        if (start + t.step < reduced->count)
            reductions_write_shares(&t, start + t.step, collectives_flip(call));
        if (!collectives_meet_all(call))
            ending = BROKEN;
        else
            reductions_read_results(&t, start, parity);
    }
    collectives_take_back(call);
    return ending;
}

/* ------------------------------------------------------------------ each reduces what it is sent */

typedef struct {
    const unsigned char *own;
    unsigned char *out;
    bool streamed;
    Reduction reduction;
} Combination;

static void reductions_merge_in(Call *call, const Route *route, size_t start, size_t room, unsigned long long parity, void *more)
{
    Combination *c = more;
    Reduction *reduction = &c->reduction;
    size_t item = route->item, all = route->takes == 0 ? 0 : collectives_within(route->take[0].part, start, room);
    unsigned char scratch[REDUCTION_NBYTES];
    for (size_t done = 0, now; done < all; done += now) {
        size_t at = (start + done) * item;
        unsigned char *out = c->streamed ? scratch : c->out + at;
        now = reduction_now(reduction, all - done);
        reduction_begin(reduction, c->own + at, out, now);
        for (int i = 0; i < route->takes; i++)
            reduction_add(reduction, collectives_piece_of(call, route, i, parity) + done * item);
        reduction_end(reduction, out, call->board->size);
        if (c->streamed)
            streaming_copy(c->out + at, scratch, now * item);
    }
}

Ending reductions_combine(Call *call, const Route *route, const void *own, void *out, Op op, Kind kind)
{
    Combination combination;
    combination.own = own;
    combination.out = out;
    combination.streamed = route->takes > 0 && route->take[0].part.count * route->item >= STREAMED;
    reduction_prepare(&combination.reduction, op, kind);
    return collectives_pass(call, route, reductions_merge_in, &combination, &(Kept){0});
}
