#include "joint.h"

/* The word of what is left: the number of the copy, the piece before which all are taken, and the one from which on all are. */
enum { NUMBER_BITS = 16, MOST_PIECES = (1 << NUMBER_BITS) - 1 };
/* So many pieces make ranks wait for no more than a thirtieth of the copy for each other; short ones cost more calls of the
   system, and during a long one nobody notices a signal. */
enum { PIECES = 32, LEAST_NBYTES = 256 << 10, MOST_NBYTES = 4 << 20, ROUND_NBYTES = 64 << 10 };
/* In the count of what was written. */
static const uint64_t NOT_WRITTEN = (uint64_t)1 << 32;

static uint64_t joint_left(uint64_t ident, uint32_t first, uint32_t end)
{
    return ident << 2 * NUMBER_BITS | (uint64_t)first << NUMBER_BITS | end;
}

static uint32_t joint_ident_of(uint64_t left)
{
    return (uint32_t)(left >> 2 * NUMBER_BITS);
}

static uint32_t joint_first_of(uint64_t left)
{
    return left >> NUMBER_BITS & MOST_PIECES;
}

static uint32_t joint_end_of(uint64_t left)
{
    return left & MOST_PIECES;
}

static size_t joint_piece_nbytes(size_t nbytes)
{
    size_t part = (nbytes / PIECES | (ROUND_NBYTES - 1)) + 1, counted = (nbytes / MOST_PIECES | (ROUND_NBYTES - 1)) + 1;
    part = part < LEAST_NBYTES ? LEAST_NBYTES : part < MOST_NBYTES ? part : MOST_NBYTES;
    return part < counted ? counted : part; /* the word has to count them all */
}

size_t joint_piece(size_t nbytes, uint64_t piece, size_t *begin)
{
    size_t part = joint_piece_nbytes(nbytes);
    *begin = piece * part;
    return nbytes - *begin < part ? nbytes - *begin : part;
}

static size_t joint_pieces(size_t nbytes)
{
    size_t part = joint_piece_nbytes(nbytes);
    return nbytes / part + (nbytes % part > 0);
}

void joint_open(Joint *joint, uint32_t ident, size_t nbytes, const void *to)
{
    atomic_store_explicit(&joint->address, (uint64_t)(uintptr_t)to, memory_order_relaxed);
    atomic_store_explicit(&joint->written, 0, memory_order_relaxed);
    /* Release: a sender that knows this copy knows its address. */
    atomic_store_explicit(&joint->left, joint_left(ident, 0, (uint32_t)joint_pieces(nbytes)), memory_order_release);
}

/* Whether pieces are left, which are some of so many. */
static bool joint_leaves(uint64_t left, size_t pieces)
{
    return joint_first_of(left) < joint_end_of(left) && joint_end_of(left) <= pieces;
}

int64_t joint_take_last(Joint *joint, size_t nbytes)
{
    size_t pieces = joint_pieces(nbytes);
    uint64_t left = atomic_load_explicit(&joint->left, memory_order_relaxed);
    while (joint_leaves(left, pieces)) /* only who has taken a piece touches it: nothing else is ordered by this */
        if (atomic_compare_exchange_weak_explicit(&joint->left, &left, left - 1, memory_order_relaxed, memory_order_relaxed))
            return (int64_t)joint_end_of(left) - 1;
    return -1;
}

void joint_shut(Joint *joint)
{
    uint64_t left = atomic_load_explicit(&joint->left, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&joint->left, &left, joint_left(0, joint_first_of(left), 0), memory_order_relaxed, memory_order_relaxed))
        ;
}

bool joint_is_written_to(const Joint *joint)
{
    uint64_t left = atomic_load_explicit(&joint->left, memory_order_relaxed);
    /* Acquire: the bytes that the sender has written are there. */
    uint64_t written = atomic_load_explicit(&joint->written, memory_order_acquire);
    return (written & NOT_WRITTEN) == 0 && (uint32_t)written < joint_first_of(left);
}

int64_t joint_not_written(const Joint *joint)
{
    uint64_t written = atomic_load_explicit(&joint->written, memory_order_relaxed);
    return (written & NOT_WRITTEN) == 0 ? -1 : (int64_t)(uint32_t)written;
}

bool joint_is_known(const Joint *joint, uint32_t ident)
{
    return joint_ident_of(atomic_load_explicit(&joint->left, memory_order_relaxed)) == ident;
}

bool joint_has_left(const Joint *joint, uint32_t ident)
{
    /* Acquire: the address and the count are of this copy, or a later one. */
    uint64_t left = atomic_load_explicit(&joint->left, memory_order_acquire);
    return joint_ident_of(left) == ident && joint_first_of(left) < joint_end_of(left) &&
           (atomic_load_explicit(&joint->written, memory_order_relaxed) & NOT_WRITTEN) == 0;
}

int64_t joint_take_first(Joint *joint, uint32_t ident, size_t nbytes, uint64_t *address)
{
    size_t pieces = joint_pieces(nbytes);
    while (joint_has_left(joint, ident)) {
        uint64_t left = atomic_load_explicit(&joint->left, memory_order_acquire);
        *address = atomic_load_explicit(&joint->address, memory_order_relaxed);
        if (!joint_leaves(left, pieces))
            return -1;
        /* Nothing else that is in the word has ever had this number: then the address is this copy's too. */
        if (joint_ident_of(left) == ident &&
            atomic_compare_exchange_weak_explicit(&joint->left, &left, left + ((uint64_t)1 << NUMBER_BITS), memory_order_acquire, memory_order_relaxed))
            return joint_first_of(left);
    }
    return -1;
}

void joint_wrote(Joint *joint, int64_t piece, bool well)
{
    /* Release: the receiver that knows it sees the bytes. */
    atomic_store_explicit(&joint->written, well ? (uint64_t)piece + 1 : (uint64_t)piece | NOT_WRITTEN, memory_order_release);
}
