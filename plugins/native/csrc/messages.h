/* Messages between ranks that share memory: what the parts of it have in common. */
#ifndef RANKWISE_MESSAGES_H
#define RANKWISE_MESSAGES_H

#include "hooks.h"
#include "lock.h"
#include "recorder.h"
#include "rings.h"
#include "state.h"
#include "turn.h"

enum { MARKED_TYPES = 25, BFLOAT16 = MARKED_TYPES - 1 };
/* How often a receive looks again that has found credit alone. */
enum { MOST_LOOKS = 8 };

typedef struct {
    Rings *rings; /* NULL for a rank without any, */
    PipeState *pipe; /* ... as these are */
    PeerState *peer;
    WindowState *window;
    long name;    /* its global rank */
    pid_t pid;    /* its process, if that one's memory may be read; else 0 */
    bool joint;   /* whether a copy has the words for copies that both ranks make together */
    uint64_t due; /* what was received and Python has not heard of */
    PyObject *key; /* of the lines in which its receives and its messages of a tag wait, as was asked for last; NULL for none */
    unsigned key_tag;
} Way;

typedef struct {
    PyObject_HEAD
    Trail *trail;
    Turn *turn; /* which is closed once the group has failed */
    EngineState *engine;
    FailureState *failure;
    ProgressState *progress;
    EngineLock *lock;
    /* MessageHooks of rankwise_gloo_tcp: what is looked at, */
    PyObject *deferred, *arrivals, *lines, *receives, *offered;
    /* ... what posts a receive, */
    PyTypeObject *request_type;
    PyObject *numbers;
    /* ... and what is left to Python. */
    PyObject *mark, *settle, *stand_up, *met, *strand, *issued;
    PyObject *register_offer, *offer, *ask_for, *ask_on, *answer, *copied;
    PyObject *go_on_sending, *go_on_receiving, *finish, *receive, *claim, *taken, *only_waited;
    PyObject *lane; /* the communicator, for works that Python spells out */
    PyObject *spare; /* an empty line, for the next receive that begins one; or NULL */
    RequestState *posted; /* the receives of whose ends the recorder has not been told; borrowed */
    RequestState *fresh; /* the receives that stand in no line yet, the oldest first: see messages_lines.c; held */
    PyObject *weakrefs;
    int size;
    unsigned most_tag, raw;
    uint64_t window_nbytes, message_nbytes;
    Patience patience;
    unsigned marks[MARKED_TYPES]; /* of the dtypes, by NumPy's numbers; 0 for those not yet asked for */
    Way *ways; /* one for each rank, */
    bool all_near; /* ... and whether all others have rings */
    int latest;    /* by whose the last message from anyone came */
    bool in_vain;  /* whether the last look for a posted receive's message was */
    /* What can be read when anything is to be done for the engine, and what the peers write to if this rank sleeps; and where
       it says that it does, in the memory of all ways. */
    int descriptor, bell;
    size_t asleep;
} Messages;

/* One message. */
typedef struct {
    PyArrayObject *array;
    Way *first, *end; /* the ways that it may go: one, or all of them for one from anyone */
    Way *way;         /* the one that it goes, of this peer; NULL until one from anyone has been met */
    int peer;
    unsigned tag, mark;
    size_t nbytes;
    uint64_t came_nbytes; /* of a message that has been received */
    uint64_t serial;   /* of its entry in the recorder; 0 for none */
    int64_t waited_ns; /* how long all messages before it have waited */
    bool received;     /* whether it is received, or sent */
} Letter;

/* Whether it may come from anyone. */
static inline bool messages_is_anyones(const Letter *letter)
{
    return letter->end - letter->first > 1;
}

/* The arguments of a public call: of those that begin a message, the last two are for the work that they return. */
enum { ARRAY, PEER, TAG, GROUP, SPELL, ARGUMENTS };

/* How an attempt to receive has ended: with nothing done, with the message, or with an error. */
typedef enum { NOTHING, TAKEN, FAILED } Taken;

/* Read the arguments of a public call; false if it is for Python, or, with an exception set, if it has failed. */
bool messages_take_arguments(Messages *messages, Letter *letter, PyObject *const *args, Py_ssize_t count, bool written);
/* Whether a way stands, and nobody has the engine's lock. */
bool messages_sound(const Messages *messages, const Way *way);
/* Whether a frame is there that nothing here has taken in: neither credit, nor a message that a receive was posted for.
   Nobody has the lock. An exception may be set. */
bool messages_has_frame(Messages *messages, const Way *way, Frame *frame);
/* Whether the group has failed, or is about to. */
bool messages_has_failed(const Messages *messages);
/* Whether nothing is before what is written now, and whether that may be written. */
bool messages_is_idle(const Way *way);
bool messages_may_send(const Messages *messages, const Way *way);
/* Whether something has come through rings. */
bool messages_has_news(void *rings);
/* Let Python wait for the rest of a message that has gone half-way; without it an exception is set already. The public
   call gives the group up after an interrupt. */
