#include "transfers.h"
#include "arguments.h"
#include "reduction.h"

/* Whether Python's reduction of a dtype by an op is one of C's, in place. */
static bool transfers_can_reduce(Op op, int kind)
{
    return kind >= 0 && op != OPS && kernels_accumulation_kind(op, (Kind)kind) == (Kind)kind && kernels_merge_of(op, (Kind)kind) != NULL;
}

bool transfers_take_reduction(Transfer *transfer, Wire *wire, PyObject *given, const char *op)
{
    PyArrayObject *array = arguments_plain(given, true);
    int kind = array == NULL ? -1 : arguments_kind(array);
    *transfer = (Transfer){.wire = wire, .pair = true, .op = kernels_op_named(op), .kind = (Kind)kind};
    if (!transfers_can_reduce(transfer->op, kind) || PyArray_SIZE(array) == 0 || !streams_fit(wire))
        return false;
    transfer->into[0] = swaps_whole(array);
    transfer->item = (size_t)PyArray_ITEMSIZE(array);
    transfer->dtype = (PyObject *)PyArray_DESCR(array);
    return true;
}

/* Take a plain array or None for each rank; false where they are not as long, in elements of one length. */
static bool transfers_take_side(Transfer *transfer, PyObject *given, bool written, Owned *side)
{
    const Wire *wire = transfer->wire;
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != wire->size)
        return false;
    for (int peer = 0; peer < wire->size; peer++) {
        PyObject *item = PyTuple_GET_ITEM(given, peer);
        if (item == Py_None)
            continue;
        PyArrayObject *array = arguments_plain(item, written);
        size_t nbytes = array == NULL ? 0 : (size_t)PyArray_ITEMSIZE(array);
        if (nbytes == 0 || nbytes > LONG_NBYTES || wire->links[peer].peer == NULL || (transfer->item != 0 && transfer->item != nbytes))
            return false;
        transfer->item = nbytes;
        transfer->dtype = (PyObject *)PyArray_DESCR(array);
        side[peer] = swaps_whole(array);
    }
    return true;
}

/* Whether all that comes is reduced into one array. */
static bool transfers_has_one_total(Transfer *transfer)
{
    PyArrayObject *total = NULL;
    for (int peer = 0; peer < transfer->wire->size; peer++) {
        PyArrayObject *into = transfer->into[peer].owner;
        if (into != NULL && total != NULL && into != total)
            return false;
        total = into == NULL ? total : into;
    }
    int kind = total == NULL ? -1 : arguments_kind(total);
    transfer->kind = kind < 0 ? (Kind)0 : (Kind)kind;
    if (total != NULL)
        transfer->dtype = (PyObject *)PyArray_DESCR(total);
    return transfer->op != AVG && transfers_can_reduce(transfer->op, kind);
}

bool transfers_take_exchange(Transfer *transfer, Wire *wire, PyObject *sent, PyObject *taken, const char *op, Py_ssize_t nbytes)
{
    *transfer = (Transfer){.wire = wire, .op = op == NULL ? OPS : kernels_op_named(op), .nbytes = (size_t)nbytes};
    return wire->size <= MOST_PARCELS && (nbytes >= LONG_NBYTES || nbytes == 0) && transfers_take_side(transfer, sent, false, transfer->out) &&
           transfers_take_side(transfer, taken, true, transfer->into) && (op == NULL || transfers_has_one_total(transfer)) &&
           transfer->item != 0 && (nbytes == 0 ? streams_fit(wire) : rounds_fit(transfer));
}

Ending transfers_run(const Transfer *transfer, PyObject **deadline)
{
    return transfer->nbytes == 0 ? streams_run(transfer, deadline) : rounds_run(transfer, deadline);
}

void transfers_merge(const Transfer *transfer, unsigned char *segment, int peer, size_t *merged, size_t count)
{
    Merge merge = kernels_merge_of(transfer->op, transfer->kind);
    size_t step = REDUCTION_NBYTES / transfer->item;
    for (size_t now; *merged < count; *merged += now) {
        size_t at = *merged * transfer->item;
        unsigned char *mine = segment + at;
        now = count - *merged < step ? count - *merged : step;
        merge(mine, mine, wire_room(transfer->wire, peer) + at, now);
        if (transfer->op == AVG) /* which two ranks reduce */
            kernels_average(mine, transfer->kind, now, 2);
    }
}
