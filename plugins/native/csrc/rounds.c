#include "rounds.h"

/* The tag of what is exchanged. */
#define COLLECTIVE_TAG 0x40000001u
/* What is reduced is worked on in pieces that stay in the nearest cache. */
enum { ROUNDS_PIECE = 8192 };

/* How many elements of an array are in the round that goes on. */
static size_t rounds_segment(const Rounds *rounds, PyArrayObject *array)
{
    size_t all = array == NULL ? 0 : (size_t)PyArray_SIZE(array);
    size_t left = all > rounds->begin ? all - rounds->begin : 0;
    return left < rounds->length ? left : rounds->length;
}

static unsigned char *rounds_at(const Rounds *rounds, PyArrayObject *array)
{
    return (unsigned char *)PyArray_DATA(array) + rounds->begin * rounds->item;
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
        PyArrayObject *into = rounds->into[parcel->peer];
        if (into == NULL)
            continue;
        size_t segment = rounds_segment(rounds, into), came = all ? segment : parcel->headed ? parcels_came(parcel) / item : 0;
        most = came < most ? came : most;
        for (size_t now; rounds->merged[i] < most; rounds->merged[i] += now) {
            size_t at = rounds->merged[i] * item;
            now = most - rounds->merged[i] < step ? most - rounds->merged[i] : step;
            unsigned char *mine = rounds_at(rounds, into) + at;
            merge(mine, mine, wire_room(rounds->wire, parcel->peer) + at, now);
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
    for (int peer = 0; peer < rounds->wire->size; peer++) {
        PyArrayObject *out = rounds->out[peer], *into = rounds->into[peer];
        size_t sent = rounds_segment(rounds, out) * rounds->item, taken = rounds_segment(rounds, into) * rounds->item;
        if (sent == 0 && taken == 0)
            continue;
        unsigned char *room = rounds_reduces(rounds) || taken == 0 ? wire_room(rounds->wire, peer) : rounds_at(rounds, into);
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

/* Tell what is left of a round: what it begins and ends with, and of each rank whether anything must still be sent or
   has yet to come, how many elements are reduced, and what to wait for. */
static PyObject *rounds_left(const Rounds *rounds)
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
    return lanes == NULL ? NULL : Py_BuildValue("(nnN)", (Py_ssize_t)rounds->begin, (Py_ssize_t)(rounds->begin + rounds->length), lanes);
}

/* Make a round: true, what is left of it, or NULL with an exception set. */
static PyObject *rounds_make(Rounds *rounds)
{
    rounds_prepare(rounds);
    if (!wire_swap(rounds->wire, rounds->parcels, rounds->count)) {
        wire_drop(rounds->parcels, rounds->count);
        return NULL;
    }
    if (!wire_is_done(rounds->parcels, rounds->count)) {
        PyObject *left = rounds_left(rounds);
        wire_drop(rounds->parcels, rounds->count);
        return left;
    }
    if (rounds_reduces(rounds))
        rounds_merge(rounds, true);
    return PyErr_CheckSignals() == 0 ? Py_NewRef(Py_True) : NULL;
}

/* ------------------------------------------------------------------ all of them */

static size_t rounds_longest(const Rounds *rounds)
{
    size_t most = 0;
    for (int peer = 0; peer < rounds->wire->size; peer++)
        for (int side = 0; side < 2; side++) {
            PyArrayObject *array = side == 0 ? rounds->out[peer] : rounds->into[peer];
            size_t count = array == NULL ? 0 : (size_t)PyArray_SIZE(array);
            most = count > most ? count : most;
        }
    return most;
}

bool rounds_fit(const Rounds *rounds)
{
    for (int peer = 0; peer < rounds->wire->size; peer++)
        if (rounds_reduces(rounds) && rounds->into[peer] != NULL && !wire_has_room(rounds->wire, peer, rounds->length * rounds->item))
            return false;
    return true;
}

PyObject *rounds_run(Rounds *rounds)
{
    size_t longest = rounds_longest(rounds);
    PyObject *made = Py_NewRef(Py_True);
    for (rounds->begin = 0; made == Py_True && rounds->begin < longest; rounds->begin += rounds->length)
        Py_SETREF(made, rounds_make(rounds));
    return made;
}
