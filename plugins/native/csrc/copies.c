#include "copies.h"
#include <sys/uio.h>

bool copies_read_piece(pid_t pid, uint64_t from, void *to, size_t nbytes, uint64_t piece)
{
    size_t begin, now = joint_piece(nbytes, piece, &begin);
    struct iovec here = {(unsigned char *)to + begin, now}, there = {(void *)(uintptr_t)(from + begin), now};
    /* opens: the memory of another rank (process_vm_readv)
     * reached by: the ranks of a host, of one user
     * guarded by: the kernel asks who may trace whom; addresses are read that the other rank has written to the
     * board or a ring; `RANKWISE_GLOO_PEER_MEMORY=off` does without
     * proved by: tests/plugins/gloo_tcp/test_fetching.py */
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)now;
}

Copied copies_read_last(Joint *joint, pid_t pid, uint64_t from, void *to, size_t nbytes)
{
    int64_t piece = joint_take_last(joint, nbytes);
    return piece < 0 ? NONE_LEFT : copies_read_piece(pid, from, to, nbytes, (uint64_t)piece) ? COPIED : REFUSED;
}

static bool copies_write_piece(pid_t pid, const void *from, uint64_t to, size_t nbytes, uint64_t piece)
{
    size_t begin, now = joint_piece(nbytes, piece, &begin);
    struct iovec here = {(unsigned char *)(uintptr_t)from + begin, now}, there = {(void *)(uintptr_t)(to + begin), now};
    /* opens: the array of another rank's receive or collective (process_vm_writev)
     * reached by: the ranks of a host, of one user
     * guarded by: the kernel asks who may trace whom; the receiver has written the address to a ring or the board for this one
     * copy, and its array stays while a piece is being written; `RANKWISE_GLOO_PEER_MEMORY=off` does without
     * proved by: tests/plugins/native/test_joint.py */
    return process_vm_writev(pid, &here, 1, &there, 1, 0) == (ssize_t)now;
}

Copied copies_write_first(Joint *joint, uint32_t ident, pid_t pid, const void *from, size_t nbytes)
{
    uint64_t address = 0;
    int64_t piece = joint_take_first(joint, ident, nbytes, &address);
    if (piece < 0)
        return NONE_LEFT;
    bool well = copies_write_piece(pid, from, address, nbytes, (uint64_t)piece);
    joint_wrote(joint, piece, well);
    return well ? COPIED : REFUSED;
}
