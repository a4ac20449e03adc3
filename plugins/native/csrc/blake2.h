/* BLAKE2b (RFC 7693), as hashlib has it, for short texts with a key: what tags headers where there is no interpreter.
   Whatever else is hashed or encrypted is left to Python's libraries. */
#ifndef RANKWISE_BLAKE2_H
#define RANKWISE_BLAKE2_H

#include <stddef.h>
#include <stdint.h>

enum { BLAKE2_MOST_KEY_NBYTES = 64, BLAKE2_BLOCK_NBYTES = 128 };

/* What a hash with a key has come to before any text. */
typedef struct {
    uint64_t chain[8];
} Blake2;

/* Begin a hash whose digest has so many bytes. The key has 1 to 64. */
Blake2 blake2_begin(const void *key, size_t key_nbytes, size_t digest_nbytes);
/* Return the first eight bytes of the digest of a text of 1 to 128 bytes. */
uint64_t blake2_end(const Blake2 *begun, const void *text, size_t nbytes);

#endif
