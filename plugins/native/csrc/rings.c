#include "rings.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <structmember.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LEAST_CAPACITY = 4096, MOST_AHEAD = 8 };
/* Small frames stay in the first pages of a ring, as each page costs both ends a fault when it is used first, which takes
   longer than ten small messages; and a few pages stay in the caches. So do the first longer ones: later the lines that
   the peer has read longest ago are written fastest. */
enum { SMALL_NBYTES = 4096 + HEADER_NBYTES, LONGER_NBYTES = (16 << 10) + HEADER_NBYTES, FIRST_LAP_NBYTES = 32 << 10, LONGER_LAPS = 4, FIRST_LONGER = 64 };
/* How much of small frames is read before the writer hears of it. */
enum { TOLD_NBYTES = FIRST_LAP_NBYTES / 4 };

static Word *rings_control(const unsigned char *ring, int index)
{
    return (Word *)(uintptr_t)(ring - CONTROL_NBYTES + 8 * index);
}

static size_t rings_padded(size_t nbytes)
{
    return (nbytes + 31) & ~(size_t)31;
}

/* ------------------------------------------------------------------ out */

static void rings_put_word(unsigned char *at, uint64_t word)
{
    memcpy(at, &word, sizeof word);
}

uint64_t rings_unread(Rings *rings)
{
    /* Acquire: what is written over has been read before the peer said so. */
    rings->known_tail = atomic_load_explicit(rings_control(rings->out, TAIL), memory_order_acquire);
    return rings->head - rings->known_tail;
}

/* How many times the lap of small frames a frame may use of the ring; 0 if it may use all. */
static size_t rings_laps_of(size_t need, unsigned longer_before)
{
    return need <= SMALL_NBYTES ? 1 : need <= LONGER_NBYTES && longer_before < FIRST_LONGER ? LONGER_LAPS : 0;
}

static bool rings_is_behind_its_lap(const Rings *rings, size_t need, size_t at)
{
    size_t laps = rings_laps_of(need, rings->longer_written);
    return laps > 0 && at >= laps * rings->lap_nbytes;
}

/* Whether a small frame had better begin a new lap, though there is room at the end of the ring. The peer has read most of
   this lap: all that it has read is room for what is written before it comes to the end of the lap. */
static bool rings_laps_early(const Rings *rings, size_t need, size_t at)
{
    return rings_is_behind_its_lap(rings, need, at) && rings->head - rings->known_tail <= at / 4;
}

/* How much is left unused at the end of the ring before a frame of so many bytes. */
static size_t rings_skipped_before(const Rings *rings, size_t need)
{
    size_t at = rings->head % (size_t)rings->capacity, left = (size_t)rings->capacity - at;
    return left < need || rings_laps_early(rings, need, at) ? left : 0;
}

static bool rings_known_to_fit(const Rings *rings, size_t need)
{
    size_t capacity = (size_t)rings->capacity;
    uint64_t used = rings->head - rings->known_tail; /* nonsense if the peer says so */
    return used <= capacity && rings_skipped_before(rings, need) + need <= capacity - used;
}

bool rings_fit(Rings *rings, size_t nbytes)
{
    size_t need = HEADER_NBYTES + rings_padded(nbytes);
    /* The peer's word need not be fetched as long as there was room enough before. */
    if (rings_known_to_fit(rings, need) || (rings_unread(rings), rings_known_to_fit(rings, need)))
        return true;
    if (rings->lap_nbytes < (size_t)rings->capacity)
        rings->lap_nbytes *= 2; /* so much is sent at once that short laps leave too little room */
    return false;
}

