/* Two rings of shared memory between this rank and another. rankwise_gloo_tcp.transport.rings, whose layout this is,
   says what is where; ranks with and without this module write and read the same rings. */
#ifndef RANKWISE_RINGS_H
#define RANKWISE_RINGS_H

#include "joint.h"
#include "outgoing.h"
#include "waiting.h"

/* With more ranks on one machine there are none. */
enum { MOST_PEERS = 64 };
enum { HEADER_NBYTES = 32, CONTROL_NBYTES = 256 };
/* Words of the control block: how far the writer has come and whether it waits for room; how far the reader has, and
   what it waits for; and what both copy together. */
enum { HEAD = 0, WANTS_ROOM = 1, TAIL = 16, WAITS_FOR = 17, JOINT = 24 };
/* What a rank says of its sleep: that a byte in its bell wakes it, or a change of the word that says so. */
enum { AWAKE = 0, AT_BELL = 1, AT_WORD = 2 };
/* The kinds of frames that are known here; all others are Python's. */
enum { WRAP = 0, MESSAGE = 1, OFFER = 2, RECEIPT = 5, CREDIT = 9, SENSELESS = 254, PIECE = 255 };
/* The flag of an offer whose bytes may be read from the sender's memory. */
enum { READABLE = 1 << 8 };

typedef struct {
    PyObject_HEAD
    Py_buffer memory;
    unsigned char *out, *into; /* behind the control blocks; NULL before the beginning and after the end */
    Word *asleep;              /* how the peer sleeps, */
    char bell_path[64];        /* ... where the pipe is opened that wakes it, */
    unsigned long long bell_inode; /* ... which no other may be taken for, */
    atomic_int bell;           /* ... and its descriptor; -1 until it is needed */
    int inside;                /* how many calls use the memory without the interpreter */
    bool closing;
    Py_ssize_t capacity, eager_nbytes;
    unsigned long long head, tail;
    uint64_t known_tail; /* how far the peer had read when this end looked last */
    uint64_t told_tail;  /* how far the peer knows that this end has read */
    unsigned longer_written, longer_read; /* how many frames have been that are not small */
    size_t lap_nbytes;   /* behind so much, small frames begin a new lap if the peer keeps up */
    Touched touched;
    Outgoing outgoing;
} Rings;

/* The header of a frame. */
typedef struct {
    uint64_t first, length, marks, address;
    const unsigned char *payload; /* the memory ends no earlier than `room` bytes behind this */
    size_t room;
} Frame;

extern PyTypeObject RingsType;

/* The first word of a frame about a message. */
static inline uint64_t rings_frame_word(unsigned kind, unsigned tag)
{
    return kind | (uint64_t)tag << 32;
}

static inline unsigned rings_kind_of(const Frame *frame)
{
    return frame->first & 0xff;
}

/* Whether there is room for a frame with so much behind its header. */
bool rings_fit(Rings *rings, size_t nbytes);
/* Write a frame, and let the peer see it; false if there is no room. */
bool rings_write(Rings *rings, Frame frame, const void *data, size_t nbytes);
/* Tell the peer that this end waits for a message of a tag, having read all that has come. It stands until the next. */
void rings_wait_for(Rings *rings, unsigned tag);
void rings_wait_no_more(Rings *rings);
/* Whether the peer waits for a message of a tag, and for nothing that was written before. */
bool rings_awaited(const Rings *rings, unsigned tag);
/* Wake the peer if it sleeps. */
void rings_wake(Rings *rings);
/* Whether the peer runs on this rank's processor, as it says behind the word of its sleep; and to say so. */
bool rings_share_processor(const Rings *rings);
void rings_note_processor(Word *asleep);
/* Sleep until the word of this rank's own sleep changes, for so many milliseconds at the most. */
void rings_sleep_at_word(Word *asleep, int longest_ms);
/* How many bytes the peer has not read yet, as it says. */
uint64_t rings_unread(Rings *rings);
bool rings_have_news(const Rings *rings);
/* The next frame, if there is one; one that cannot be is SENSELESS. */
bool rings_next(Rings *rings, Frame *frame);
/* Pass over the next frame, of which so many bytes follow the header. */
void rings_advance(Rings *rings, size_t nbytes);
/* The words of a copy that the peer and this rank make together: of what the peer sends, or of what this rank does. */
Joint *rings_joint(const Rings *rings, bool received);
/* Begin and end to use the memory without the interpreter; it stays for as long. */
void rings_enter(Rings *rings);
void rings_leave(Rings *rings);

#endif
