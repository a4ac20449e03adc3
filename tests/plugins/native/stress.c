/* Threads that meet at a board, pass data, look and sleep, and that copy together: for ThreadSanitizer, which sees what is not ordered.
   scripts/native builds and runs it; no Python takes part. */
#include "board.h"
#include "joint.h"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, ROUNDS = 20000, BYTES = 256, COPIES = 200, LONG = (2 << 20) + 1 };

static unsigned char *memory;
static size_t nbytes;

PyThreadState *PyEval_SaveThread(void) { abort(); }
void PyEval_RestoreThread(PyThreadState *state) { (void)state, abort(); }

static Board view_of(int rank)
{
    Board board;
    memset(&board, 0, sizeof board);
    board.base = memory;
    board.rank = rank;
    board.size = RANKS;
    board.control = 4096;
    board.control_stride = 128;
    board.records = 8192;
    board.data = 12288;
    board.area_nbytes = board.most_nbytes = 4096;
    board.patience = patience_new(rank % 2 == 0);
    return board;
}

static void *run(void *argument)
{
    int rank = *(int *)argument;
    Board board = view_of(rank);
    unsigned char found[BYTES];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t about[RECORD_WORDS] = {round, 42, 1, 0, 0, 0};
        board.parity ^= 1;
        memset(board_area(&board, rank, board.parity), (int)((round + (uint64_t)rank) % 256), BYTES);
        if (!board_come_with(&board, about, false, (Meanwhile){0}))
            while (!board_doze(&board, 1000000))
                ;
        if (!board_alike(&board, about))
            return "the calls differ";
        for (int peer = 0; peer < RANKS; peer++) {
            memcpy(found, board_area(&board, peer, board.parity), BYTES);
            if (found[0] != (round + (uint64_t)peer) % 256 || found[BYTES - 1] != found[0])
                return "the data is not what was written";
        }
    }
    return NULL;
}

static Joint joint;
static unsigned char sent[LONG], got[LONG];
static Word round_of_copies; /* which the receiver has ended */

static void copy_piece(int64_t piece)
{
    size_t begin, nbytes_of_it = joint_piece(LONG, (uint64_t)piece, &begin);
    memcpy(got + begin, sent + begin, nbytes_of_it);
}

static void *receive(void *unused)
{
    int64_t piece;
    (void)unused;
    for (uint32_t ident = 1; ident <= COPIES; ident++) {
        memset(got, 0, LONG);
        memset(sent, (int)ident, LONG);
        joint_open(&joint, ident, LONG, got);
        while ((piece = joint_take_last(&joint, LONG)) >= 0)
            copy_piece(piece);
        while (joint_is_written_to(&joint))
            sched_yield();
        for (size_t at = 0; at < LONG; at++)
            if (got[at] != (unsigned char)ident) {
                atomic_store(&round_of_copies, COPIES);
                return "a piece has not been copied";
            }
        atomic_store_explicit(&round_of_copies, ident, memory_order_release);
    }
    return NULL;
}

static void *send_along(void *unused)
{
    uint64_t address, ident;
    int64_t piece, helped = 0;
    (void)unused;
    while ((ident = atomic_load_explicit(&round_of_copies, memory_order_relaxed) + 1) <= COPIES) {
        if ((piece = joint_take_first(&joint, (uint32_t)ident, LONG, &address)) < 0)
            continue;
        copy_piece(piece);
        joint_wrote(&joint, piece, true);
        helped++;
    }
    return helped > 0 ? NULL : "the sender has copied nothing";
}

static int copies(void)
{
    pthread_t threads[2];
    void *told[2];
    pthread_create(&threads[0], NULL, receive, NULL);
    pthread_create(&threads[1], NULL, send_along, NULL);
    for (int n = 0; n < 2; n++)
        pthread_join(threads[n], &told[n]);
    for (int n = 0; n < 2; n++)
        if (told[n] != NULL)
            return printf("%s: %s\n", n == 0 ? "receiver" : "sender", (const char *)told[n]);
    return 0;
}

int main(void)
{
    pthread_t threads[RANKS];
    int ranks[RANKS], wrong = 0;
    nbytes = 12288 + 2 * RANKS * 4096;
    memory = aligned_alloc(4096, nbytes);
    memset(memory, 0, nbytes);
    for (int rank = 0; rank < RANKS; rank++) {
        ranks[rank] = rank;
        pthread_create(&threads[rank], NULL, run, &ranks[rank]);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        void *told;
        pthread_join(threads[rank], &told);
        if (told != NULL)
            wrong = printf("rank %d: %s\n", rank, (const char *)told);
    }
    free(memory);
    return wrong != 0 || copies() != 0;
}
