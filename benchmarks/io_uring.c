/* Exchange bytes with the other end of a connected socket, by send and recv and by io_uring, turn by turn.
 *
 *     io_uring DESCRIPTOR NBYTES CALLS TURNS
 *
 * `socket_ways.py` compiles and starts it at both ends. It prints a line a way: its name, and the microseconds of an exchange in
 * each turn. The ring is used in two ways: "io_uring" submits a send and a recv and waits for both in one call; with
 * "io_uring looking" the call only submits, and the ring is looked at until both have ended. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ENTRIES = 8, WAYS = 3, PLAIN = 0, WAITING = 1, LOOKING = 2 };

static const char *const names[WAYS] = {"in C", "io_uring", "io_uring looking"};

struct ring {
    int fd;
    unsigned *submitted, *mask, *array, *done_head, *done_tail, *done_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *done;
};

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void *map(int fd, size_t nbytes, off_t at)
{
    void *found = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, at);
    if (found == MAP_FAILED)
        fail("mmap");
    return found;
}

static void ring_open(struct ring *ring)
{
    struct io_uring_params of = {0};
    ring->fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &of);
    if (ring->fd < 0)
        fail("io_uring_setup");
    char *sq = map(ring->fd, of.sq_off.array + of.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    char *cq = map(ring->fd, of.cq_off.cqes + of.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    ring->entries = map(ring->fd, of.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    ring->submitted = (unsigned *)(sq + of.sq_off.tail);
    ring->mask = (unsigned *)(sq + of.sq_off.ring_mask);
    ring->array = (unsigned *)(sq + of.sq_off.array);
    ring->done_head = (unsigned *)(cq + of.cq_off.head);
    ring->done_tail = (unsigned *)(cq + of.cq_off.tail);
    ring->done_mask = (unsigned *)(cq + of.cq_off.ring_mask);
    ring->done = (struct io_uring_cqe *)(cq + of.cq_off.cqes);
}

static void ring_add(struct ring *ring, int op, int fd, char *data, size_t nbytes)
{
    unsigned tail = *ring->submitted, at = tail & *ring->mask;
    struct io_uring_sqe *entry = &ring->entries[at];
    memset(entry, 0, sizeof *entry);
    entry->opcode = (uint8_t)op;
    entry->fd = fd;
    entry->addr = (uint64_t)(uintptr_t)data;
    entry->len = (unsigned)nbytes;
    entry->msg_flags = MSG_WAITALL; /* of a send too: all of it is sent */
    entry->user_data = (uint64_t)op;
    ring->array[at] = at;
    __atomic_store_n(ring->submitted, tail + 1, __ATOMIC_RELEASE);
}

static void ring_exchange(struct ring *ring, int fd, char *data, char *room, size_t nbytes, int way)
{
    size_t sent = 0, got = 0;
    unsigned added = 2;
    ring_add(ring, IORING_OP_SEND, fd, data, nbytes);
    ring_add(ring, IORING_OP_RECV, fd, room, nbytes);
    while (sent < nbytes || got < nbytes) {
        unsigned waited = way == WAITING ? 1 : 0;
        if (added || waited) {
            if (syscall(SYS_io_uring_enter, ring->fd, added, waited, waited ? IORING_ENTER_GETEVENTS : 0, NULL, 0) < 0)
                fail("io_uring_enter");
            added = 0;
        }
        unsigned head = *ring->done_head;
        while (head != __atomic_load_n(ring->done_tail, __ATOMIC_ACQUIRE)) {
            struct io_uring_cqe *end = &ring->done[head & *ring->done_mask];
            int is_send = end->user_data == IORING_OP_SEND;
            size_t *count = is_send ? &sent : &got;
            if (end->res <= 0) {
                errno = -end->res;
                fail(is_send ? "send" : "recv");
            }
            *count += (size_t)end->res;
            if (*count < nbytes) {
                ring_add(ring, (int)end->user_data, fd, (is_send ? data : room) + *count, nbytes - *count);
                added++;
            }
            __atomic_store_n(ring->done_head, ++head, __ATOMIC_RELEASE);
        }
    }
}

static void plain_exchange(int fd, const char *data, char *room, size_t nbytes)
{
    size_t sent = 0, got = 0, most = 128 << 10;
    while (sent < nbytes || got < nbytes) {
        if (sent < nbytes) {
            ssize_t count = send(fd, data + sent, nbytes - sent < most ? nbytes - sent : most, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (count < 0 && errno != EAGAIN)
                fail("send");
            sent += count > 0 ? (size_t)count : 0;
        }
        if (got < nbytes) {
            ssize_t count = recv(fd, room + got, nbytes - got, MSG_DONTWAIT);
            if (count == 0 || (count < 0 && errno != EAGAIN))
                fail("recv");
            got += count > 0 ? (size_t)count : 0;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int fd = atoi(argv[1]), calls = atoi(argv[3]), turns = atoi(argv[4]);
    size_t nbytes = strtoull(argv[2], NULL, 10);
    char *data = calloc(1, nbytes), *room = calloc(1, nbytes);
    double *times = calloc((size_t)(WAYS * turns), sizeof *times);
    struct ring ring;
    if (data == NULL || room == NULL || times == NULL)
        fail("calloc");
    ring_open(&ring);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK); /* else the ring is told that it would block */
    for (int turn = -1; turn < turns; turn++) /* the first is for warming up */
        for (int way = 0; way < WAYS; way++) {
            plain_exchange(fd, data, room, nbytes); /* both begin together */
            double begin = now_us();
            for (int call = 0; call < calls; call++)
                if (way == PLAIN)
                    plain_exchange(fd, data, room, nbytes);
                else
                    ring_exchange(&ring, fd, data, room, nbytes, way);
            if (turn >= 0)
                times[way * turns + turn] = (now_us() - begin) / calls;
        }
    for (int way = 0; way < WAYS; way++) {
        printf("%s\t", names[way]);
        for (int turn = 0; turn < turns; turn++)
            printf("%.2f ", times[way * turns + turn]);
        printf("\n");
    }
    return 0;
}
