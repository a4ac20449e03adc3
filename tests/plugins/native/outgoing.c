/* Copies into memory that another rank reads, on processors whose caches are as near or far as a clock says that is not real. */
#define _GNU_SOURCE
#define RANKWISE_NATIVE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../../../plugins/native/csrc/streaming.h"

static int64_t now_ns, away_ns;
/* What a line takes by each way; and how many copies went by each. */
static double line_ns[2];
static int went[2];

static int64_t native_monotonic_ns(void)
{
    return now_ns;
}

static void copied(int streamed, size_t nbytes)
{
    now_ns += (int64_t)(line_ns[streamed] * (double)nbytes / 64) + away_ns;
    away_ns = 0;
    went[streamed]++;
}

static void cached_copy(void *to, const void *from, size_t nbytes)
{
    copied(0, nbytes);
    memcpy(to, from, nbytes);
}

static void streamed_copy(void *to, const void *from, size_t nbytes)
{
    copied(1, nbytes);
    streaming_copy(to, from, nbytes);
}

#define streaming_copy streamed_copy
#define memcpy cached_copy
#include "../../../plugins/native/csrc/outgoing.c"
#undef memcpy

enum { ROOM = 200 << 10, MANY = 2104, SETTLED = 600 };

static unsigned char from[ROOM], to[ROOM];
static int wrong;
static bool populates;

/* Copy very often; after a while nearly all of it must go by one way. */
static void expect(Outgoing *outgoing, const char *what, size_t nbytes, double cached, double streamed, int way)
{
    line_ns[0] = cached;
    line_ns[1] = streamed;
    for (int i = 0; i < MANY; i++) {
        if (i == SETTLED)
            went[0] = went[1] = 0;
        if (i % 304 == 303) /* that is timed */
            away_ns = 4000000; /* another program has the processor */
        from[i % nbytes]++;
        outgoing_copy(outgoing, to, from, nbytes);
        wrong += to[i % nbytes] != from[i % nbytes];
    }
    if (went[!way] > (MANY - SETTLED) / 50) {
        printf("%s, %zu bytes: %d of %d went the other way\n", what, nbytes, went[!way], MANY - SETTLED);
        wrong++;
    }
}

static void expect_bytes(void)
{
    Outgoing outgoing = {0};
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i * 2654435761u >> 13);
    for (int i = 0; i < 300; i++) {
        size_t nbytes = (size_t)i * 521 % (ROOM - 256), at = (size_t)i * 7 % 128, source = (size_t)i * 3 % 64;
        memset(to, i, ROOM);
        outgoing_copy(&outgoing, to + at, from + source, nbytes);
        wrong += memcmp(to + at, from + source, nbytes) != 0 || to[at + nbytes] != (unsigned char)i || (at > 0 && to[at - 1] != (unsigned char)i);
    }
    wrong += STREAMS && (went[0] == 0 || went[1] == 0);
}

/* Whether the pages of a stretch are there, each of which is asked for once, and those that nobody writes to are not. */
static void expect_pages(void)
{
    enum { STRETCH = 1 << 20, PAGE = 4096 };
    unsigned char there[STRETCH / PAGE], *stretch = mmap(NULL, STRETCH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Touched touched = 0;
    outgoing_touch(&touched, stretch, STRETCH, 200 << 10, 100, 0);
    outgoing_touch(&touched, stretch, STRETCH, 300 << 10, 64 << 10, 0);
    mincore(stretch, STRETCH, there);
    for (size_t page = 0; page < STRETCH / PAGE; page++) {
        bool written = page * PAGE >= 300 << 10 && page * PAGE < 364 << 10, far = page * PAGE < 256 << 10 || page * PAGE > 420 << 10;
        if ((written && populates && !(there[page] & 1)) || (far && (there[page] & 1))) {
            printf("page %zu is %sthere\n", page, there[page] & 1 ? "" : "not ");
            wrong++;
        }
    }
    outgoing_touch(&touched, stretch, STRETCH, STRETCH - (16 << 10), 16 << 10, 0);
    for (size_t at = 0; at < STRETCH; at += 8 << 10)
        outgoing_touch(&touched, stretch, STRETCH, at, 8 << 10, 0);
    wrong += touched != UINT32_MAX;
    munmap(stretch, STRETCH);
}

int main(void)
{
    unsigned char *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    populates = madvise(page, 1, POPULATE_WRITE) == 0;
    expect_pages();
    line_ns[0] = line_ns[1] = 3;
    expect_bytes();
    for (size_t nbytes = 4 << 10; nbytes < ROOM; nbytes *= 4) {
        Outgoing outgoing = {0};
        expect(&outgoing, "near", nbytes, 4, 1.2, 0);
        expect(&outgoing, "then far", nbytes, 28, 3, STREAMS);
        expect(&outgoing, "then near again", nbytes, 4, 1.2, 0);
        expect(&outgoing, "then as far as main memory", nbytes, 12, 2, STREAMS);
    }
    Outgoing outgoing = {0};
    expect(&outgoing, "short", (4 << 10) - 1, 28, 3, 0);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
