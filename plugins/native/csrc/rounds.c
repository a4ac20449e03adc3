#include "rounds.h"

/* The tag of what is exchanged. */
#define COLLECTIVE_TAG 0x40000001u
/* What is reduced is worked on in pieces that stay in the nearest cache. */
enum { ROUNDS_PIECE = 8192 };

/* How many elements of an array are in the round that goes on. */
static size_t rounds_segment(const Rounds *rounds, Owned array)
{
    size_t all = array.part.count;
    size_t left = all > rounds->begin ? all - rounds->begin : 0;
    return left < rounds->length ? left : rounds->length;
}

static unsigned char *rounds_at(const Rounds *rounds, Owned array)
{
    return array.part.bytes + rounds->begin * rounds->item;
}

/* ------------------------------------------------------------------ reducing */

/* Reduce what is here, or `all` of it as it is there: own elements first, then those of the others by rank, whoever is
   the first to send them. */
static void rounds_merge(Rounds *rounds, bool all)
{
    Merge merge = kernels_merge_of(rounds->op, rounds->kind);
    size_t item = rounds->item, step = ROUNDS_PIECE / item, most = rounds->length;
    for (int i = 0; i < rounds->count; i++) {
        const Parcel *parcel = &rounds->parcels[i];
        Owned into = rounds->into[parcel->peer];
        if (into.owner == NULL)
            continue;
        size_t segment = rounds_segment(rounds, into), came = all ? segment : parcel->headed ? parcels_came(parcel) / item : 0;
        most = came < most ? came : most;
        for (size_t now; rounds->merged[i] < most; rounds->merged[i] += now) {
            size_t at = rounds->merged[i] * item;
            now = most - rounds->merged[i] < step ? most - rounds->merged[i] : step;
            unsigned char *mine = rounds_at(rounds, into) + at;
            merge(mine, mine, wire_room(rounds->swap->wire, parcel->peer) + at, now);
        }
    }
}

static void rounds_digest(void *user)
{
    rounds_merge(user, false);
}

/* ------------------------------------------------------------------ one round */

static bool rounds_reduces(const Rounds *rounds)
{
    return rounds->op != OPS;
}

/* Prepare to send a segment to each rank, and to receive one from there. */
static void rounds_prepare(Rounds *rounds)
{
    rounds->count = 0;
    for (int peer = 0; peer < rounds->swap->size; peer++) {
        Owned out = rounds->out[peer], into = rounds->into[peer];
        size_t sent = rounds_segment(rounds, out) * rounds->item, taken = rounds_segment(rounds, into) * rounds->item;
        if (sent == 0 && taken == 0)
            continue;
        unsigned char *room = rounds_reduces(rounds) || taken == 0 ? wire_room(rounds->swap->wire, peer) : rounds_at(rounds, into);
        Parcel *parcel = &rounds->parcels[rounds->count];
        *parcel = (Parcel){.peer = peer, .data = sent == 0 ? NULL : rounds_at(rounds, out), .nbytes = sent, .room = room, .place = room};
        if (rounds_reduces(rounds) && taken > 0) {
            parcel->digest = rounds_digest;
            parcel->user = rounds;
        }
        if (sent > 0)
            parcel->out = wire_message_head(COLLECTIVE_TAG, sent, 0);
        if (taken > 0)
            parcel->in = wire_message_head(COLLECTIVE_TAG, taken, 0);
        rounds->merged[rounds->count++] = 0;
    }
}

/* Of each rank of a round whether anything must still be sent or has yet to come, how many elements are reduced, and what
   to wait for. */
static PyObject *rounds_lanes(const Rounds *rounds)
{
    PyObject *lanes = PyList_New(rounds->count);
    for (int i = 0; lanes != NULL && i < rounds->count; i++) {
        const Parcel *parcel = &rounds->parcels[i];
        PyObject *rest = parcel->rest == NULL ? Py_None : parcel->rest;
        PyObject *lane = Py_BuildValue("(iOOnO)", parcel->peer, parcel->sent ? Py_False : Py_True, parcel->taken ? Py_False : Py_True,
                                       (Py_ssize_t)rounds->merged[i], rest);
        if (lane == NULL)
            Py_CLEAR(lanes);
        else
            PyList_SET_ITEM(lanes, i, lane);
    }
    return lanes;
}

/* Of each rank the array that goes there or comes from there, and which of its bytes; None for nothing. */
static PyObject *rounds_sides(const Rounds *rounds, const Owned *arrays)
{
    PyObject *sides = PyList_New(rounds->swap->size);
    for (int peer = 0; sides != NULL && peer < rounds->swap->size; peer++) {
        Owned array = arrays[peer];
        PyObject *side = array.owner == NULL ? Py_NewRef(Py_None) : swaps_range(array, 0, array.part.count * rounds->item);
        if (side == NULL)
            Py_CLEAR(sides);
        else
            PyList_SET_ITEM(sides, peer, side);
    }
    return sides;
}

/* Let Python go on with a round and all that follow. */
static bool rounds_go_on(const Rounds *rounds)
{
    const char *op = rounds_reduces(rounds) ? kernels_op_name(rounds->op) : NULL;
    return swaps_set_deadline(rounds->swap, PyObject_CallFunction(
        rounds->swap->wire->exchange, "ONN(zO)(nnN)", *rounds->swap->deadline, rounds_sides(rounds, rounds->out), rounds_sides(rounds, rounds->into),
        op, rounds->dtype, (Py_ssize_t)rounds->begin, (Py_ssize_t)(rounds->begin + rounds->length), rounds_lanes(rounds)));
}

/* Make a round; `left` if Python has gone on with it. */
static bool rounds_make(Rounds *rounds, bool *left)
{
    rounds_prepare(rounds);
    bool well = wire_swap(rounds->swap->wire, rounds->parcels, rounds->count);
    *left = well && !wire_is_done(rounds->parcels, rounds->count);
    if (*left)
        well = rounds_go_on(rounds);
    else if (well && rounds_reduces(rounds))
        rounds_merge(rounds, true);
    wire_drop(rounds->parcels, rounds->count);
    return well && PyErr_CheckSignals() == 0;
}

/* ------------------------------------------------------------------ all of them */

static size_t rounds_longest(const Rounds *rounds)
{
    size_t most = 0;
    for (int peer = 0; peer < rounds->swap->size; peer++) {
        size_t out = rounds->out[peer].part.count, into = rounds->into[peer].part.count, longer = out > into ? out : into;
        most = longer > most ? longer : most;
    }
    return most;
}

bool rounds_fit(const Rounds *rounds)
{
    for (int peer = 0; peer < rounds->swap->size; peer++)
        if (rounds_reduces(rounds) && rounds->into[peer].owner != NULL && !wire_has_room(rounds->swap->wire, peer, rounds->length * rounds->item))
            return false;
    return true;
}

Ending rounds_run(Rounds *rounds)
{
    size_t longest = rounds_longest(rounds);
    bool left = false;
    for (rounds->begin = 0; !left && rounds->begin < longest; rounds->begin += rounds->length)
        if (!rounds_make(rounds, &left))
            return BROKEN;
    return DONE;
}
