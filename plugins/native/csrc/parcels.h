/* Parcels: one message out and one in, and what moves them over sockets without the interpreter. */
#ifndef RANKWISE_PARCELS_H
#define RANKWISE_PARCELS_H

#include "lock.h"
#include "state.h"
#include <sys/types.h>

/* A header, as it lies on the wire. */
typedef struct {
    uint64_t first, length, marks, address;
} Head;

enum { HEAD_NBYTES = sizeof(Head), HEAD_TAG_NBYTES = 8 };
/* Among so many ranks at the most everyone talks to everyone. */
enum { MOST_PARCELS = 8 };
/* Of longer payloads the header is read alone, as what follows goes straight to where it belongs. */
enum { LONG_NBYTES = 64 << 10 };
/* How long a frame that stands still may keep others from the engine's lock, and how long frames that move may in all,
   of which none begins in the second half. */
enum { STILL_NS = 2000000, MOVING_NS = 40000000 };
/* How long frames that stand still are looked at where each rank has a processor. */
enum { LOOK_NS = 50000 };

/* What a parcel's user does with what has come and gone so far of a long one; it has neither interpreter nor lock. */
typedef void (*Digest)(void *user);
/* Prepares what follows on a parcel that is done, in its place, likewise; false where nothing does. */
typedef bool (*Next)(void *user);

/* One message out and one in, either of which may be missing. */
typedef struct {
    int peer;
    Head out, in; /* their headers; a kind of 0 for none */
    const unsigned char *record; /* what goes before the data */
    const unsigned char *data;
    size_t record_nbytes, nbytes;
    unsigned char *room, *place; /* where what comes before the data goes, and where the data goes */
    size_t room_nbytes;          /* how much comes before the data */
    Digest digest;               /* NULL for none; it may change the place before any data has come */
    Next next;                   /* NULL for none */
    unsigned next_tag;           /* of what comes then, or may come later */
    void *user;
    PyObject *rest; /* a request to wait for, as not all has left; owned */
    bool sent, taken, left;
    /* What has left of the frame that was begun, and what has come of the other; `open` where that may be read, `chained`
       where what comes next may be too. */
    size_t went, cover_nbytes, got, in_unit;
    bool headed, open, chained;
    /* The header that goes out, perhaps with credit before it, and the one that comes. */
    unsigned char cover[2 * (HEAD_NBYTES + HEAD_TAG_NBYTES)], head[HEAD_NBYTES + HEAD_TAG_NBYTES], trailer;
} Parcel;

/* Whether a frame has begun to leave and has not left. */
static inline bool parcels_is_leaving(const Parcel *parcel)
{
    return parcel->sent && parcel->went < parcel->cover_nbytes + parcel->record_nbytes + parcel->nbytes + 1;
}

static inline bool parcels_expects(const Parcel *parcel)
{
    return !parcel->taken && !parcel->left;
}

static inline bool parcels_is_half_way(const Parcel *parcel)
{
    return parcels_expects(parcel) && (parcel->got > 0 || parcel->headed);
}

/* Whether nothing of it is left to do. */
static inline bool parcels_is_done(const Parcel *parcel)
{
    return parcel->sent && parcel->taken && !parcels_is_leaving(parcel);
}

static inline size_t parcels_in_nbytes(const Parcel *parcel)
{
    return parcel->in_unit + parcel->in.length + 1;
}

/* How much has left, or has come, of the data. */
size_t parcels_went(const Parcel *parcel);
size_t parcels_came(const Parcel *parcel);
void parcels_begin(Parcel *parcel);
/* Copy what has not left, and what has come. */
void parcels_copy_rest(const Parcel *parcel, unsigned char *to);
void parcels_copy_got(Parcel *parcel, unsigned char *to);
/* Send what there is room for, as nobody else may: 0 for nothing, -1 for an error. */
ssize_t parcels_send(Parcel *parcel, ConnectionState *connection);
/* Read what has come likewise: -1 for nothing, 0 at the end. */
ssize_t parcels_read(Parcel *parcel, ConnectionState *connection);
/* Looks at what has come, for parcels_move. */
typedef void (*Judge)(void *user, Parcel *parcel, ConnectionState *connection);
/* For how long parcels may be moved. What stands still is looked at before this thread sleeps, and then left, but not
   before `still_ns` as long as nobody wants the lock. */
typedef struct {
    int64_t look_ns, still_ns, until;
    bool yields; /* to those that share the processor, between two looks */
    const EngineLock *lock;
} Stay;
/* Send and read what is half-way, or chained, until all is, something is left, nothing moves any more, or a time. Needs no
   interpreter, and returns for how long something moved. */
int64_t parcels_move(Parcel *parcels, ConnectionState *const *connections, int count, const Stay *stay, Judge judge, void *user);

#endif
