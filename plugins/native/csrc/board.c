/* Meeting at the board: turns, records, looking and sleeping. tests/plugins/native/protocol_model.py reads the memory
   accesses and their orders out of this file, and tries what they allow; each comment that names an order says what would
   break without it. */
#include "board.h"
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernel looks at the lower half of a word, which must come first"
#endif

static Word *board_word(const Board *board, size_t index)
{
    return (Word *)(void *)(board->base + 8 * index);
}

static Word *board_record_of(const Board *board, int peer)
{
    return (Word *)(void *)(board->base + board->records + (2 * (size_t)peer + (board->turn & 1)) * RECORD_STRIDE);
}

/* Beside the record, in one line of the cache. */
static Word *board_turn_of(const Board *board, int peer)
{
    return board_record_of(board, peer) + TURN;
}

/* The first rank after this one that has not come; -1 if all have.
   Acquire: what the others wrote before they came is read only afterwards. */
static int board_first_late(const Board *board, int from)
{
    for (int k = from; k < board->size; k++) {
        int peer = (board->rank + k) % board->size;
        if (atomic_load_explicit(board_turn_of(board, peer), memory_order_acquire) < board->turn)
            return k;
    }
    return -1;
}

/* All have come, so nobody reads what this rank writes next: to have its lines here by then halves what a small call takes. */
static void board_claim(const Board *board)
{
    CLAIM(board->base + board->records + (2 * (size_t)board->rank + (~board->turn & 1)) * RECORD_STRIDE);
    CLAIM(board_area(board, board->rank, ~board->parity));
}

static Word *board_runs_on(const Board *board, int peer)
{
    return (Word *)(void *)(board->base + board->control + (size_t)peer * board->control_stride) + RUNS_ON;
}

/* Whether one of those that have not come is next on this rank's processor. */
static bool board_keeps_from_coming(const Board *board, int late)
{
    for (int k = late; k >= 0; k = board_first_late(board, k + 1))
        if (waiting_shares_processor(board_runs_on(board, (board->rank + k) % board->size)))
            return true;
    return false;
}

void board_wake(Board *board)
{
    syscall(SYS_futex, board_word(board, GO), FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

typedef struct {
    Board *board;
    int late;
} Waited;

static bool board_all_there(void *what)
{
    Waited *waited = what;
    return (waited->late = board_first_late(waited->board, waited->late)) < 0;
}

bool board_arrive(Board *board, bool held, Meanwhile meanwhile)
{
    unsigned long long turn = board->turn;
    waiting_note_processor(board_runs_on(board, board->rank));
    /* Release: a rank that sees the number sees the record and the data, and need not fear that this rank still reads what
       it is about to write over. */
    atomic_store_explicit(board_turn_of(board, board->rank), turn, memory_order_release);
    if (meanwhile.run != NULL)
        meanwhile.run(meanwhile.what);
    /* A full fence: this rank's number is there before it looks for the others'. So of the last two to come at least one
       sees that all are there, and of that one and a rank that goes to sleep at least one sees the other. */
    atomic_thread_fence(memory_order_seq_cst);
    int late = board_first_late(board, 1);
    if (late >= 0)
        return !(board->patience.may_spin && board_keeps_from_coming(board, late)) &&
               patience_look(&board->patience, board_all_there, &(Waited){board, late}, held);
    if (atomic_load_explicit(board_word(board, SLEEPERS + (turn & 1)), memory_order_relaxed) == turn) {
        /* Release: a rank that is woken by it has all that this rank has acquired from the others. */
        atomic_store_explicit(board_word(board, GO), turn, memory_order_release);
        board_wake(board);
    }
    return true;
}

bool board_come(Board *board, bool held)
{
    board->turn++;
    return board_arrive(board, held, (Meanwhile){0});
}

bool board_come_with(Board *board, const uint64_t about[RECORD_WORDS], bool held, Meanwhile meanwhile)
{
    board->turn++;
    Word *record = board_record_of(board, board->rank);
    for (int field = 0; field < RECORD_WORDS; field++) /* relaxed: the turn number's release covers them */
        atomic_store_explicit(record + field, about[field], memory_order_relaxed);
    return board_arrive(board, held, meanwhile);
}

bool board_alike(Board *board, const uint64_t about[RECORD_WORDS])
{
    board_claim(board);
    uint64_t balance = about[SENT] - about[RECEIVED];
    for (int k = 1; k < board->size; k++) { /* relaxed: the turn numbers have been acquired */
        const Word *record = board_record_of(board, (board->rank + k) % board->size);
        if (atomic_load_explicit(record + SEQUENCE, memory_order_relaxed) != about[SEQUENCE] ||
            atomic_load_explicit(record + DIGEST, memory_order_relaxed) != about[DIGEST])
            return false;
        balance += atomic_load_explicit(record + SENT, memory_order_relaxed) -
                   atomic_load_explicit(record + RECEIVED, memory_order_relaxed);
    }
    return balance == 0 || (about[SENT] == 0 && about[RECEIVED] == 0);
}

uint64_t board_told_by(Board *board, int peer)
{
    return atomic_load_explicit(board_record_of(board, peer) + LONGEST, memory_order_relaxed);
}

uint64_t board_longest(Board *board)
{
    uint64_t longest = 0, fetches = 0;
    for (int peer = 0; peer < board->size; peer++) {
        uint64_t told = board_told_by(board, peer);
        fetches |= told >= FETCHES ? FETCHES : 0;
        told &= ~FETCHES;
        longest = told > longest ? told : longest;
    }
    return longest | fetches;
}

void board_told_in_common(Board *board, uint64_t *every, uint64_t *any)
{
    *every = UINT64_MAX;
    *any = 0;
    for (int peer = 0; peer < board->size; peer++) {
        uint64_t told = board_told_by(board, peer);
        *every &= told;
        *any |= told;
    }
}

Joint *board_copy_of(const Board *board, int peer)
{
    return (Joint *)(void *)(board->base + board->control + (size_t)peer * board->control_stride + 8 * COPY);
}

uint32_t board_ident_of(const Board *board, int owner)
{
    return (uint32_t)((board->turn * (unsigned)board->size + (unsigned)owner) % UINT32_MAX) + 1;
}

bool board_given_up(const Board *board)
{
    return atomic_load_explicit(board_word(board, GIVEN_UP), memory_order_relaxed) != 0;
}

bool board_doze(Board *board, int64_t longest_ns)
{
    /* relaxed: the fence below acquires, too */
    uint64_t turn = board->turn, found = atomic_load_explicit(board_word(board, GO), memory_order_relaxed);
    atomic_store_explicit(board_word(board, SLEEPERS + (turn & 1)), turn, memory_order_relaxed);
    /* A full fence, the other half of the one in `board_arrive`: say so before looking whether it is needed. */
    atomic_thread_fence(memory_order_seq_cst);
    if (found >= turn || board_first_late(board, 1) < 0) {
        patience_learn(&board->patience, 0);
        return true;
    }
    int64_t began = native_monotonic_ns();
    struct timespec time = {longest_ns / 1000000000, longest_ns % 1000000000};
    syscall(SYS_futex, board_word(board, GO), FUTEX_WAIT, (uint32_t)found, &time, NULL, 0);
    int64_t slept_ns = native_monotonic_ns() - began;
    board->patience.waited_ns += slept_ns;
    /* Acquire: who is woken reads what the one that wakes has acquired from the others. */
    bool all = atomic_load_explicit(board_word(board, GO), memory_order_acquire) >= turn || board_first_late(board, 1) < 0;
    if (all)
        patience_learn(&board->patience, slept_ns);
    return all;
}
