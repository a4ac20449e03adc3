/* Meeting at the board: turns, records, looking and sleeping. The order of the memory accesses is modelled in
   tests/plugins/native/protocol_model.py; each comment that names an order says what would break without it. */
#include "board.h"
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("isb" ::: "memory") /* a yield is nothing on most of these processors */
#else
#define RELAX() atomic_signal_fence(memory_order_seq_cst)
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernel looks at the lower half of a word, which must come first"
#endif

typedef _Atomic uint64_t Word;
_Static_assert(sizeof(Word) == 8, "words are shared with other languages");

/* Words of the board's first page: whether it is given up, for which turn somebody sleeps, and how far all have come. */
enum { GIVEN_UP = 0, SLEEPERS = 4, GO = 6 };
/* How often a wait looks before it lets the interpreter go, and between looks at the clock. */
enum { BRIEF = 200, CLOCK = 32 };
static const int64_t MOST_SPIN_NS = 100000, LEAST_SPIN_NS = 15000;

static Word *word(const Board *board, size_t index)
{
    return (Word *)(void *)(board->base + 8 * index);
}

static Word *turn_of(const Board *board, int peer)
{
    return (Word *)(void *)(board->base + board->control + (size_t)peer * board->control_stride);
}

static Word *record_of(const Board *board, int peer)
{
    return (Word *)(void *)(board->base + board->records + (2 * (size_t)peer + (board->turn & 1)) * RECORD_STRIDE);
}

/* The first rank after this one that has not come; -1 if all have.
   Acquire: what the others wrote before they came is read only afterwards. */
static int first_late(const Board *board, int from)
{
    for (int k = from; k < board->size; k++) {
        int peer = (board->rank + k) % board->size;
        if (atomic_load_explicit(turn_of(board, peer), memory_order_acquire) < board->turn)
            return k;
    }
    return -1;
}