bool rings_write(Rings *rings, Frame frame, const void *data, size_t nbytes)
{
    size_t capacity = (size_t)rings->capacity, need = HEADER_NBYTES + rings_padded(nbytes), at = rings->head % capacity;
    if (rings_is_behind_its_lap(rings, need, at))
        rings_unread(rings);
    if (!rings_fit(rings, nbytes))
        return false;
    size_t skipped = rings_skipped_before(rings, need);
    if (skipped > 0) {
        rings_put_word(rings->out + at, WRAP);
        at = 0;
    }
    outgoing_touch(&rings->touched, rings->out, capacity, at, need, MOST_AHEAD);
    rings_put_word(rings->out + at, frame.first);
    rings_put_word(rings->out + at + 8, frame.length);
    rings_put_word(rings->out + at + 16, frame.marks);
    rings_put_word(rings->out + at + 24, frame.address);
    if (nbytes > 0)
        outgoing_copy(&rings->outgoing, rings->out + at + HEADER_NBYTES, data, nbytes);
    rings->head += skipped + need;
    rings->longer_written += need > SMALL_NBYTES;
    __builtin_prefetch(rings->out + rings->head % capacity, 1);
    /* Release: a rank that sees it sees the frame. */
    atomic_store_explicit(rings_control(rings->out, HEAD), rings->head, memory_order_release);
    return true;
}

/* A tag, and how far the reader had come: once it has read more the word is out of date. */
static uint64_t rings_wait_word(unsigned tag, uint64_t position)
{
    return (position / 32) << 32 | 1u << 31 | tag;
}

void rings_wait_for(Rings *rings, unsigned tag)
{
    atomic_store_explicit(rings_control(rings->into, WAITS_FOR), rings_wait_word(tag, rings->tail), memory_order_relaxed);
}

void rings_wait_no_more(Rings *rings)
{
    atomic_store_explicit(rings_control(rings->into, WAITS_FOR), 0, memory_order_relaxed);
}

bool rings_awaited(const Rings *rings, unsigned tag)
{
    return atomic_load_explicit(rings_control(rings->out, WAITS_FOR), memory_order_relaxed) == rings_wait_word(tag, rings->head);
}

