/* The wire: messages over the sockets of an engine of rankwise_gloo_tcp, by the caller's own thread. What it does
   not finish is left to Python's engine, which goes on from where it stands; both move the same bytes. */
#ifndef RANKWISE_WIRE_H
#define RANKWISE_WIRE_H

#include "hooks.h"
#include "lock.h"
#include "parcels.h"
#include "recorder.h"
#include "turn.h"

enum { WIRE_RECORD_NBYTES = 40 };
/* A wait that has found nothing halves the next look, down to this part of the longest. */
enum { WIRE_LEAST_PART = 16 };
/* How long a wait looks where ranks share processors: letting others have this one costs less than to sleep. */
enum { WIRE_YIELDS_NS = 100000 };

/* What leads to one rank; all of it is NULL for this one. Ranks count here from 0, be they all of a group or some. */
typedef struct {
    PeerState *peer;
    WindowState *window;
    Py_buffer room; /* where what comes goes */
    uint64_t due;   /* what was received and Python has not heard of */
    int rank;       /* what the engine calls it */
    long name;      /* its global rank */
} Link;

typedef struct {
    PyObject_HEAD
    Turn *turn; /* which is closed once the group has failed */
    EngineState *engine;
    FailureState *failure;
    ProgressState *progress;
    EngineLock *lock;
    /* WireHooks of rankwise_gloo_tcp: what is looked at, */
    PyObject *deferred, *lines, *receives;
    /* ... and what is left to Python. */
    PyObject *settle, *stand_up, *refresh, *pay, *keep, *feed, *taken, *finish, *stream, *exchange;
    PyObject *mark, *receive, *claim, *finish_message;
    Trail *trail; /* of the group that is served; NULL before */
    int rank, size;
    unsigned most_tag;
    Link *links;
    uint64_t window_nbytes, message_nbytes;
    unsigned long main_thread;          /* which must look for signals now and then */
    int descriptor;                     /* which can be read when there is anything to do for the engine; or -1 */
    bool yields;                        /* as ranks share processors, a look lets others have this one */
    int64_t spin_ns, least_ns, most_ns; /* how long a wait looks, within these bounds */
    int resigned;                       /* how many waits only glance, as others want the processor */
    int64_t waited_ns;                  /* how long others were waited for in all */
} Wire;

static inline unsigned char *wire_room(const Wire *wire, int peer)
{
    return wire->links[peer].room.buf;
}

/* The header of a message. */
Head wire_message_head(unsigned tag, size_t nbytes, unsigned mark);
/* Whether a message of so many bytes from this peer has a place. */
bool wire_has_room(const Wire *wire, int peer, size_t nbytes);
/* Send and receive all parcels, as far as that takes no longer than a look; those that are not `sent` and `taken` then
   are left to Python. False with an exception set. */
bool wire_swap(Wire *wire, Parcel *parcels, int count);
/* Receive a parcel if it is there, whose beginning is left to Python if not all of it is. False with an exception set. */
bool wire_glance(Wire *wire, Parcel *parcel);
/* Whether a message of a rank that Python has taken in waits with a tag. */
bool wire_is_kept(const Wire *wire, int peer, unsigned tag);
/* Give the credit that is owed and has met no frame that it could go before, as this rank has all that it needs. */
bool wire_pay(const Wire *wire);
/* Whether all of it is done. */
bool wire_is_done(const Parcel *parcels, int count);
/* Forget what parcels hold. */
void wire_drop(Parcel *parcels, int count);

#endif
