#include "waiting.h"
#include <sched.h>

enum { MOST_SPIN_NS = LONGEST_LOOK_NS, LEAST_SPIN_NS = 15000, RESIGNED_WAITS = 200 };
/* As long as two take to wake each other. */
enum { WOKEN_NS = 200000 };
/* How often a wait looks between looks at the clock. */
enum { CLOCK = 32 };
/* How often a wait that has resigned lets others have the processor, and for how long they should have it at the most. */
enum { LEAST_YIELDS = 2, SLICE_NS = 500000 };

/* 0 for none, as in the words of ranks that have said nothing. */
static uint64_t waiting_processor(void)
{
    return (uint64_t)(sched_getcpu() + 1);
}

void waiting_note_processor(Word *runs_on)
{
    uint64_t processor = waiting_processor();
    if (atomic_load_explicit(runs_on, memory_order_relaxed) != processor) /* most often it stays, and so does the line */
        atomic_store_explicit(runs_on, processor, memory_order_relaxed);
}

bool waiting_shares_processor(const Word *runs_on)
{
    uint64_t processor = atomic_load_explicit(runs_on, memory_order_relaxed);
    return processor != 0 && processor == waiting_processor();
}

Patience patience_new(bool may_spin)
{
    return (Patience){.may_spin = may_spin, .spin_ns = MOST_SPIN_NS};
}

/* Where ranks share processors: let others have this one, as the rank that is waited for may be next in line. Where other
   programs are, that costs whole slices of time, and is done no more than a few times for a while. */
static bool waiting_yield(Patience *patience, Ready ready, void *what, bool held)
{
    PyThreadState *let_go = held ? PyEval_SaveThread() : NULL;
    int64_t began = native_monotonic_ns(), before, now = began;
    bool come = false;
    int yields = 0;
    do {
        before = now;
        sched_yield();
        come = ready(what);
        now = native_monotonic_ns();
    } while (!come && now - before < SLICE_NS && now - began < patience->spin_ns &&
             (patience->resigned == 0 || ++yields < LEAST_YIELDS));
    patience->waited_ns += now - began;
    if (let_go != NULL)
        PyEval_RestoreThread(let_go);
    if (now - before >= SLICE_NS)
        patience->resigned = RESIGNED_WAITS;
    else if (patience->resigned > 0)
        patience->resigned--;
    return come;
}

/* For as long as it takes to fall asleep and be woken. */
static bool waiting_spin(Patience *patience, Ready ready, void *what, bool held)
{
    PyThreadState *let_go = NULL;
    int64_t began = 0;
    bool come = false;
    for (unsigned n = 1; !(come = ready(what)); n++) {
        RELAX();
        if (n == BRIEF && held)
            let_go = PyEval_SaveThread();
        if (n % CLOCK != 0)
            continue;
        int64_t now = native_monotonic_ns();
        if (began == 0)
            began = now;
        else if (now - began >= patience->spin_ns)
            break;
    }
    if (began != 0) /* else the wait was so short that nobody looked at the clock */
        patience->waited_ns += native_monotonic_ns() - began;
    if (let_go != NULL)
        PyEval_RestoreThread(let_go);
    if (come) {
        patience->spin_ns = MOST_SPIN_NS;
        patience->resigned = 0;
    }
    return come;
}

bool patience_look(Patience *patience, Ready ready, void *what, bool held)
{
    return patience->may_spin ? waiting_spin(patience, ready, what, held) : waiting_yield(patience, ready, what, held);
}

/* Look for longer next time. To be woken takes longer than a short look, so that ranks that have slept once would go on
   sleeping for each other. So who has slept for no longer than that takes looks for the longest time again: the other is
   at work. If even the longest look was in vain, the ranks are not in step, or others want the processor: look for the
   least time, and do not try again soon. */
void patience_learn(Patience *patience, int64_t slept_ns)
{
    if (!patience->may_spin)
        return;
    if (slept_ns < WOKEN_NS && patience->spin_ns < MOST_SPIN_NS) {
        patience->spin_ns = MOST_SPIN_NS;
        patience->resigned = 0;
    } else if (patience->spin_ns >= MOST_SPIN_NS) {
        patience->spin_ns = LEAST_SPIN_NS;
        patience->resigned = RESIGNED_WAITS;
    } else if (patience->resigned > 0) {
        patience->resigned--;
    } else {
        patience->spin_ns = 2 * patience->spin_ns < MOST_SPIN_NS ? 2 * patience->spin_ns : MOST_SPIN_NS;
    }
}
