/* A long array that two ranks copy together: its pieces are taken from both ends until they meet, by the receiver, which reads
   the sender's memory, from the last on, and by the sender, which writes to the receiver's, from the first on. The words are in
   memory that both have; a receiver whose sender knows nothing of them, or does something else, takes all pieces. */
#ifndef RANKWISE_JOINT_H
#define RANKWISE_JOINT_H

#include "waiting.h"

/* Which pieces are left, of which copy; where the receiver's array lies; and how many the sender has written. Either side may
   have written anything there: no piece is taken that the array has not. */
typedef struct {
    Word left, address, written;
} Joint;

/* Where a piece begins, and how long it is: told from the length alone, it is the same for both. */
size_t joint_piece(size_t nbytes, uint64_t piece, size_t *begin);

/* ------------------------------------------------------------------ the receiver */

/* Begin a copy, which is known by a number other than 0. */
void joint_open(Joint *joint, uint32_t ident, size_t nbytes, const void *to);
/* Take the last piece that is left of so many bytes; -1 if there is none. */
int64_t joint_take_last(Joint *joint, size_t nbytes);
/* Let nobody take any more. */
void joint_shut(Joint *joint);
/* Whether the sender has taken a piece of which it has not told what has become of it. */
bool joint_is_written_to(const Joint *joint);
/* The piece that the sender could not write; -1 for none. */
int64_t joint_not_written(const Joint *joint);

/* ------------------------------------------------------------------ the sender */

/* Whether the receiver has begun a copy, which may be over. */
bool joint_is_known(const Joint *joint, uint32_t ident);
/* Whether pieces of a copy are left, and it has not failed to write one. */
bool joint_has_left(const Joint *joint, uint32_t ident);
/* Take the first piece that is left of so many bytes, and learn where the receiver's array lies; -1 if there is none. */
int64_t joint_take_first(Joint *joint, uint32_t ident, size_t nbytes, uint64_t *address);
/* Tell that it has been written, or could not be. Nothing is taken any more after that. */
void joint_wrote(Joint *joint, int64_t piece, bool well);

#endif
