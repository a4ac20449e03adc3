#include "streams.h"
#include "arguments.h"

/* The tags of contributions and of results. */
#define COLLECTIVE_TAG 0x40000001u
#define RESULT_TAG (COLLECTIVE_TAG + 1)
/* Segments are a quarter of a rank's share, within these bounds. */
enum { LEAST_SEGMENT_NBYTES = 128 << 10, MOST_SEGMENT_NBYTES = 1 << 20 };
/* So many segments later a segment is sent only once this one is known to have come. */
enum { AHEAD = 3 };
/* What is averaged is summed just before, in pieces that stay in the nearest cache. */
enum { STREAMS_PIECE = 8192 };

/* Elements of the array. */
typedef struct {
    size_t begin, end;
} Slice;

typedef struct {
    Swap *swap;
    PyArrayObject *array;
    PyObject *deadline; /* owned: once Python has gone on, until when it all must be done */
    Op op;
    Kind kind;
    size_t item;
    Parcel parcel;
    bool aside;    /* what comes does not go into the array */
    Slice mine;    /* what is being reduced, */
    size_t merged; /* ... and how much of it is */
} Stream;

static unsigned char *streams_at(const Stream *stream, size_t index)
{
    return (unsigned char *)PyArray_DATA(stream->array) + index * stream->item;
}

/* Reduce the first `count` elements of what is here. */
static void streams_merge(Stream *stream, size_t count)
{
    Merge merge = kernels_merge_of(stream->op, stream->kind);
    size_t step = STREAMS_PIECE / stream->item;
    for (size_t now; stream->merged < count; stream->merged += now) {
        unsigned char *mine = streams_at(stream, stream->mine.begin + stream->merged);
        now = count - stream->merged < step ? count - stream->merged : step;
        merge(mine, mine, wire_room(stream->swap->wire, stream->parcel.peer) + stream->merged * stream->item, now);
        if (stream->op == AVG)
            kernels_average(mine, stream->kind, now, 2);
    }
}

static void streams_digest(void *user)
{
    Stream *stream = user;
    streams_merge(stream, parcels_came(&stream->parcel) / stream->item);
}

static PyObject *streams_range(const Stream *stream, Slice slice, bool done)
{
    if (done)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(nn)", (Py_ssize_t)(slice.begin * stream->item), (Py_ssize_t)(slice.end * stream->item));
}

/* Let Python go on with a segment from where it stands. */
static bool streams_go_on(Stream *stream, unsigned tag, Slice out, Slice into)
{
    const Wire *wire = stream->swap->wire;
    const Parcel *parcel = &stream->parcel;
    PyObject *rest = parcel->rest == NULL ? Py_None : parcel->rest;
    PyObject *given = stream->deadline == NULL ? stream->swap->deadline : stream->deadline;
    PyObject *deadline = PyObject_CallFunction(wire->stream, "OOiINNOO", given, (PyObject *)stream->array, wire->links[parcel->peer].rank, tag,
                                               streams_range(stream, out, parcel->sent), streams_range(stream, into, parcel->taken),
                                               stream->aside ? Py_True : Py_False, rest);
    if (deadline != NULL)
        Py_XSETREF(stream->deadline, deadline);
    return deadline != NULL;
}

/* What is done with what comes. */
typedef enum { PLACED, REDUCED, DROPPED } Fate;

/* Send a segment and receive one. */
static bool streams_trade(Stream *stream, unsigned tag, Slice out, Slice into, Fate fate)
{
    size_t sent = (out.end - out.begin) * stream->item, taken = (into.end - into.begin) * stream->item;
    Swap *swap = stream->swap;
    Parcel *parcel = &stream->parcel;
    *parcel = (Parcel){.peer = 1 - swap->rank, .data = streams_at(stream, out.begin), .nbytes = sent};
    if (sent > 0)
        parcel->out = wire_message_head(tag, sent, 0);
    if (taken > 0)
        parcel->in = wire_message_head(tag, taken, 0);
    stream->aside = fate != PLACED;
    parcel->room = parcel->place = stream->aside ? wire_room(swap->wire, parcel->peer) : streams_at(stream, into.begin);
    if (fate == REDUCED) {
        parcel->digest = streams_digest;
        parcel->user = stream;
        stream->mine = into;
        stream->merged = 0;
    }
    bool well = wire_swap(swap->wire, parcel, 1);
    if (well && !wire_is_done(parcel, 1))
        well = streams_go_on(stream, tag, out, into);
    wire_drop(parcel, 1);
    if (well && fate == REDUCED)
        streams_merge(stream, into.end - into.begin);
    return well;
}

static Slice streams_segment(Slice share, size_t index, size_t count)
{
    size_t begin = share.begin + index * count, end = begin + count;
    return (Slice){begin < share.end ? begin : share.end, end < share.end ? end : share.end};
}

bool streams_fit(const Wire *wire)
{
    return wire->size == 2 && wire_has_room(wire, 1 - wire->rank, MOST_SEGMENT_NBYTES);
}

Ending streams_reduce(Swap *swap, PyArrayObject *array, Op op, Kind kind)
{
    Ending ending = swaps_compare(swap);
    if (ending != DONE)
        return ending;
    Stream stream = {.swap = swap, .array = array, .op = op, .kind = kind, .item = kernels_kind_nbytes(kind)};
    size_t all = (size_t)PyArray_SIZE(array), half = all / 2, longest = all - half, nbytes = longest * stream.item / 4;
    nbytes = nbytes < LEAST_SEGMENT_NBYTES ? LEAST_SEGMENT_NBYTES : nbytes > MOST_SEGMENT_NBYTES ? MOST_SEGMENT_NBYTES : nbytes;
    size_t count = nbytes / stream.item;
    const Slice shares[2] = {{0, half}, {half, all}};
    bool well = true;
    for (size_t index = 0; well && index * count < longest; index++) {
        Slice mine = streams_segment(shares[swap->rank], index, count), other = streams_segment(shares[1 - swap->rank], index, count);
        well = streams_trade(&stream, COLLECTIVE_TAG, other, mine, REDUCED) && streams_trade(&stream, RESULT_TAG, mine, other, PLACED) &&
               PyErr_CheckSignals() == 0;
    }
    Py_XDECREF(stream.deadline);
    return well ? DONE : BROKEN;
}

Ending streams_broadcast(Swap *swap, PyArrayObject *array, int root)
{
    Ending ending = swaps_compare(swap);
    if (ending != DONE)
        return ending;
    Stream stream = {.swap = swap, .array = array, .item = (size_t)PyArray_ITEMSIZE(array)};
    const Slice whole = {0, (size_t)PyArray_SIZE(array)}, nothing = {0, 0}, receipt = {0, 1};
    size_t length = MOST_SEGMENT_NBYTES / stream.item, count = (whole.end + length - 1) / length;
    bool well = true;
    for (size_t index = 0; well && index < count; index++) {
        Slice segment = streams_segment(whole, index, length);
        if (swap->rank == root) /* with each segment the receipt that lets the next one go */
            well = streams_trade(&stream, COLLECTIVE_TAG, segment, index + 1 >= AHEAD && index + 1 < count ? receipt : nothing, DROPPED);
        else /* with each segment the receipt of the one before, if it is waited for */
            well = streams_trade(&stream, COLLECTIVE_TAG, index > 0 && index - 1 + AHEAD < count ? receipt : nothing, segment, PLACED);
        well = well && PyErr_CheckSignals() == 0;
    }
    Py_XDECREF(stream.deadline);
    return well ? DONE : BROKEN;
}