/* The descriptor that wakes the peer, opened when it is needed first; -1 if it cannot be had. */
static int rings_open_bell(Rings *rings)
{
    int bell = atomic_load(&rings->bell);
    if (bell >= 0)
        return bell;
    /* opens: the bell of a rank, a pipe into which others of its host write */
    int opened = open(rings->bell_path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat found;
    if (opened < 0)
        return -1;
    /* The peer may have ended, and another process have got its number. */
    if (fstat(opened, &found) != 0 || found.st_ino != rings->bell_inode || !S_ISFIFO(found.st_mode)) {
        close(opened);
        return -1;
    }
    if (atomic_compare_exchange_strong(&rings->bell, &bell, opened))
        return opened;
    close(opened); /* another thread was faster */
    return bell;
}

static void rings_close_bell(Rings *rings)
{
    int bell = atomic_exchange(&rings->bell, -1);
    if (bell >= 0)
        close(bell);
}

/* Wake the peer that sleeps as `how` says; false if it does not any more. */
static bool rings_rouse(Rings *rings, uint64_t how)
{
    int bell = how == AT_BELL ? rings_open_bell(rings) : -1;
    if (how == AT_BELL && bell < 0)
        return true; /* it has gone; or there is no descriptor left, and it looks by itself now and then */
    if (!atomic_compare_exchange_strong(rings->asleep, &how, AWAKE))
        return false;
    if (bell < 0) {
        syscall(SYS_futex, rings->asleep, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    } else {
        ssize_t written = write(bell, "b", 1); /* if not, it is being woken already, or has gone */
        (void)written;
    }
    return true;
}

void rings_wake(Rings *rings)
{
    /* A full fence: either the peer, which says that it sleeps before it looks once more, sees what was written, or this
       sees that it sleeps. */
    atomic_thread_fence(memory_order_seq_cst);
    uint64_t how;
    while ((how = atomic_load_explicit(rings->asleep, memory_order_relaxed)) != AWAKE && !rings_rouse(rings, how))
        RELAX();
}

bool rings_share_processor(const Rings *rings)
{
    return waiting_shares_processor(rings->asleep + 1);
}

void rings_note_processor(Word *asleep)
{
    waiting_note_processor(asleep + 1);
}

void rings_sleep_at_word(Word *asleep, int longest_ms)
{
    struct timespec longest = {longest_ms / 1000, longest_ms % 1000 * 1000000L};
    syscall(SYS_futex, asleep, FUTEX_WAIT, (uint32_t)AT_WORD, &longest, NULL, 0);
}

/* ------------------------------------------------------------------ in */

bool rings_have_news(const Rings *rings)
{
    /* Acquire: the frame is read only afterwards. */
    return atomic_load_explicit(rings_control(rings->into, HEAD), memory_order_acquire) != rings->tail;
}

/* Let the peer have the room of so many bytes. */
static void rings_pass(Rings *rings, size_t nbytes)
{
    uint64_t most = (uint64_t)rings->capacity / 8, told = rings_laps_of(nbytes, rings->longer_read) * TOLD_NBYTES;
    if (told > 0 && most > told)
        most = told;
    rings->tail += nbytes;
    rings->longer_read += nbytes > SMALL_NBYTES;
    uint64_t head = atomic_load_explicit(rings_control(rings->into, HEAD), memory_order_relaxed);
    /* To tell costs as much as a small message, and need not be yet: a writer that waits for room has filled far more
       than this, and this end tells of it when it reads that. */
    if (head - rings->told_tail <= most)
        return;
    rings->told_tail = rings->tail;
    /* Release: it has been read before it is written over. */
    atomic_store_explicit(rings_control(rings->into, TAIL), rings->tail, memory_order_release);
    /* A full fence: either this sees that the peer waits for room, or the peer, which looks again after it has said so,
       sees the room. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(rings_control(rings->into, WANTS_ROOM), memory_order_relaxed) == 0)
        return;
    uint64_t left = atomic_load_explicit(rings_control(rings->into, HEAD), memory_order_relaxed) - rings->tail;
    if (2 * left <= (uint64_t)rings->capacity) {
        atomic_store_explicit(rings_control(rings->into, WANTS_ROOM), 0, memory_order_relaxed);
        rings_wake(rings);
    }
}

static uint64_t rings_word_at(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

bool rings_next(Rings *rings, Frame *frame)
{
    size_t capacity = (size_t)rings->capacity;
    for (;;) {
        uint64_t there = atomic_load_explicit(rings_control(rings->into, HEAD), memory_order_acquire) - rings->tail;
        size_t at = rings->tail % capacity;
        if (there == 0)
            return false;
        *frame = (Frame){.first = SENSELESS};
        if (there > capacity || at + HEADER_NBYTES > capacity)
            return true;
        const unsigned char *header = rings->into + at;
        uint64_t first = rings_word_at(header);
        if ((first & 0xff) != WRAP) {
            *frame = (Frame){first, rings_word_at(header + 8), rings_word_at(header + 16), rings_word_at(header + 24),
                             header + HEADER_NBYTES, capacity - at - HEADER_NBYTES};
            return true;
        }
        if (capacity - at > there)
            return true;
        rings_pass(rings, capacity - at);
    }
}

void rings_advance(Rings *rings, size_t nbytes)
{
    rings_pass(rings, HEADER_NBYTES + rings_padded(nbytes));
}

Joint *rings_joint(const Rings *rings, bool received)
{
    return (Joint *)(void *)rings_control(received ? rings->into : rings->out, JOINT);
}

/* ------------------------------------------------------------------ for the class in Python */

static void rings_let_memory_go(Rings *rings)
{
    if (rings->out == NULL || rings->inside > 0)
        return;
    rings->out = rings->into = NULL;
    PyBuffer_Release(&rings->memory);
    rings_close_bell(rings);
}

void rings_enter(Rings *rings)
{
    Py_INCREF(rings);
    rings->inside++;
}

void rings_leave(Rings *rings)
{
    rings->inside--;
    if (rings->closing)
        rings_let_memory_go(rings);
    Py_DECREF(rings);
}

static bool rings_is_open(const Rings *rings)
{
    if (rings->out == NULL || rings->closing)
        PyErr_SetString(PyExc_ValueError, "the rings have been closed");
    return rings->out != NULL && !rings->closing;
}

static PyObject *rings_py_write(Rings *rings, PyObject *const *args, Py_ssize_t count)
{
    if (!rings_is_open(rings))
        return NULL;
    uint64_t words[4] = {0};
    Py_buffer data;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "write(first, length, marks, address, data)");
        return NULL;
    }
    for (int i = 0; i < 4; i++)
        words[i] = PyLong_AsUnsignedLongLong(args[i]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[4], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    Frame frame = {.first = words[0], .length = words[1], .marks = words[2], .address = words[3]};
    bool fits = data.len <= rings->capacity - HEADER_NBYTES;
    bool written = fits && rings_write(rings, frame, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyBool_FromLong(written);
}

static PyObject *rings_py_ask_for_room(Rings *rings, PyObject *Py_UNUSED(unused))
{
    if (!rings_is_open(rings))
        return NULL;
    atomic_store_explicit(rings_control(rings->out, WANTS_ROOM), 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* the other half of the one in `pass` */
    Py_RETURN_NONE;
}

static PyObject *rings_py_wake(Rings *rings, PyObject *Py_UNUSED(unused))
{
    if (rings->out != NULL && !rings->closing)
        rings_wake(rings);
    Py_RETURN_NONE;
}

static PyObject *rings_py_has_room(Rings *rings, PyObject *Py_UNUSED(unused))
{
    return rings_is_open(rings) ? PyBool_FromLong(atomic_load_explicit(rings_control(rings->out, WANTS_ROOM), memory_order_relaxed) == 0) : NULL;
}

static PyObject *rings_py_has_news(Rings *rings, PyObject *Py_UNUSED(unused))
{
    return rings_is_open(rings) ? PyBool_FromLong(rings_have_news(rings)) : NULL;
}

static PyObject *rings_py_next(Rings *rings, PyObject *Py_UNUSED(unused))
{
    Frame frame;
    if (!rings_is_open(rings))
        return NULL;
    if (!rings_next(rings, &frame))
        Py_RETURN_NONE;
    return Py_BuildValue("(KKKK)", (unsigned long long)frame.first, (unsigned long long)frame.length,
                         (unsigned long long)frame.marks, (unsigned long long)frame.address);
}

static PyObject *rings_py_payload(Rings *rings, PyObject *nbytes)
{
    Py_ssize_t count = PyLong_AsSsize_t(nbytes);
    if (PyErr_Occurred() || !rings_is_open(rings))
        return NULL;
    Py_ssize_t room = rings->capacity - (Py_ssize_t)(rings->tail % (uint64_t)rings->capacity) - HEADER_NBYTES;
    PyObject *whole = PyMemoryView_FromObject(rings->memory.obj);
    if (whole == NULL)
        return NULL;
    Py_ssize_t end = rings->into - (unsigned char *)rings->memory.buf + rings->capacity, start = end - room;
    PyObject *found = PySequence_GetSlice(whole, start, count < 0 || count > room ? end : start + count);
    Py_DECREF(whole);
    return found;
}

static PyObject *rings_py_advance(Rings *rings, PyObject *nbytes)
{
    Py_ssize_t count = PyLong_AsSsize_t(nbytes);
    if (PyErr_Occurred() || !rings_is_open(rings))
        return NULL;
    rings_advance(rings, (size_t)count);
    Py_RETURN_NONE;
}

static PyObject *rings_py_take(Rings *rings, PyObject *args)
{
    unsigned long long first, dtype;
    Py_buffer room;
    Frame frame;
    if (!rings_is_open(rings) || !PyArg_ParseTuple(args, "KKw*", &first, &dtype, &room))
        return NULL;
    bool fits = rings_next(rings, &frame) && frame.first == first && frame.length <= (uint64_t)room.len &&
                frame.length <= (uint64_t)rings->eager_nbytes && frame.length <= frame.room &&
                (dtype == 0 || frame.marks >> 32 == dtype);
    if (fits) {
        memcpy(room.buf, frame.payload, frame.length);
        rings_advance(rings, frame.length);
    }
    PyBuffer_Release(&room);
    return PyLong_FromLongLong(fits ? (long long)frame.length : -1);
}

static PyObject *rings_py_close(Rings *rings, PyObject *Py_UNUSED(unused))
{
    rings->closing = true;
    rings_let_memory_go(rings);
    Py_RETURN_NONE;
}

/* Where the rings lie in the memory, as rankwise_gloo_tcp.transport.rings.Place says it. */
typedef struct {
    Py_ssize_t out, into, nbytes, asleep;
} Place;

static bool rings_place_is_within(const Py_buffer *memory, const Place *place)
{
    uintptr_t places = (uintptr_t)memory->buf | (uintptr_t)place->out | (uintptr_t)place->into | (uintptr_t)place->asleep;
    Py_ssize_t last = memory->len - place->nbytes;
    return places % 8 == 0 && place->nbytes % 32 == 0 && place->nbytes >= CONTROL_NBYTES + LEAST_CAPACITY &&
           place->out >= 0 && place->out <= last && place->into >= 0 && place->into <= last && place->asleep >= 0 &&
           place->asleep <= memory->len - 16;
}

static PyObject *rings_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *memory;
    Place place;
    const char *path;
    unsigned long long inode;
    if (!PyArg_ParseTuple(args, "O(nnnn)(sK)", &memory, &place.out, &place.into, &place.nbytes, &place.asleep, &path, &inode))
        return NULL;
    Rings *rings = (Rings *)type->tp_alloc(type, 0);
    if (rings == NULL)
        return NULL;
    atomic_store(&rings->bell, -1);
    rings->bell_inode = inode;
    bool is_short = strlen(path) < sizeof rings->bell_path;
    if (is_short)
        strcpy(rings->bell_path, path);
    if (PyObject_GetBuffer(memory, &rings->memory, PyBUF_WRITABLE) < 0) {
        Py_DECREF(rings);
        return NULL;
    }
    if (!is_short || !rings_place_is_within(&rings->memory, &place)) {
        PyBuffer_Release(&rings->memory);
        Py_DECREF(rings);
        PyErr_SetString(PyExc_ValueError, is_short ? "the memory does not hold such rings" : "the path is too long");
        return NULL;
    }
    unsigned char *begin = rings->memory.buf;
    rings->out = begin + place.out + CONTROL_NBYTES;
    rings->into = begin + place.into + CONTROL_NBYTES;
    rings->asleep = (Word *)(uintptr_t)(begin + place.asleep);
    rings->capacity = place.nbytes - CONTROL_NBYTES;
    rings->lap_nbytes = FIRST_LAP_NBYTES;
    rings->eager_nbytes = rings->capacity / 8;
    return (PyObject *)rings;
}

static void rings_free(Rings *rings)
{
    rings_let_memory_go(rings);
    Py_TYPE(rings)->tp_free((PyObject *)rings);
}

static PyMethodDef methods[] = {
    {"write", (PyCFunction)(void (*)(void))rings_py_write, METH_FASTCALL, "Write a frame; false if there is no room."},
    {"ask_for_room", (PyCFunction)rings_py_ask_for_room, METH_NOARGS, "Ask the peer to tell when it has made room."},
    {"wake", (PyCFunction)rings_py_wake, METH_NOARGS, "Wake the peer if it sleeps."},
    {"has_room", (PyCFunction)rings_py_has_room, METH_NOARGS, "Tell whether it has."},
    {"has_news", (PyCFunction)rings_py_has_news, METH_NOARGS, "Tell whether something has come."},
    {"next", (PyCFunction)rings_py_next, METH_NOARGS, "Return the next frame's header."},
    {"payload", (PyCFunction)rings_py_payload, METH_O, "Return what follows it."},
    {"advance", (PyCFunction)rings_py_advance, METH_O, "Pass over the next frame."},
    {"take", (PyCFunction)rings_py_take, METH_VARARGS, "Take the next frame if it is such a message."},
    {"close", (PyCFunction)rings_py_close, METH_NOARGS, "Let the memory go, as soon as no call uses it."},
    {0},
};

static PyMemberDef members[] = {
    {"capacity", T_PYSSIZET, offsetof(Rings, capacity), READONLY, NULL},
    {"eager_nbytes", T_PYSSIZET, offsetof(Rings, eager_nbytes), READONLY, NULL},
    {"head", T_ULONGLONG, offsetof(Rings, head), READONLY, NULL},
    {"tail", T_ULONGLONG, offsetof(Rings, tail), READONLY, NULL},
    {0},
};

PyTypeObject RingsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Rings",
    .tp_basicsize = sizeof(Rings),
    .tp_new = rings_new,
    .tp_dealloc = (destructor)rings_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
    .tp_members = members,
};

static PyObject *rings_py_fence(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    atomic_thread_fence(memory_order_seq_cst);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"fence", rings_py_fence, METH_NOARGS, "Let no later access to memory pass an earlier one."},
    {0},
};

int rings_add_types(PyObject *module)
{
    return PyModule_AddType(module, &RingsType) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
