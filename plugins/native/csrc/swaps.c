#include "swaps.h"
#include "arguments.h"
#include "reduction.h"
#include <string.h>

/* ------------------------------------------------------------------ what goes where */

Owned swaps_whole(PyArrayObject *array)
{
    return array == NULL ? (Owned){0} : (Owned){array, {PyArray_DATA(array), (size_t)PyArray_SIZE(array)}};
}

PyObject *swaps_range(Owned array, size_t begin, size_t end)
{
    Py_ssize_t at = array.part.bytes - (unsigned char *)PyArray_DATA(array.owner);
    return Py_BuildValue("(O(nn))", (PyObject *)array.owner, at + (Py_ssize_t)begin, at + (Py_ssize_t)end);
}

bool swaps_set_deadline(PyObject **place, PyObject *deadline)
{
    if (deadline != NULL)
        Py_SETREF(*place, deadline);
    return deadline != NULL;
}

/* What goes to a rank besides the record. */
static Part swaps_to(const Given *given, int peer)
{
    const Route *route = &given->route;
    if (given->key.name == ALL_REDUCE)
        return given->whole;
    for (int i = 0; i < route->sends; i++)
        if (route->send[i].peer == TO_ALL || route->send[i].peer == peer)
            return route->send[i].part;
    return (Part){0};
}

/* And what comes from it. */
static Part swaps_from(const Given *given, int peer)
{
    const Route *route = &given->route;
    if (given->key.name == ALL_REDUCE)
        return given->whole;
    for (int i = 0; i < route->takes; i++)
        if (route->take[i].peer == peer)
            return route->take[i].part;
    return (Part){0};
}

bool swaps_fit(const Wire *wire, const Given *given)
{
    for (int peer = 0; peer < wire->size; peer++) {
        size_t to = swaps_to(given, peer).count, from = swaps_from(given, peer).count;
        if (peer != wire->rank && !wire_has_room(wire, peer, WIRE_RECORD_NBYTES + (to > from ? to : from) * given->route.item))
            return false;
    }
    return true;
}

void swaps_address(Swap *swap, int k, const void *data, size_t nbytes, size_t expected)
{
    Parcel *parcel = &swap->parcels[k - 1];
    parcel->peer = (swap->wire->rank + k) % swap->wire->size;
    parcel->out = wire_message_head(FINGERPRINT_TAG, WIRE_RECORD_NBYTES + nbytes, 0);
    parcel->in = wire_message_head(FINGERPRINT_TAG, WIRE_RECORD_NBYTES + expected, 0);
    parcel->record = (const unsigned char *)swap->about;
    parcel->record_nbytes = WIRE_RECORD_NBYTES;
    parcel->data = data;
    parcel->nbytes = nbytes;
    parcel->room = wire_room(swap->wire, parcel->peer);
    parcel->room_nbytes = WIRE_RECORD_NBYTES;
    parcel->place = parcel->room + WIRE_RECORD_NBYTES;
}

static const unsigned char *swaps_data(const Swap *swap, int peer)
{
    return swap->parcels[(peer - swap->wire->rank + swap->wire->size) % swap->wire->size - 1].place;
}

/* ------------------------------------------------------------------ the exchange */

/* What Python needs to go on: of each parcel its peer, what must still be sent, whether it has come, and what to wait for. */
static PyObject *swaps_state(Swap *swap, int count)
{
    PyObject *state = PyList_New(count);
    for (int i = 0; state != NULL && i < count; i++) {
        Parcel *parcel = &swap->parcels[i];
        PyObject *data = parcel->sent ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((const char *)parcel->data, (Py_ssize_t)parcel->nbytes);
        PyObject *one = Py_BuildValue("(iNOO)", parcel->peer, data, parcel->taken ? Py_True : Py_False, parcel->rest == NULL ? Py_None : parcel->rest);
        if (one == NULL)
            Py_CLEAR(state);
        else
            PyList_SET_ITEM(state, i, one);
    }
    return state;
}

/* Let Python go on; `misfit` tells whether something of another length has come. */
static bool swaps_finish(Swap *swap, int count, bool *misfit)
{
    PyObject *state = swaps_state(swap, count), *deadline, *lengths;
    PyObject *record = PyBytes_FromStringAndSize((const char *)swap->about, WIRE_RECORD_NBYTES);
    PyObject *done = state == NULL || record == NULL ? NULL : PyObject_CallFunction(swap->wire->finish, "OOO", *swap->deadline, record, state);
    if (done != NULL && PyArg_ParseTuple(done, "OO!", &deadline, &PyList_Type, &lengths)) {
        swaps_set_deadline(swap->deadline, Py_NewRef(deadline));
        for (int i = 0; i < count; i++) {
            PyObject *length = i < PyList_GET_SIZE(lengths) ? PyList_GET_ITEM(lengths, i) : NULL;
            long long nbytes = length == NULL ? -1 : PyLong_AsLongLong(length);
            *misfit = *misfit || (!swap->parcels[i].taken && nbytes != (long long)swap->parcels[i].in.length);
        }
    }
    Py_XDECREF(state);
    Py_XDECREF(record);
    Py_XDECREF(done);
    return !PyErr_Occurred();
}

