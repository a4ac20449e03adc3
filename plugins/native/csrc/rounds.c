#include "transfers.h"

/* One exchange. */
typedef struct {
    const Transfer *transfer;
    PyObject **deadline;
    size_t length; /* how many elements make a segment */
    /* The round that goes on: what it begins with, and of each of its parcels how many elements are reduced. */
    size_t begin;
    int count;
    Parcel parcels[MOST_PARCELS];
    size_t merged[MOST_PARCELS];
} Rounds;

/* How many elements of an array are in the round that goes on. */
static size_t rounds_segment(const Rounds *rounds, Owned array)
{
    size_t all = array.part.count;
    size_t left = all > rounds->begin ? all - rounds->begin : 0;
    return left < rounds->length ? left : rounds->length;
}

static unsigned char *rounds_at(const Rounds *rounds, Owned array)
{
    return array.part.bytes + rounds->begin * rounds->transfer->item;
}

/* ------------------------------------------------------------------ reducing */

/* Reduce what is here, or `all` of it as it is there: own elements first, then those of the others by rank, whoever is
   the first to send them. */
static void rounds_merge(Rounds *rounds, bool all)
{
    const Transfer *transfer = rounds->transfer;
    size_t most = rounds->length;
    for (int i = 0; i < rounds->count; i++) {
        const Parcel *parcel = &rounds->parcels[i];
        Owned into = transfer->into[parcel->peer];
        if (into.owner == NULL)
            continue;
        size_t segment = rounds_segment(rounds, into), came = all ? segment : parcel->headed ? parcels_came(parcel) / transfer->item : 0;
        most = came < most ? came : most;
        transfers_merge(transfer, rounds_at(rounds, into), parcel->peer, &rounds->merged[i], most);
    }
}

static void rounds_digest(void *user)
{
    rounds_merge(user, false);
}

/* ------------------------------------------------------------------ one round */

/* Prepare to send a segment to each rank, and to receive one from there. */
static void rounds_prepare(Rounds *rounds)
{
    const Transfer *transfer = rounds->transfer;
    bool reduces = transfer->op != OPS;
    rounds->count = 0;
    for (int peer = 0; peer < transfer->wire->size; peer++) {
        Owned out = transfer->out[peer], into = transfer->into[peer];
        size_t sent = rounds_segment(rounds, out) * transfer->item, taken = rounds_segment(rounds, into) * transfer->item;
        if (sent == 0 && taken == 0)
            continue;
        unsigned char *room = reduces || taken == 0 ? wire_room(transfer->wire, peer) : rounds_at(rounds, into);
        Parcel *parcel = &rounds->parcels[rounds->count];
        *parcel = (Parcel){.peer = peer, .data = sent == 0 ? NULL : rounds_at(rounds, out), .nbytes = sent, .room = room, .place = room};
        if (reduces && taken > 0) {
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
    PyObject *sides = PyList_New(rounds->transfer->wire->size);
    for (int peer = 0; sides != NULL && peer < rounds->transfer->wire->size; peer++) {
        Owned array = arrays[peer];
        PyObject *side = array.owner == NULL ? Py_NewRef(Py_None) : swaps_range(array, 0, array.part.count * rounds->transfer->item);
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
    const Transfer *transfer = rounds->transfer;
    const char *op = transfer->op == OPS ? NULL : kernels_op_name(transfer->op);
    return swaps_set_deadline(rounds->deadline, PyObject_CallFunction(
        transfer->wire->exchange, "ONN(zO)(nnN)", *rounds->deadline, rounds_sides(rounds, transfer->out), rounds_sides(rounds, transfer->into),
        op, transfer->dtype, (Py_ssize_t)rounds->begin, (Py_ssize_t)(rounds->begin + rounds->length), rounds_lanes(rounds)));
}

/* Make a round; `left` if Python has gone on with it. */
static bool rounds_make(Rounds *rounds, bool *left)
{
    rounds_prepare(rounds);
    bool well = wire_swap(rounds->transfer->wire, rounds->parcels, rounds->count);
    *left = well && !wire_is_done(rounds->parcels, rounds->count);
    if (*left)
        well = rounds_go_on(rounds);
    else if (well && rounds->transfer->op != OPS)
        rounds_merge(rounds, true);
    wire_drop(rounds->parcels, rounds->count);
    return well && PyErr_CheckSignals() == 0;
}

/* ------------------------------------------------------------------ all of them */

static size_t rounds_longest(const Transfer *transfer)
{
    size_t most = 0;
    for (int peer = 0; peer < transfer->wire->size; peer++) {
        size_t out = transfer->out[peer].part.count, into = transfer->into[peer].part.count, longer = out > into ? out : into;
        most = longer > most ? longer : most;
    }
    return most;
}

bool rounds_fit(const Transfer *transfer)
{
    for (int peer = 0; peer < transfer->wire->size; peer++)
        if (transfer->op != OPS && transfer->into[peer].owner != NULL &&
            !wire_has_room(transfer->wire, peer, transfer->nbytes / transfer->item * transfer->item))
            return false;
    return true;
}

Ending rounds_run(const Transfer *transfer, PyObject **deadline)
{
    Rounds rounds = {.transfer = transfer, .deadline = deadline, .length = transfer->nbytes / transfer->item};
    size_t longest = rounds_longest(transfer);
    bool left = false;
    for (; !left && rounds.begin < longest; rounds.begin += rounds.length)
        if (!rounds_make(&rounds, &left))
            return BROKEN;
    return DONE;
}
