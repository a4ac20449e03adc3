/* How a wait looks for what others write to shared memory before it sleeps. */
#ifndef RANKWISE_WAITING_H
#define RANKWISE_WAITING_H

#include "native.h"

#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("isb" ::: "memory") /* a yield is nothing on most of these processors */
#else
#define RELAX() atomic_signal_fence(memory_order_seq_cst)
#endif

/* Fetch a line of memory that this rank is about to write to, away from the processors that have read it. */
#if defined(__x86_64__)
#define CLAIM(at) __asm__ volatile("prefetchw %0" ::"m"(*(const char *)(at))) /* the compiler's own fetches it to be read */
#else
#define CLAIM(at) __builtin_prefetch((at), 1)
#endif

/* A word of memory that processes share. */
typedef _Atomic uint64_t Word;
_Static_assert(sizeof(Word) == 8, "words are shared with other languages");

enum { LONGEST_LOOK_NS = 100000, BRIEF = 200 };

/* What waits of one kind have learned. */
typedef struct {
    bool may_spin;   /* whether there is a processor for each rank */
    int64_t spin_ns; /* how long a wait looks before it sleeps */
    int resigned;    /* how many waits do not try to look for longer */
    int64_t waited_ns; /* for how long others were waited for in all, but for waits of a microsecond or so */
} Patience;

/* Whether what is waited for has come. It may look at memory, and at nothing of Python's. */
typedef bool (*Ready)(void *what);

Patience patience_new(bool may_spin);
/* On which processor a rank runs, as it says in a word that the others look at when they are about to look for what it writes:
   if that is their own, it cannot come while they do. Each only believes it: who is wrong looks in vain, or sleeps too soon. */
void waiting_note_processor(Word *runs_on);
bool waiting_shares_processor(const Word *runs_on);

/* Look until it is ready, for a bounded time; tell whether it is. The interpreter is let go if it is `held` and looking
   takes long. */
bool patience_look(Patience *patience, Ready ready, void *what, bool held);
/* Learn from a wait that has slept for so long. */
void patience_learn(Patience *patience, int64_t slept_ns);

#endif
