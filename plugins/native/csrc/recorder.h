/* The flight recorder: a ring of structs. See rankwise.basics.recording, which says what it must do. */
#ifndef RANKWISE_RECORDER_H
#define RANKWISE_RECORDER_H

#include "native.h"

typedef struct Recorder Recorder;
typedef struct Trail Trail;

typedef struct {
    Trail *trail;      /* owned; NULL where nothing was noted */
    PyObject *op;      /* owned, a str */
    PyObject *dtype;   /* owned, or NULL */
    PyObject *code;    /* owned, or NULL */
    PyObject *error;   /* owned, a str, or NULL */
    uint64_t serial;   /* counts all entries of the recorder, from 1 */
    uint64_t number;
    int64_t nbytes, began_ns, ended_ns, waited_ns;
    int64_t asked_ns; /* when the program began to wait for an asynchronous message; 0 until it does */
    unsigned long thread;
    long peer, tag;    /* of a message; the peer is -1 for anyone */
    int lasti;
    short kind; /* which of the trail's sums it belongs to; short, so that an entry is two lines of a cache */
    bool message;
} Entry;

/* What has been counted of one kind of operation: rankwise.basics.recording.Totals. */
typedef struct {
    PyObject *op; /* owned */
    uint64_t begun, ended, failed;
    int64_t nbytes, busy_ns, waited_ns;
} Sums;

enum { BEGUN, ENDED, MESSAGE_BEGUN, MESSAGE_ENDED, MARKS };

struct Trail {
    PyObject_HEAD
    Recorder *recorder;
    PyObject *name, *description, *ranks, *failure;
    int64_t failed_ns;
    uint64_t collectives, messages;
    uint64_t marks[MARKS]; /* serials; 0 for none */
    uint64_t asked;        /* the serial of the message that the program asked for last */
    Entry *kept;           /* of each mark those that others have pushed out of the ring; NULL before the first */
    Sums *sums;
    int kinds;
    Trail *next, *previous;
    PyObject *weakrefs;
};

struct Recorder {
    PyObject_HEAD
    PyObject *make_entry, *on_failure;
    PyObject *skipped; /* a list of the files and folders whose frames are not the program's; it may grow */
    PyObject *known; /* owned: the code that was found to be the program's last, or NULL, */
    Py_ssize_t known_skipped; /* with so many in the list */
    uint64_t capacity, serial;
    Entry *ring;
    Trail *first;
    PyObject *weakrefs;
};

extern PyTypeObject TrailType;
/* What the calls of messages are called. */
extern PyObject *text_send, *text_recv, *text_isend, *text_irecv;

/* Note that a collective begins, `skipped` frames below the program's call; return when. */
int64_t trail_begin(Trail *trail, PyObject *op, PyObject *dtype, int64_t nbytes, int skipped);
/* Note that a message begins, or has begun then, and return its serial. */
uint64_t trail_begin_message(Trail *trail, PyObject *op, PyObject *dtype, int64_t nbytes, long peer, long tag, int skipped,
                             int64_t began_ns);
/* Note that the collective which this thread has begun last has ended well, having waited for others for so long. */
void trail_end(Trail *trail, int64_t waited_ns);
/* Note that the message which was begun or asked for last has waited for so long. */
void trail_waited_message(Trail *trail, int64_t ns);
/* Note that a message of this thread, from or to this rank, has ended well, having waited for others for so long. */
void trail_end_message(Trail *trail, uint64_t serial, long peer, int64_t waited_ns);
/* Note that it has failed with the exception that is set. */
void trail_break_message(Trail *trail, uint64_t serial);
/* Return what stands for a message in Python. */
PyObject *trail_ticket(const Trail *trail, uint64_t serial);
/* Note that the call which has begun a message returns while the message goes on; what stands for that. */
PyObject *trail_release_message(const Trail *trail, uint64_t serial);
/* Note that the program waits from now on for what this stands for. */
void trail_ask(Trail *trail, PyObject *ticket);
/* Note that it has been seen to end, with an error or NULL; false, with an exception set, if that cannot be noted. */
bool trail_end_asked(Trail *trail, PyObject *ticket, PyObject *error);

#endif
