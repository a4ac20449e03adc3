/* The pieces of an array that two ranks of a host may copy together, by calls of the system: each needs no interpreter, and is
   refused if the other process may not be looked into, or the memory is of a kind that is not copied. */
#ifndef RANKWISE_COPIES_H
#define RANKWISE_COPIES_H

#include "joint.h"
#include <sys/types.h>

/* What has become of an attempt to copy a piece: none was left, it has been copied, or the system has refused it. */
typedef enum { NONE_LEFT, COPIED, REFUSED } Copied;

/* By the receiver: read the last piece that is left, of an array of so many bytes in the memory of a process; or this one. */
Copied copies_read_last(Joint *joint, pid_t pid, uint64_t from, void *to, size_t nbytes);
bool copies_read_piece(pid_t pid, uint64_t from, void *to, size_t nbytes, uint64_t piece);
/* By the sender: write the first piece that is left to the receiver's array, and tell so. */
Copied copies_write_first(Joint *joint, uint32_t ident, pid_t pid, const void *from, size_t nbytes);

#endif
