/* Copies that a sender and a receiver make together, in every order in which their accesses to the words can follow each other.
   Both run as coroutines, which stop before each access; `explore` goes through all orders in which no more than three times
   one of the two has to stop although it could go on. */
#define RANKWISE_WAITING_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
typedef _Atomic uint64_t Word;

static void step(void);
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_compare_exchange_weak_explicit
#define atomic_load_explicit(at, order) (step(), *(at))
#define atomic_store_explicit(at, value, order) (step(), *(at) = (value))
#define atomic_compare_exchange_weak_explicit(at, known, value, order, otherwise) \
    (step(), __atomic_compare_exchange_n((uint64_t *)(at), (known), (value), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
#include "../../../plugins/native/csrc/joint.c"

enum { RECEIVER, SENDER, ACTORS, NEVER = 100, MOST = 3, COPIES = 2, FIRST_IDENT = 7, STACK = 64 << 10, POINTS = 3 };

/* What happens in a run, but for the order. Either the receiver waits for the sender's last piece, or both meet afterwards, as in
   a collective: then what could not be written goes another way. */
typedef struct {
    int pieces, fails_at, dies_at, gives_up_after;
    bool meets;
} Plan;

static Plan plan;
static Joint joint;
/* Per copy: how often a piece was copied well; and whether its array has gone. */
static int copied[COPIES][MOST];
static bool gone[COPIES];
static bool ended[ACTORS], died, waits, alone;
static long written;
static char wrong[200];
static ucontext_t scheduler, actors[ACTORS];
static char stacks[ACTORS][STACK];
static int running;

static void step(void)
{
    if (alone)
        return;
    swapcontext(&actors[running], &scheduler);
}

static size_t nbytes_of(int pieces)
{
    return (size_t)pieces * LEAST_NBYTES;
}

/* Wait for the sender, unless it has died. */
static bool await_piece(void)
{
    bool dead;
    do
        dead = ended[SENDER];
    while (joint_is_written_to(&joint) && !dead && (waits = true));
    return !joint_is_written_to(&joint);
}

/* Meet the sender once both have copied; tell whether everything has been. */
static bool meet(void)
{
    while (!ended[SENDER]) {
        waits = true;
        step();
    }
    return !died && joint_not_written(&joint) < 0;
}

static bool receive(int copy)
{
    int64_t piece;
    int taken = 0;
    joint_open(&joint, FIRST_IDENT + (uint32_t)copy, nbytes_of(plan.pieces), (void *)(uintptr_t)(copy + 1));
    while (copy > 0 || taken < plan.gives_up_after) {
        if ((piece = joint_take_last(&joint, nbytes_of(plan.pieces))) < 0)
            break;
        copied[copy][piece]++;
        taken++;
    }
    bool whole = (copy > 0 || plan.gives_up_after == NEVER) && (plan.meets ? meet() : await_piece());
    if (whole && (piece = joint_not_written(&joint)) >= 0)
        copied[copy][piece]++;
    joint_shut(&joint);
    bool stays = joint_is_written_to(&joint);
    gone[copy] = !stays;
    for (int n = 0; whole && n < plan.pieces; n++)
        if (copied[copy][n] != 1)
            snprintf(wrong, sizeof wrong, "piece %d of copy %d was copied %d times", n, copy, copied[copy][n]);
    return !stays;
}

static void receiver(void)
{
    for (int copy = 0; copy < COPIES && receive(copy); copy++)
        ;
    ended[RECEIVER] = true;
    step();
}

static void sender(void)
{
    uint64_t address;
    int64_t piece;
    /* It looks as often as it may find something, also after its copy has ended. */
    for (int looks = 0; looks < plan.pieces + 1; looks++) {
        if ((piece = joint_take_first(&joint, FIRST_IDENT, nbytes_of(plan.pieces), &address)) < 0)
            continue;
        if ((died = piece >= plan.dies_at))
            break;
        step();
        if (address != 1 || gone[0])
            snprintf(wrong, sizeof wrong, "piece %d goes to array %d, which has %s", (int)piece, (int)address, gone[0] ? "gone" : "not gone");
        copied[0][piece] += piece != plan.fails_at;
        joint_wrote(&joint, piece, piece != plan.fails_at);
        written++;
    }
    ended[SENDER] = true;
    step();
}

static void begin(int actor, void (*body)(void))
{
    getcontext(&actors[actor]);
    actors[actor].uc_stack.ss_sp = stacks[actor];
    actors[actor].uc_stack.ss_size = STACK;
    makecontext(&actors[actor], body, 0);
}

/* Let one of the two run, until the count of steps is a point at which the other takes its place; or until it ends, or waits. */
static int run(int first, const int *points, int count)
{
    int steps = 0, next = 0;
    memset(&joint, 0, sizeof joint);
    memset(copied, 0, sizeof copied);
    memset(gone, 0, sizeof gone);
    memset(ended, 0, sizeof ended);
    died = false;
    wrong[0] = 0;
    waits = false;
    begin(RECEIVER, receiver);
    begin(SENDER, sender);
    running = first;
    for (; !ended[RECEIVER] || !ended[SENDER]; steps++) {
        if (next < count && points[next] == steps) {
            running = !running;
            next++;
        }
        if (ended[running] || (running == RECEIVER && waits && !ended[SENDER]))
            running = !running;
        waits = false;
        swapcontext(&scheduler, &actors[running]);
    }
    return steps;
}

/* Go through all orders that have these points and some behind them; how many there are, or -1 for one that is wrong. */
static long explore(int first, int *points, int count)
{
    int steps = run(first, points, count);
    long orders = 1;
    if (wrong[0] != 0) {
        printf("%d pieces, fails at %d, dies at %d, gives up after %d: %s\n", plan.pieces, plan.fails_at, plan.dies_at, plan.gives_up_after, wrong);
        return -1;
    }
    for (int point = count > 0 ? points[count - 1] + 1 : 1; count < POINTS && point < steps; point++) {
        points[count] = point;
        long more = explore(first, points, count + 1);
        if (more < 0)
            return -1;
        orders += more;
    }
    return orders;
}

/* Whether the pieces of a long array are as many as the word can count, and the last of them ends where the array does. */
static bool counts_all(size_t nbytes)
{
    size_t begin, pieces = joint_pieces(nbytes), last = joint_piece(nbytes, pieces - 1, &begin);
    return pieces <= MOST_PIECES && begin + last == nbytes;
}

/* Take pieces by whatever the other side may have written; tell whether each is one of the array. */
static bool believes_nothing(void)
{
    uint64_t address;
    alone = true;
    for (uint32_t first = 0; first <= MOST + 2; first++)
        for (uint32_t end = 0; end <= MOST_PIECES; end = end < MOST + 2 ? end + 1 : 2 * end)
            for (int pieces = 0; pieces <= MOST; pieces++)
                for (int last = 0; last < 2; last++) {
                    joint.left = joint_left(FIRST_IDENT, first, end);
                    int64_t piece = last ? joint_take_last(&joint, nbytes_of(pieces)) : joint_take_first(&joint, FIRST_IDENT, nbytes_of(pieces), &address);
                    if (piece >= pieces)
                        return false;
                }
    alone = false;
    return true;
}

int main(void)
{
    int points[POINTS];
    long orders = 0, helped = 0;
    for (size_t nbytes = 1; nbytes < (size_t)1 << 46; nbytes = nbytes * 3 + 1)
        if (!counts_all(nbytes)) {
            printf("%zu bytes have too many pieces\n", nbytes);
            return 1;
        }
    if (!believes_nothing()) {
        printf("a piece was taken that the array has not\n");
        return 1;
    }
    for (int each = 0; each < 2 * MOST; each++)
        for (int what = 0; what < 4; what++)
            for (int at = 0; at < (what == 0 ? 1 : 1 + each / 2); at++)
                for (int first = 0; first < ACTORS; first++) {
                    plan.pieces = 1 + each / 2;
                    plan.meets = each % 2;
                    plan.fails_at = what == 1 ? at : NEVER;
                    plan.dies_at = what == 2 ? at : NEVER;
                    plan.gives_up_after = what == 3 ? at : NEVER;
                    long more = explore(first, points, 0);
                    if (more < 0)
                        return 1;
                    orders += more;
                    helped += written;
                }
    printf("%ld orders, %ld pieces by the sender\n", orders, helped);
    return helped == 0;
}
