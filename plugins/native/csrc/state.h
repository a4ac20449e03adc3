/* What compiled messages and Python's engine both read and write: types with declared members, each the base of a class
   of rankwise_gloo_tcp, whose `state` module has the same in Python for where this module is not. */
#ifndef RANKWISE_STATE_H
#define RANKWISE_STATE_H

#include "native.h"

/* Of an engine: whether this rank leaves, so that nothing new is begun. */
typedef struct {
    PyObject_HEAD
    bool leaving;
} EngineState;

/* Of a group's failure: whether what all ranks raise is being found out. */
typedef struct {
    PyObject_HEAD
    bool failing;
} FailureState;

/* Of the progress lock: the thread that has it, 0 for none; how many threads wait, or take in news, and how many of them
   for it or for their request; how many requests no thread waits for; when one last did; and whether the engine's thread
   looks for such requests by itself. */
typedef struct {
    PyObject_HEAD
    unsigned long owner;
    int callers, followers, pending;
    double last_drive;
    bool ticks;
} ProgressState;

/* Of a peer: what leads there, and why nothing can be sent there any more; NULL or None for neither. And the credit that
   goes before the next frame. */
typedef struct {
    PyObject_HEAD
    PyObject *connection, *gone;
    unsigned long long owed_nbytes;
} PeerState;

/* Of a connection over a socket: its reader, the guards of the headers that go out and come in, and what encrypts it, or None. */
typedef struct {
    PyObject_HEAD
    PyObject *reader, *mine, *theirs, *tls;
    int fd;
    bool plain;   /* whether frames are but headers, perhaps guarded, and bytes, and compiled code can encrypt what must be */
    bool closed, broken, deaf;
    bool writing; /* whether something waits for room */
    unsigned long long came_nbytes, went_nbytes;
} ConnectionState;

/* Of a reader: what ends the payload that is coming in, if any is; and what of its inbox has not been taken apart. */
typedef struct {
    PyObject_HEAD
    PyObject *whole;
    Py_ssize_t start, end;
} ReaderState;

enum { GUARDED_NBYTES = 32, TAG_NBYTES = 8 };

/* The keyed hash of a library, as libsodium declares it (crypto_generichash_blake2b); 0 where it has made the digest. */
typedef int (*KeyedHash)(unsigned char *digest, size_t digest_nbytes, const unsigned char *text, unsigned long long nbytes,
                         const unsigned char *key, size_t key_nbytes);

/* Of the guard of one direction: the key of the hash that makes tags, the number of the next header, and the address of a
   library's hash, 0 where none is known. */
typedef struct {
    PyObject_HEAD
    PyObject *key;
    unsigned long long number;
    size_t hash_address;
    /* For C alone: the latest headers that were counted, and a tag made beforehand, for a header of a number. */
    unsigned char latest[GUARDED_NBYTES], before[GUARDED_NBYTES], foreseen[GUARDED_NBYTES], foreseen_tag[TAG_NBYTES];
    unsigned long long foreseen_number;
    bool foresees;
} GuardState;

/* Of a pipe: the frames that wait, and the long payload that is going out, if any is. */
typedef struct {
    PyObject_HEAD
    PyObject *queue, *rest;
} PipeState;

/* Of a peer's window: how much of what was sent it has not taken yet. */
typedef struct {
    PyObject_HEAD
    unsigned long long unconfirmed;
} WindowState;

/* Of a request: its engine, its memory, which of a posted array is made when it is asked for, the other rank or None for anyone, what went wrong, who has sent, and its future, or
   None; the array that it was posted for, what has posted it, and what stands for it in the recorder, all three compiled
   code's and else NULL. */
typedef struct RequestState {
    PyObject_HEAD
    PyObject *engine, *buffer, *peer, *error, *source, *promise, *array, *by, *ticket;
    unsigned long long tag, nbytes;
    unsigned dtype;
    bool done, watched, streamed;
    /* For C alone: whether who waits for it has just looked for its message in vain; the list that it stands in while the
       recorder has not been told of its end; and, where C has posted it, from whom, and what is behind it in the list of
       those that stand in no line yet. */
    bool looked;
    int from;
    struct RequestState *next, **link, *behind;
} RequestState;

extern PyTypeObject EngineStateType, FailureStateType, ProgressStateType, PeerStateType, PipeStateType, WindowStateType,
    ConnectionStateType, ReaderStateType, GuardStateType, RequestStateType;

/* Tell the recorder of the end of a posted receive that nobody has anymore, if nobody has yet. */
void messages_let_posted_go(RequestState *request);

/* Whether tags can be made here: there is a key, and a hash. */
bool state_makes_tags(const GuardState *guard);
/* Write the tag of a header of this number; false where the library cannot. */
bool state_make_tag(const GuardState *guard, unsigned long long number, const void *head, unsigned char tag[TAG_NBYTES]);

static inline bool state_is_none(const PyObject *object)
{
    return object == NULL || object == Py_None;
}

#endif
