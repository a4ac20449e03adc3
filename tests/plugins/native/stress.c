/* Threads that meet at a board, pass data, look and sleep: for ThreadSanitizer, which sees what is not ordered.
   scripts/native builds and runs it; no Python takes part. */
#include "board.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, ROUNDS = 20000, BYTES = 256 };

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
    return wrong != 0;
}