static void wake(Board *board)
{
    syscall(SYS_futex, word(board, GO), FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Look for those who are late, for as long as it takes to fall asleep and be woken. */
static bool look(Board *board, int late, bool held)
{
    PyThreadState *let_go = NULL;
    int64_t until = 0;
    if (!board->may_spin) { /* the one that is waited for may be next in line for this processor */
        let_go = held ? PyEval_SaveThread() : NULL;
        for (int n = 0; n < 2 && late >= 0; n++) {
            sched_yield();
            late = first_late(board, late);
        }
    }
    for (unsigned n = 1; board->may_spin && (late = first_late(board, late)) >= 0; n++) {
        RELAX();
        if (n == BRIEF && held)
            let_go = PyEval_SaveThread();
        if (n % CLOCK != 0)
            continue;
        int64_t now = monotonic_ns();
        if (until == 0)
            until = now + board->spin_ns;
        else if (now >= until)
            break;
    }
    if (let_go != NULL)
        PyEval_RestoreThread(let_go);
    /* Where the ranks are not in step, or others want the processor, looking is in vain, and soon becomes short. */
    int64_t next = late < 0 ? 2 * board->spin_ns : board->spin_ns / 2;
    board->spin_ns = next > MOST_SPIN_NS ? MOST_SPIN_NS : next < LEAST_SPIN_NS ? LEAST_SPIN_NS : next;
    return late < 0;
}

static bool arrive(Board *board, bool held)
{
    unsigned long long turn = board->turn;
    /* Release: whoever sees the number sees the record and the data, and need not fear that this rank still reads what
       it is about to write over. */
    atomic_store_explicit(turn_of(board, board->rank), turn, memory_order_release);
    /* A full fence: this rank's number is there before it looks for the others'. So of the last two to come at least one
       sees that all are there, and of that one and whoever goes to sleep at least one sees the other. */
    atomic_thread_fence(memory_order_seq_cst);
    int late = first_late(board, 1);
    if (late >= 0)
        return look(board, late, held);
    if (atomic_load_explicit(word(board, SLEEPERS + (turn & 1)), memory_order_relaxed) == turn) {
        /* Release: whoever is woken by it has all that this rank has acquired from the others. */
        atomic_store_explicit(word(board, GO), turn, memory_order_release);
        wake(board);
    }
    return true;
}

bool board_come(Board *board, bool held)
{
    board->turn++;
    return arrive(board, held);
}

bool board_come_with(Board *board, const uint64_t about[RECORD_WORDS], bool held)
{
    board->turn++;
    Word *record = record_of(board, board->rank);
    for (int field = 0; field < RECORD_WORDS; field++) /* relaxed: the turn number's release covers them */
        atomic_store_explicit(record + field, about[field], memory_order_relaxed);
    return arrive(board, held);
}

bool board_alike(Board *board, const uint64_t about[RECORD_WORDS])
{
    uint64_t balance = about[SENT] - about[RECEIVED];
    for (int k = 1; k < board->size; k++) { /* relaxed: the turn numbers have been acquired */
        const Word *record = record_of(board, (board->rank + k) % board->size);
        if (atomic_load_explicit(record + SEQUENCE, memory_order_relaxed) != about[SEQUENCE] ||
            atomic_load_explicit(record + DIGEST, memory_order_relaxed) != about[DIGEST])
            return false;
        balance += atomic_load_explicit(record + SENT, memory_order_relaxed) -
                   atomic_load_explicit(record + RECEIVED, memory_order_relaxed);
    }
    return balance == 0 || (about[SENT] == 0 && about[RECEIVED] == 0);
}

uint64_t board_longest(Board *board)
{
    uint64_t longest = 0;
    for (int peer = 0; peer < board->size; peer++) {
        uint64_t told = atomic_load_explicit(record_of(board, peer) + LONGEST, memory_order_relaxed);
        longest = told > longest ? told : longest;
    }
    return longest;
}

bool board_given_up(const Board *board)
{
    return atomic_load_explicit(word(board, GIVEN_UP), memory_order_relaxed) != 0;
}

/* Sleep until all have come, somebody wakes, a signal comes or the time is up; whether all have come. */
static bool doze(Board *board, int64_t longest_ns)
{
    uint64_t turn = board->turn, found = atomic_load_explicit(word(board, GO), memory_order_acquire);
    atomic_store_explicit(word(board, SLEEPERS + (turn & 1)), turn, memory_order_relaxed);
    /* A full fence, the other half of the one in `arrive`: say so before looking whether it is needed. */
    atomic_thread_fence(memory_order_seq_cst);
    if (found >= turn || first_late(board, 1) < 0)
        return true;
    struct timespec time = {longest_ns / 1000000000, longest_ns % 1000000000};
    syscall(SYS_futex, word(board, GO), FUTEX_WAIT, (uint32_t)found, &time, NULL, 0);
    return atomic_load_explicit(word(board, GO), memory_order_acquire) >= turn || first_late(board, 1) < 0;
}

/* ------------------------------------------------------------------ the memory's life */

bool board_enter(Board *board)
{
    if (board->base == NULL || board->closing) {
        PyErr_SetString(PyExc_ValueError, "the board has been closed");
        return false;
    }
    board->inside++;
    return true;
}

static void let_memory_go(Board *board)
{
    if (board->base != NULL && board->inside == 0) {
        board->base = NULL;
        PyBuffer_Release(&board->memory);
    }
}

void board_leave(Board *board)
{
    if (--board->inside == 0 && board->closing)
        let_memory_go(board);
}

static bool fits(const Board *board)
{
    size_t size = (size_t)board->size, nbytes = (size_t)board->memory.len;
    /* No sum or product below can overflow once each part is within the memory. */
    return board->size >= 1 && board->size <= MOST_RANKS && board->rank >= 0 && board->rank < board->size &&
           board->control >= 64 && board->control <= nbytes && board->control_stride >= 64 && board->control_stride <= 4096 &&
           board->control + size * board->control_stride <= board->records && board->records <= nbytes &&
           board->records + 2 * size * RECORD_STRIDE <= board->data && board->data <= nbytes &&
           board->area_nbytes >= CACHE_LINE && board->area_nbytes <= (nbytes - board->data) / (2 * size) &&
           board->most_nbytes <= board->area_nbytes &&
           ((board->control | board->control_stride | board->records | board->data | board->area_nbytes) & 7) == 0;
}

static PyObject *py_attach(Board *board, PyObject *args)
{
    PyObject *memory;
    int spins;
    if (board->base != NULL || board->closing) {
        PyErr_SetString(PyExc_RuntimeError, "a board is attached once");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "Oiinnnnnnp", &memory, &board->rank, &board->size, &board->control, &board->control_stride,
                          &board->records, &board->data, &board->area_nbytes, &board->most_nbytes, &spins))
        return NULL;
    if (PyObject_GetBuffer(memory, &board->memory, PyBUF_WRITABLE) < 0)
        return NULL;
    if (!fits(board)) {
        PyBuffer_Release(&board->memory);
        PyErr_SetString(PyExc_ValueError, "the memory does not hold such a board");
        return NULL;
    }
    board->base = board->memory.buf;
    board->may_spin = spins;
    board->spin_ns = MOST_SPIN_NS;
    Py_RETURN_NONE;
}

static PyObject *py_detach(Board *board, PyObject *Py_UNUSED(unused))
{
    board->closing = true;
    let_memory_go(board);
    Py_RETURN_NONE;
}

static void board_free(Board *board)
{
    if (board->base != NULL)
        PyBuffer_Release(&board->memory);
    Py_TYPE(board)->tp_free((PyObject *)board);
}

/* ------------------------------------------------------------------ for the class in Python */

static PyObject *py_arrive(Board *board, PyObject *Py_UNUSED(unused))
{
    if (!board_enter(board))
        return NULL;
    bool all = arrive(board, true);
    board_leave(board);
    return PyBool_FromLong(all);
}

static PyObject *py_doze(Board *board, PyObject *seconds)
{
    double longest_s = PyFloat_AsDouble(seconds);
    bool all;
    if (PyErr_Occurred() || !board_enter(board))
        return NULL;
    int64_t longest_ns = longest_s > 0.02 ? 20000000 : longest_s > 0 ? (int64_t)(1e9 * longest_s) : 0;
    Py_BEGIN_ALLOW_THREADS
    all = doze(board, longest_ns);
    Py_END_ALLOW_THREADS
    board_leave(board);
    return PyBool_FromLong(all);
}

static PyObject *py_wake(Board *board, PyObject *Py_UNUSED(unused))
{
    if (!board_enter(board))
        return NULL;
    wake(board);
    board_leave(board);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"attach", (PyCFunction)py_attach, METH_VARARGS, "Begin to use the memory."},
    {"detach", (PyCFunction)py_detach, METH_NOARGS, "Give it back, as soon as no call uses it."},
    {"arrive", (PyCFunction)py_arrive, METH_NOARGS, "Come to the turn; tell whether all have after a short look."},
    {"doze", (PyCFunction)py_doze, METH_O, "Sleep for some milliseconds at the most; tell whether all have come."},
    {"wake", (PyCFunction)py_wake, METH_NOARGS, "Wake all who sleep."},
    {0},
};

#include <structmember.h>

static PyMemberDef members[] = {
    {"_turn", T_ULONGLONG, offsetof(Board, turn), 0, NULL},
    {"_parity", T_ULONGLONG, offsetof(Board, parity), 0, NULL},
    {0},
};

PyTypeObject BoardType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Turns",
    .tp_basicsize = sizeof(Board),
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)board_free,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_methods = methods,
    .tp_members = members,
};

int board_add_types(PyObject *module)
{
    return PyModule_AddType(module, &BoardType);
}
