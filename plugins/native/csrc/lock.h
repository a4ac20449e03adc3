/* The lock of an engine: to Python what `threading.Lock` makes. C, which holds it without the interpreter, can tell
   whether others want it, and keep what the lock guards in a form of its own for as long as nobody has it. */
#ifndef RANKWISE_LOCK_H
#define RANKWISE_LOCK_H

#include "native.h"
#include <pythread.h>
#include <stdatomic.h>

typedef struct {
    PyObject_HEAD
    PyThread_type_lock lock;
    atomic_bool held;
    atomic_int waiting; /* how many threads stand still until they have it */
    atomic_bool asked;  /* whether a thread has found it taken, and gone on, since it was */
    /* Called, with this, once it is taken: false, with an exception set, gives it back. NULL for nothing. */
    bool (*prepare)(void *whose);
    void *whose;
} EngineLock;

extern PyTypeObject EngineLockType;

/* Take it if it is free, with the interpreter. */
bool lock_try(EngineLock *lock);
void lock_release(EngineLock *lock);
/* Let it go, and the interpreter with it for as long as a thread that waits for the lock needs to take it: one that takes
   it again immediately would be first every time. */
void lock_hand_over(EngineLock *lock);

/* Whether another thread wants it. */
static inline bool lock_is_wanted(const EngineLock *lock)
{
    return atomic_load_explicit(&lock->waiting, memory_order_relaxed) > 0 || atomic_load_explicit(&lock->asked, memory_order_relaxed);
}

static inline bool lock_is_held(const EngineLock *lock)
{
    return atomic_load_explicit(&lock->held, memory_order_relaxed);
}

#endif
