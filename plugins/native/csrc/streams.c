#include "transfers.h"

/* The tag of results; contributions have that of all that moves. */
#define RESULT_TAG (COLLECTIVE_TAG + 1)
/* Segments are a quarter of a rank's share, within these bounds. */
enum { LEAST_SEGMENT_NBYTES = 128 << 10, MOST_SEGMENT_NBYTES = 1 << 20 };
/* So many segments later a segment is sent only once this one is known to have come. */
enum { AHEAD = 3 };

/* Elements of the array. */
typedef struct {
    size_t begin, end;
} Slice;

/* What is done with what comes. */
typedef enum { PLACED, REDUCED, DROPPED } Fate;

typedef struct Stream Stream;
/* Prepares the next trade; false after the last one. Needs no interpreter, as nothing here but `streams_make` does. */
typedef bool Plan(Stream *stream);

struct Stream {
    const Transfer *transfer;
    PyObject **deadline;
    Owned source, array; /* what is sent, and where what comes goes: the same where nothing goes one way */
    Plan *plan;
    size_t length; /* how many elements make a segment */
    /* Of a trade: how many elements go and come; whether data goes one way only. */
    size_t goes, comes;
    bool one_way;
    size_t step; /* how many trades are done; */
    bool over;   /* ... these are all */
    /* The trade that goes on: a segment out, and one in. */
    unsigned tag;
    Slice out, into;
    Fate fate;
    size_t merged; /* how many elements of it are reduced */
    Parcel parcel;
};

static unsigned char *streams_at(const Stream *stream, Owned array, size_t index)
{
    return array.part.bytes + index * stream->transfer->item;
}

static size_t streams_nbytes(const Stream *stream, Slice slice)
{
    return (slice.end - slice.begin) * stream->transfer->item;
}

/* Reduce the first `count` elements of what is here. */
static void streams_merge(Stream *stream, size_t count)
{
    transfers_merge(stream->transfer, streams_at(stream, stream->array, stream->into.begin), stream->parcel.peer, &stream->merged, count);
}

static void streams_digest(void *user)
{
    Stream *stream = user;
    streams_merge(stream, parcels_came(&stream->parcel) / stream->transfer->item);
}

/* ------------------------------------------------------------------ one trade after the other */

static void streams_end_trade(Stream *stream)
{
    if (stream->fate == REDUCED)
        streams_merge(stream, stream->into.end - stream->into.begin);
    stream->step++;
}

static bool streams_next(void *user)
{
    Stream *stream = user;
    streams_end_trade(stream);
    stream->over = !stream->plan(stream);
    if (stream->over)
        stream->parcel.next = NULL;
    return !stream->over;
}

/* Prepare to send a segment and to receive one. */
static void streams_prepare(Stream *stream, unsigned tag, Slice out, Slice into, Fate fate)
{
    size_t sent = streams_nbytes(stream, out), taken = streams_nbytes(stream, into);
    int peer = 1 - stream->transfer->wire->rank;
    unsigned char *room = fate == PLACED ? streams_at(stream, stream->array, into.begin) : wire_room(stream->transfer->wire, peer);
    stream->tag = tag;
    stream->out = out;
    stream->into = into;
    stream->fate = fate;
    stream->merged = 0;
    stream->parcel = (Parcel){.peer = peer, .data = streams_at(stream, stream->source, out.begin), .nbytes = sent, .room = room, .place = room,
                              .digest = fate == REDUCED ? streams_digest : NULL, .next = streams_next, .user = stream,
                              .next_tag = tag == COLLECTIVE_TAG ? RESULT_TAG : COLLECTIVE_TAG};
    if (sent > 0)
        stream->parcel.out = wire_message_head(tag, sent, 0);
    if (taken > 0)
        stream->parcel.in = wire_message_head(tag, taken, 0);
}

/* Which bytes of an array have yet to move; None if they have. */
static PyObject *streams_range(const Stream *stream, Owned array, Slice slice, bool done)
{
    return done ? Py_NewRef(Py_None) : swaps_range(array, slice.begin * stream->transfer->item, slice.end * stream->transfer->item);
}

/* Let Python go on with a trade from where it stands. */
static bool streams_go_on(Stream *stream)
{
    const Wire *wire = stream->transfer->wire;
    const Parcel *parcel = &stream->parcel;
    PyObject *rest = parcel->rest == NULL ? Py_None : parcel->rest;
    return swaps_set_deadline(stream->deadline, PyObject_CallFunction(
        wire->stream, "O(iIO)NNO", *stream->deadline, wire->links[parcel->peer].rank, stream->tag, stream->fate == PLACED ? Py_False : Py_True,
        streams_range(stream, stream->source, stream->out, parcel->sent), streams_range(stream, stream->array, stream->into, parcel->taken), rest));
}

