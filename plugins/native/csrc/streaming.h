/* Copies that leave the caches alone: what is too large for them would only push out what is needed next, and be read
   from main memory once more before it is written. */
#ifndef RANKWISE_STREAMING_H
#define RANKWISE_STREAMING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Whether there are such. */
#if defined(__x86_64__)
#define STREAMS 1
#include <emmintrin.h>

static inline void streaming_copy(void *to, const void *from, size_t nbytes)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    size_t head = -(uintptr_t)target & 15;
    if (nbytes < 256) {
        memcpy(target, source, nbytes);
        return;
    }
    memcpy(target, source, head);
    size_t at = head;
    for (; at + 64 <= nbytes; at += 64)
        for (int part = 0; part < 64; part += 16) {
            __m128i word = _mm_loadu_si128((const __m128i *)(const void *)(source + at + part));
            _mm_stream_si128((__m128i *)(void *)(target + at + part), word);
        }
    memcpy(target + at, source + at, nbytes - at);
    _mm_sfence(); /* they obey no other order, not even that of a release */
}
#else
#define STREAMS 0

static inline void streaming_copy(void *to, const void *from, size_t nbytes)
{
    memcpy(to, from, nbytes);
}
#endif

#endif