bool messages_finish(Messages *messages, PyObject *rest, const char *verb, const Letter *letter);
void messages_begin_noting(Messages *messages, Letter *letter, PyObject *op, int64_t began_ns);
/* Count what was received by a way; Python gives credit for it. */
bool messages_count(Messages *messages, Way *way, uint64_t nbytes);
/* Look for something that comes, and sleep a while if that was in vain; with the seat if it has taken more than a moment.
   An exception may be set, and nothing has come then. */
bool messages_look(Messages *messages, Letter *letter, bool *seated);
/* Leave the seat, whatever has come of it. */
bool messages_stand_up(Messages *messages);

/* The public calls. */
PyObject *messages_py_send(Messages *messages, PyObject *const *args, Py_ssize_t count);
PyObject *messages_py_recv(Messages *messages, PyObject *const *args, Py_ssize_t count);
PyObject *messages_py_isend(Messages *messages, PyObject *const *args, Py_ssize_t count);
PyObject *messages_py_irecv(Messages *messages, PyObject *const *args, Py_ssize_t count);

/* Return the work of a message: of one that goes on with its request, or of one that has ended. The reference to what stands
   for it in the recorder is taken. */
PyObject *messages_work(Messages *messages, const Letter *letter, PyObject *const *args, RequestState *request, PyObject *ticket);
/* The key of what waits from a rank with a tag, which most programs ask for again; borrowed. NULL with an exception set. */
PyObject *messages_key(Messages *messages, unsigned tag, int peer);
/* Whether a message that Python has taken in is what a letter wants; true with an exception set. */
bool messages_is_kept(Messages *messages, const Letter *letter);
/* Where posted receives stand: put one behind all that wait for the same, unless that is left to Python; the first of a tag and
   a rank, borrowed, if it was posted here and no receive from anyone may be before it; take that out. An exception may be set. */
bool messages_enter(Messages *messages, unsigned tag, int peer, RequestState *request);
RequestState *messages_first_posted(Messages *messages, unsigned tag, int peer);
bool messages_leave(Messages *messages, unsigned tag, int peer, RequestState *request);
/* Have all of them stand in their lines, for whoever has taken the lock; false with an exception set. */
bool messages_line_up(void *messages);
/* Those that stand in no line: whether one is from these ranks; let all of them go. */
bool messages_has_fresh(const Messages *messages, const Letter *letter);
void messages_drop_fresh(Messages *messages);
/* Post a receive whose message is not here; None if that is left to Python. */
PyObject *messages_post(Messages *messages, const Letter *letter, PyObject *const *args);
/* Offer a message, and wait until it has been read; or return the work of it. */
bool messages_send_offer(Messages *messages, Letter *letter);
PyObject *messages_begin_offer(Messages *messages, const Letter *letter, PyObject *const *args);
/* End the message that a receipt is for, if it was begun here; an exception may be set. */
bool messages_meet_offered(Messages *messages, const Way *way, const Frame *frame);
/* Read an offered message, which is the next frame; or for a receive that has met it, whose frame is gone. An exception may
   be set. */
Taken messages_take_offer(Messages *messages, Letter *letter, Frame offer);
void messages_read_posted(Messages *messages, Way *way, RequestState *request, Frame offer);
/* Whether a request that was begun here has ended; who waits for it looks. An exception may be set. */
bool messages_take_posted(Messages *messages, RequestState *request, bool waits);
/* End a request well, and say from whom its message came; others may have to be told. False with an exception set. */
bool messages_end(Messages *messages, RequestState *request, PyObject *source);
/* Have the engine know of a request that an error has come to while it stood nowhere: it ends with the group. The error stays. */
void messages_strand(Messages *messages, RequestState *request);
/* Have the engine go on with a long message if its caller does something else for a while; false with an exception set. */
bool messages_leave_alone(Messages *messages, RequestState *request);
/* Remember that the recorder is to be told of its end, with what stands for the message there, which is taken. */
void messages_list(Messages *messages, RequestState *request, PyObject *ticket);
/* Tell the recorder, once, of the end of a posted receive; false with an exception set. */
bool messages_tell(Messages *messages, RequestState *request);
/* Somebody else tells it. */
void messages_unlist(RequestState *request);
/* Take in a message that a posted receive meets; false if none does. An exception may be set. */
bool messages_meet_posted(Messages *messages, const Way *way, const Frame *frame);
/* take(request, waits): whether the message of a posted receive has come. */
PyObject *messages_py_take(Messages *messages, PyObject *const *args, Py_ssize_t count);
/* look(): tell the recorder of all posted receives that have ended, and that the program has not asked about. */
PyObject *messages_py_look(Messages *messages, PyObject *unused);
/* lose(error): end all that have not, in the child of a fork. */
PyObject *messages_py_lose(Messages *messages, PyObject *error);
/* woken(slept_ns): that the engine has waited for it so long, where `take` has looked in vain. */
PyObject *messages_py_woken(Messages *messages, PyObject *slept_ns);

#endif