/* Make all trades: those that nobody disturbs without the interpreter, one after the other. */
static Ending streams_make(Stream *stream)
{
    Wire *wire = stream->transfer->wire;
    bool well = true;
    while (well && !stream->over && stream->plan(stream)) {
        well = wire_swap(wire, &stream->parcel, 1);
        if (well && !wire_is_done(&stream->parcel, 1))
            well = streams_go_on(stream);
        wire_drop(&stream->parcel, 1);
        if (well && !stream->over)
            streams_end_trade(stream);
        well = well && PyErr_CheckSignals() == 0;
    }
    return well ? DONE : BROKEN;
}

/* ------------------------------------------------------------------ the collectives */

static Slice streams_segment(const Stream *stream, Slice share, size_t index)
{
    size_t begin = share.begin + index * stream->length, end = begin + stream->length;
    return (Slice){begin < share.end ? begin : share.end, end < share.end ? end : share.end};
}

bool streams_fit(const Wire *wire)
{
    return wire->size == 2 && wire_has_room(wire, 1 - wire->rank, MOST_SEGMENT_NBYTES);
}

/* Each rank reduces its half: contributions to a segment of both, then the results. */
static bool streams_plan_reduction(Stream *stream)
{
    size_t all = stream->array.part.count, index = stream->step / 2;
    const Slice shares[2] = {{0, all / 2}, {all / 2, all}};
    int rank = stream->transfer->wire->rank;
    if (index * stream->length >= all - all / 2)
        return false;
    Slice mine = streams_segment(stream, shares[rank], index), other = streams_segment(stream, shares[1 - rank], index);
    if (stream->step % 2 == 0)
        streams_prepare(stream, COLLECTIVE_TAG, other, mine, REDUCED);
    else
        streams_prepare(stream, RESULT_TAG, mine, other, PLACED);
    return true;
}

/* Reduce an array of both in place. */
static Ending streams_reduce(const Transfer *transfer, PyObject **deadline)
{
    Owned array = transfer->into[0];
    size_t all = array.part.count, nbytes = (all - all / 2) * transfer->item / 4;
    nbytes = nbytes < LEAST_SEGMENT_NBYTES ? LEAST_SEGMENT_NBYTES : nbytes > MOST_SEGMENT_NBYTES ? MOST_SEGMENT_NBYTES : nbytes;
    Stream stream = {.transfer = transfer, .deadline = deadline, .source = array, .array = array, .plan = streams_plan_reduction,
                     .length = nbytes / transfer->item};
    return streams_make(&stream);
}

/* Both send segments and take others. Where data goes one way only, who sends it hears of the segments before that they have
   come. */
static bool streams_plan_trade(Stream *stream)
{
    const Slice nothing = {0, 0}, receipt = {0, 1};
    size_t index = stream->step, all = stream->goes > stream->comes ? stream->goes : stream->comes;
    size_t count = (all + stream->length - 1) / stream->length;
    if (index >= count)
        return false;
    Slice out = streams_segment(stream, (Slice){0, stream->goes}, index), into = streams_segment(stream, (Slice){0, stream->comes}, index);
    if (stream->one_way && stream->goes > 0) /* with each segment the receipt that lets the next one go */
        streams_prepare(stream, COLLECTIVE_TAG, out, index + 1 >= AHEAD && index + 1 < count ? receipt : nothing, DROPPED);
    else { /* with each segment the receipt of the one before, if it is waited for */
        if (stream->one_way)
            out = index > 0 && index - 1 + AHEAD < count ? receipt : nothing;
        streams_prepare(stream, COLLECTIVE_TAG, out, into, stream->transfer->op != OPS ? REDUCED : PLACED);
    }
    return true;
}

/* Send one array, and put into another what comes, or reduce it into that; either may be missing. */
static Ending streams_trade(const Transfer *transfer, PyObject **deadline)
{
    Owned sent = transfer->out[1 - transfer->wire->rank], taken = transfer->into[1 - transfer->wire->rank];
    bool goes = sent.owner != NULL, comes = taken.owner != NULL;
    Stream stream = {.transfer = transfer, .deadline = deadline, .source = goes ? sent : taken, .array = comes ? taken : sent, .plan = streams_plan_trade,
                     .length = MOST_SEGMENT_NBYTES / transfer->item, .one_way = !goes || !comes, .goes = sent.part.count, .comes = taken.part.count};
    return streams_make(&stream);
}

Ending streams_run(const Transfer *transfer, PyObject **deadline)
{
    return transfer->pair ? streams_reduce(transfer, deadline) : streams_trade(transfer, deadline);
}
