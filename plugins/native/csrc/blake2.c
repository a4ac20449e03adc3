#include "blake2.h"
#include <string.h>

static const uint64_t blake2_start[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};
/* Which words of a block each round takes in which order. */
static const unsigned char blake2_order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};
enum { ROUNDS = 12 };

static inline uint64_t blake2_turned(uint64_t word, int bits)
{
    return word >> bits | word << (64 - bits);
}

static inline void blake2_mix(uint64_t v[16], int a, int b, int c, int d, uint64_t x, uint64_t y)
{
    v[a] += v[b] + x;
    v[d] = blake2_turned(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = blake2_turned(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = blake2_turned(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = blake2_turned(v[b] ^ v[c], 63);
}

/* Take in a block, up to which so many bytes have come. */
static void blake2_take(uint64_t chain[8], const unsigned char block[BLAKE2_BLOCK_NBYTES], uint64_t come, int last)
{
    uint64_t v[16], m[16];
    memcpy(m, block, sizeof m); /* words lie as on the wire, whose headers are read in the same way */
    memcpy(v, chain, sizeof blake2_start);
    memcpy(v + 8, blake2_start, sizeof blake2_start);
    v[12] ^= come;
    if (last)
        v[14] = ~v[14];
#pragma GCC unroll 12
    for (int round = 0; round < ROUNDS; round++) {
        const unsigned char *s = blake2_order[round % 10];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            blake2_mix(v, i, 4 + i, 8 + i, 12 + i, m[s[2 * i]], m[s[2 * i + 1]]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            blake2_mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
    }
    for (int i = 0; i < 8; i++)
        chain[i] ^= v[i] ^ v[i + 8];
}

Blake2 blake2_begin(const void *key, size_t key_nbytes, size_t digest_nbytes)
{
    Blake2 begun;
    unsigned char block[BLAKE2_BLOCK_NBYTES] = {0};
    memcpy(begun.chain, blake2_start, sizeof blake2_start);
    begun.chain[0] ^= 0x01010000 ^ key_nbytes << 8 ^ digest_nbytes;
    memcpy(block, key, key_nbytes);
    blake2_take(begun.chain, block, sizeof block, 0);
    return begun;
}

uint64_t blake2_end(const Blake2 *begun, const void *text, size_t nbytes)
{
    Blake2 hash = *begun;
    unsigned char block[BLAKE2_BLOCK_NBYTES] = {0};
    memcpy(block, text, nbytes);
    blake2_take(hash.chain, block, sizeof block + nbytes, 1);
    return hash.chain[0];
}
