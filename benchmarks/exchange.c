/* The least that a meeting of two processes takes on this machine: each writes a line of memory and waits for the other's.
 *
 *     cc -O2 benchmarks/exchange.c -o /tmp/exchange && /tmp/exchange
 *
 * It prints the least and the median time of one meeting: of a record with a number, as ranks of a board write it, and of
 * one with 8 bytes of data in another line besides. The processes stay on the processors 0 and 1. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 400, MEETINGS = 2000, LINE = 64, AREA = 4096, WORDS = 6 };

typedef _Atomic uint64_t Word;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static Word *record_of(unsigned char *memory, int rank, uint64_t turn)
{
    return (Word *)(void *)(memory + (2 * rank + (int)(turn & 1)) * LINE);
}

static double *data_of(unsigned char *memory, int rank, uint64_t turn)
{
    return (double *)(void *)(memory + (1 + 2 * rank + (int)(turn & 1)) * AREA);
}

static double meet(unsigned char *memory, int rank, uint64_t turn, int has_data, double value)
{
    Word *mine = record_of(memory, rank, turn), *theirs = record_of(memory, !rank, turn);
    if (has_data)
        *data_of(memory, rank, turn) = value;
    for (int word = 0; word < WORDS; word++)
        atomic_store_explicit(mine + word, turn, memory_order_relaxed);
    atomic_store_explicit(mine + WORDS, turn, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    while (atomic_load_explicit(theirs + WORDS, memory_order_acquire) < turn)
        ;
    if (atomic_load_explicit(theirs, memory_order_relaxed) != turn)
        abort();
    return has_data ? 0.5 * (value + *data_of(memory, !rank, turn)) : value;
}

static int by_size(const void *one, const void *other)
{
    double left = *(const double *)one, right = *(const double *)other;
    return (left > right) - (left < right);
}

static void measure(int rank, unsigned char *memory, int has_data)
{
    static double took[ROUNDS];
    static uint64_t turn;
    double value = 1;
    for (int round = 0; round < ROUNDS; round++) {
        double began = now_ns();
        for (int i = 0; i < MEETINGS; i++)
            value = meet(memory, rank, ++turn, has_data, value);
        took[round] = (now_ns() - began) / MEETINGS;
    }
    qsort(took, ROUNDS, sizeof *took, by_size);
    if (rank == 0)
        printf("%-28s least %4.0f ns, median %4.0f ns\n", has_data ? "a record and 8 bytes" : "a record", took[0], took[ROUNDS / 2]);
}

int main(void)
{
    unsigned char *memory = mmap(NULL, 8 * AREA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    int rank = fork() == 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(rank, &one);
    sched_setaffinity(0, sizeof one, &one);
    measure(rank, memory, 0);
    measure(rank, memory, 1);
    if (rank == 0)
        wait(NULL);
    return 0;
}