/* Whether all have made the same call. */
static bool swaps_alike(const Swap *swap, int count)
{
    uint64_t balance = swap->about[SENT] - swap->about[RECEIVED], theirs[WIRE_RECORD_NBYTES / 8];
    for (int i = 0; i < count; i++) {
        memcpy(theirs, wire_room(swap->wire, swap->parcels[i].peer), sizeof theirs);
        if (theirs[SEQUENCE] != swap->about[SEQUENCE] || theirs[DIGEST] != swap->about[DIGEST])
            return false;
        balance += theirs[SENT] - theirs[RECEIVED];
    }
    return balance == 0;
}

bool swaps_trade(Swap *swap, bool *misfit)
{
    int count = swap->wire->size - 1;
    bool well = wire_swap(swap->wire, swap->parcels, count);
    if (well && !wire_is_done(swap->parcels, count)) {
        for (int i = 0; i < count; i++)
            if (!swap->parcels[i].taken)
                swap->parcels[i].place = swap->parcels[i].room + WIRE_RECORD_NBYTES; /* where Python receives */
        well = swaps_finish(swap, count, misfit);
    }
    wire_drop(swap->parcels, count);
    return well;
}

static Ending swaps_exchange(Swap *swap)
{
    bool misfit = false;
    if (!swaps_trade(swap, &misfit))
        return BROKEN;
    if (!swaps_alike(swap, swap->wire->size - 1))
        return UNLIKE;
    return misfit ? GARBLED : DONE;
}

Ending swaps_compare(Swap *swap)
{
    for (int k = 1; k < swap->wire->size; k++)
        swaps_address(swap, k, NULL, 0, 0);
    return swaps_exchange(swap);
}

/* ------------------------------------------------------------------ with data along */

/* Reduce `count` elements of all ranks from the `merged` first on. */
static void swaps_merge(Swap *swap, size_t count)
{
    Reduction reduction;
    reduction_prepare(&reduction, swap->op, swap->kind);
    for (size_t now; swap->merged < count; swap->merged += now) {
        size_t at = swap->merged * reduction.item;
        const unsigned char *from[MOST_PARCELS];
        for (int peer = 0; peer < swap->wire->size; peer++)
            from[peer] = (peer == swap->wire->rank ? swap->own : swaps_data(swap, peer)) + at;
        now = reduction_now(&reduction, count - swap->merged);
        /* With more ranks a later contribution may lie where the outcome goes. */
        reduction_begin(&reduction, from[0], swap->wire->size == 2 ? swap->out + at : NULL, now);
        for (int peer = 1; peer < swap->wire->size; peer++)
            reduction_add(&reduction, from[peer]);
        reduction_end(&reduction, swap->out + at, swap->wire->size);
    }
}

/* Reduce what is here and has left, or put what comes straight to where it belongs, once both are known to make the
   same call. */
static void swaps_digest(void *user)
{
    Swap *swap = user;
    Parcel *parcel = &swap->parcels[0];
    if (parcel->got < parcel->in_unit + parcel->room_nbytes || !swaps_alike(swap, 1))
        return;
    size_t came = parcels_came(parcel), went = parcels_went(parcel);
    if (swap->straight != NULL && came == 0)
        parcel->place = swap->straight;
    if (swap->out != NULL)
        swaps_merge(swap, (came < went ? came : went) / kernels_kind_nbytes(swap->kind));
}

/* Work on a long one while it comes. */
static void swaps_overlap(Swap *swap)
{
    if (swap->wire->size != 2 || swap->parcels[0].in.length <= LONG_NBYTES)
        return;
    swap->parcels[0].digest = swaps_digest;
    swap->parcels[0].user = swap;
}

/* Put what has come to its places, and what this rank has for itself. */
static void swaps_put(const Swap *swap, const Given *given)
{
    const Route *route = &given->route;
    for (int i = 0; i < route->takes; i++) {
        Part part = route->take[i].part;
        const unsigned char *data = swaps_data(swap, route->take[i].peer);
        if (part.count > 0 && data != part.bytes)
            memcpy(part.bytes, data, part.count * route->item);
    }
    if (given->keep_to.count > 0 && given->keep_to.bytes != given->keep_from.bytes)
        memcpy(given->keep_to.bytes, given->keep_from.bytes, given->keep_to.count * route->item);
}

Ending swaps_along(Swap *swap, const Given *given)
{
    const Route *route = &given->route;
    bool reduces = given_reduces(given), takes = given->root < 0 || given->root == swap->wire->rank;
    for (int k = 1; k < swap->wire->size; k++) {
        int peer = (swap->wire->rank + k) % swap->wire->size;
        Part to = swaps_to(given, peer), from = swaps_from(given, peer);
        swaps_address(swap, k, to.bytes, to.count * route->item, from.count * route->item);
    }
    if (reduces) {
        swap->out = given->whole.bytes;
        swap->own = given->key.name == REDUCE_SCATTER ? given->keep_from.bytes : given->whole.bytes;
        swap->op = given->op;
        swap->kind = given->kind;
    } else if (route->takes == 1 && route->take[0].part.count > 0)
        swap->straight = route->take[0].part.bytes;
    swaps_overlap(swap);
    Ending ending = swaps_exchange(swap);
    if (ending == DONE && reduces)
        swaps_merge(swap, takes ? given->whole.count : 0);
    else if (ending == DONE)
        swaps_put(swap, given);
    return ending;
}
