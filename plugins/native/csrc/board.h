/* The board: memory that all ranks of a group on one machine share. The Python class of rankwise_gloo_tcp, whose layout
   and protocol this is, says what is where; ranks with and without this module meet at the same board. */
#ifndef RANKWISE_BOARD_H
#define RANKWISE_BOARD_H

#include "joint.h"
#include "outgoing.h"
#include "waiting.h"

enum { MOST_RANKS = 4096, CACHE_LINE = 64 };
/* Words of the board's first page: whether it is given up, for which turn somebody sleeps, and how far all have come. */
enum { GIVEN_UP = 0, SLEEPERS = 4, GO = 6 };
/* Words of a rank's control block: of an array that it copies from another rank, from here on; and on which processor it runs. */
enum { COPY = 0, RUNS_ON = 11 };
/* The words of a record. */
#define FETCHES ((uint64_t)1 << 62)
enum { SEQUENCE, DIGEST, COUNT, SENT, RECEIVED, LONGEST, RECORD_WORDS, TURN = RECORD_WORDS, RECORD_STRIDE = 64 };

/* From how many bytes on a part is copied from its owner's memory, and if all others begin with it. */
typedef struct {
    size_t one_nbytes, all_nbytes;
} Fetched;

typedef struct {
    PyObject_HEAD
    Py_buffer memory;
    unsigned char *base; /* NULL before the beginning and after the end */
    int inside;          /* how many calls use the memory this moment */
    bool closing;
    int rank, size;
    size_t control, control_stride, records, data, area_nbytes, most_nbytes;
    int *pids;       /* the processes of all ranks, if each may read the memory of the others, */
    Fetched fetched; /* ... as they do from these lengths on; */
    bool writes;     /* and whether this one may write there, as far as it knows */
    unsigned long long turn, parity;
    Patience patience;
    Outgoing outgoing; /* to this rank's areas */
    Touched touched[2];
} Board;

extern PyTypeObject BoardType;

/* Begin and end to use the memory, which stays for as long. False, with an exception set, once it has gone. */
bool board_enter(Board *board);
void board_leave(Board *board);

/* One half of an area of rank `peer`; within the memory for every peer below the size. */
static inline unsigned char *board_area(const Board *board, int peer, unsigned long long parity)
{
    return board->base + board->data + (2 * (size_t)peer + (parity & 1)) * board->area_nbytes;
}

static inline size_t board_slot_nbytes(const Board *board, int slots)
{
    size_t nbytes = board->area_nbytes / (size_t)slots & ~(size_t)(CACHE_LINE - 1);
    return nbytes < board->most_nbytes ? nbytes : board->most_nbytes;
}

/* Copy to a place in one half of this rank's area. */
static inline void board_put(Board *board, unsigned long long parity, size_t at, const void *from, size_t nbytes)
{
    unsigned char *area = board_area(board, board->rank, parity);
    outgoing_touch(&board->touched[parity & 1], area, board->area_nbytes, at, nbytes, 0);
    outgoing_copy(&board->outgoing, area + at, from, nbytes);
}

/* What is done while the others come, once they can see that this rank has; `run` may be NULL. */
typedef struct {
    void (*run)(void *what);
    void *what;
} Meanwhile;

/* Post this rank's turn, and tell whether all others have come after a look of bounded length. The caller holds the
   interpreter if `held`; it is let go while looking takes long. */
bool board_arrive(Board *board, bool held, Meanwhile meanwhile);
/* Sleep until all have come, somebody wakes, a signal comes or the time is up; tell whether all have come. */
bool board_doze(Board *board, int64_t longest_ns);
/* Wake all who sleep. */
void board_wake(Board *board);
/* The same as arriving, at the next turn. */
bool board_come(Board *board, bool held);
/* The same with a record of this rank's call. */
bool board_come_with(Board *board, const uint64_t about[RECORD_WORDS], bool held, Meanwhile meanwhile);
/* Whether all have made the same call at this turn; everyone has come. */
bool board_alike(Board *board, const uint64_t about[RECORD_WORDS]);
/* The most elements that any rank sends to another through slots, as they tell, and FETCHES if there are others; believe
   it with care. */
uint64_t board_longest(Board *board);
/* What all ranks have told in its place in common: the bits that are set on every rank, and on any. */
void board_told_in_common(Board *board, uint64_t *every, uint64_t *any);
/* ... and what one rank has. */
uint64_t board_told_by(Board *board, int peer);
/* Which pieces are left of the array that a rank copies from another; and by what number both know that copy of this turn. */
Joint *board_copy_of(const Board *board, int peer);
uint32_t board_ident_of(const Board *board, int owner);
/* Whether somebody has given the group up. */
bool board_given_up(const Board *board);

#endif
