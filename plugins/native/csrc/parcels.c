#include "parcels.h"
#include "tls.h"
#include "waiting.h"
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* The byte behind a payload that is all there. */
static const unsigned char good = 1;
/* How much goes one way before the other has its turn: what comes stays in the cache until it is worked on. And while
   the system takes in what is sent it does not hear what the other end confirms: more in one go leaves less on its way. */
enum { OUT_NBYTES = 256 << 10, IN_NBYTES = 32 << 10 };
enum { PIECES = 4 };
/* So little is copied once more, as the kernel takes longer for pieces than for bytes. */
enum { BRIEF_NBYTES = 512 };

typedef struct {
    struct iovec pieces[PIECES];
    int count;
    size_t nbytes;
} Places;

static void parcels_add(Places *places, unsigned char *bytes, size_t nbytes)
{
    struct iovec *last = places->count == 0 ? NULL : &places->pieces[places->count - 1];
    if (last != NULL && (unsigned char *)last->iov_base + last->iov_len == bytes)
        last->iov_len += nbytes;
    else
        places->pieces[places->count++] = (struct iovec){bytes, nbytes};
    places->nbytes += nbytes;
}

/* Find what lies from `at` on, at most so much. */
static Places parcels_skip(const struct iovec all[PIECES], size_t at, size_t most)
{
    Places places = {.count = 0};
    for (int i = 0; i < PIECES && places.nbytes < most; i++) {
        size_t skipped = at < all[i].iov_len ? at : all[i].iov_len, now = all[i].iov_len - skipped, left = most - places.nbytes;
        at -= skipped;
        if (now > 0)
            parcels_add(&places, (unsigned char *)all[i].iov_base + skipped, now < left ? now : left);
    }
    return places;
}

static struct iovec parcels_piece(const void *bytes, size_t nbytes)
{
    return (struct iovec){(void *)(uintptr_t)bytes, nbytes};
}

static Places parcels_out_places(const Parcel *parcel, size_t at, size_t most)
{
    struct iovec all[PIECES] = {parcels_piece(parcel->cover, parcel->cover_nbytes), parcels_piece(parcel->record, parcel->record_nbytes),
                                parcels_piece(parcel->data, parcel->nbytes), parcels_piece(&good, 1)};
    return parcels_skip(all, at, most);
}

static Places parcels_in_places(Parcel *parcel, size_t at, size_t most)
{
    struct iovec all[PIECES] = {parcels_piece(parcel->head, parcel->in_unit), parcels_piece(parcel->room, parcel->room_nbytes),
                                parcels_piece(parcel->place, parcel->in.length - parcel->room_nbytes), parcels_piece(&parcel->trailer, 1)};
    return parcels_skip(all, at, most);
}

static void parcels_copy(const Places *places, unsigned char *to)
{
    for (int i = 0; i < places->count; i++) {
        memcpy(to, places->pieces[i].iov_base, places->pieces[i].iov_len);
        to += places->pieces[i].iov_len;
    }
}

static void parcels_scatter(const Places *places, const unsigned char *from, size_t nbytes)
{
    for (int i = 0; i < places->count && nbytes > 0; i++) {
        size_t now = nbytes < places->pieces[i].iov_len ? nbytes : places->pieces[i].iov_len;
        memcpy(places->pieces[i].iov_base, from, now);
        from += now;
        nbytes -= now;
    }
}

static Tls *parcels_tls(const ConnectionState *connection)
{
    return state_is_none(connection->tls) ? NULL : (Tls *)connection->tls;
}

static ssize_t parcels_give(const ConnectionState *connection, Places *places)
{
    unsigned char brief[BRIEF_NBYTES];
    int fd = connection->fd;
    if (parcels_tls(connection) != NULL)
        return tls_send(parcels_tls(connection), places->pieces, places->count);
    if (places->nbytes <= BRIEF_NBYTES) {
        parcels_copy(places, brief);
        return send(fd, brief, places->nbytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    struct msghdr message = {.msg_iov = places->pieces, .msg_iovlen = (size_t)places->count};
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static ssize_t parcels_take(const ConnectionState *connection, Places *places)
{
    unsigned char brief[BRIEF_NBYTES];
    int fd = connection->fd;
    Tls *tls = parcels_tls(connection);
    if (places->nbytes <= BRIEF_NBYTES) {
        struct iovec one = {brief, places->nbytes};
        ssize_t count = tls == NULL ? recv(fd, brief, places->nbytes, MSG_DONTWAIT) : tls_receive(tls, &one, 1);
        parcels_scatter(places, brief, count > 0 ? (size_t)count : 0);
        return count;
    }
    if (tls != NULL)
        return tls_receive(tls, places->pieces, places->count);
    struct msghdr message = {.msg_iov = places->pieces, .msg_iovlen = (size_t)places->count};
    return recvmsg(fd, &message, MSG_DONTWAIT);
}

void parcels_copy_rest(const Parcel *parcel, unsigned char *to)
{
    Places places = parcels_out_places(parcel, parcel->went, SIZE_MAX);
    parcels_copy(&places, to);
}

void parcels_copy_got(Parcel *parcel, unsigned char *to)
{
    Places places = parcels_in_places(parcel, 0, parcel->got);
    parcels_copy(&places, to);
}

static size_t parcels_within(size_t at, size_t before, size_t nbytes)
{
    return at <= before ? 0 : at - before < nbytes ? at - before : nbytes;
}

size_t parcels_went(const Parcel *parcel)
{
    return parcels_within(parcel->went, parcel->cover_nbytes + parcel->record_nbytes, parcel->nbytes);
}

size_t parcels_came(const Parcel *parcel)
{
    return parcels_within(parcel->got, parcel->in_unit + parcel->room_nbytes, parcel->in.length - parcel->room_nbytes);
}

void parcels_begin(Parcel *parcel)
{
    parcel->sent = parcel->out.first == 0;
    parcel->taken = parcel->in.first == 0;
    parcel->left = parcel->headed = parcel->open = parcel->chained = false;
    parcel->got = parcel->in_unit = 0;
    parcel->cover_nbytes = 0;
    parcel->went = parcel->sent ? SIZE_MAX : 0; /* what has not left is not written over */
    parcel->rest = NULL;
}

ssize_t parcels_send(Parcel *parcel, ConnectionState *connection)
{
    Places places = parcels_out_places(parcel, parcel->went, OUT_NBYTES);
    ssize_t sent = parcels_give(connection, &places);
    if (sent <= 0)
        return sent < 0 && errno != EAGAIN && errno != EINTR ? -1 : 0; /* Python tries again, and finds out why */
    parcel->went += (size_t)sent;
    connection->went_nbytes += (unsigned long long)sent;
    return sent;
}

/* How much may be read now. */
static size_t parcels_most(const Parcel *parcel)
{
    if (parcel->in.length <= LONG_NBYTES)
        return SIZE_MAX;
    if (!parcel->headed)
        return parcel->in_unit - parcel->got;
    size_t front = parcel->in_unit + parcel->room_nbytes;
    if (parcel->digest != NULL && parcel->got < front)
        return front - parcel->got;
    return parcel->digest == NULL ? SIZE_MAX : IN_NBYTES;
}

ssize_t parcels_read(Parcel *parcel, ConnectionState *connection)
{
    Places places = parcels_in_places(parcel, parcel->got, parcels_most(parcel));
    ssize_t count = parcels_take(connection, &places);
    if (count > 0) {
        parcel->got += (size_t)count;
        connection->came_nbytes += (unsigned long long)count;
        if (parcel->headed && parcel->digest != NULL)
            parcel->digest(parcel->user);
        return count;
    }
    return count < 0 && (errno == EAGAIN || errno == EINTR) ? -1 : 0;
}

/* ------------------------------------------------------------------ moving */

/* What one round has come to. */
typedef struct {
    bool moved, goes_on, stopped;
} Round;

static void parcels_move_one(Parcel *parcel, ConnectionState *connection, Round *round, Judge judge, void *user)
{
    bool moved = parcels_is_leaving(parcel) && parcels_send(parcel, connection) > 0;
    if (moved && parcel->headed && parcel->digest != NULL)
        parcel->digest(parcel->user);
    if (parcels_expects(parcel) && parcel->open) {
        ssize_t count = parcels_read(parcel, connection);
        moved = moved || count > 0;
        if (count > 0)
            judge(user, parcel, connection);
        round->stopped = round->stopped || count == 0 || parcel->left;
    }
    round->moved = round->moved || moved;
    round->goes_on = round->goes_on || parcels_is_leaving(parcel) || parcels_is_half_way(parcel) ||
                     (parcel->chained && parcels_expects(parcel));
}

/* Sleep until something can be moved, but not for long: others wait for the lock. */
static void parcels_sleep(const Parcel *parcels, ConnectionState *const *connections, int count)
{
    struct pollfd watched[MOST_PARCELS];
    for (int i = 0; i < count; i++) {
        bool reads = parcels_expects(&parcels[i]) && parcels[i].open;
        short events = (short)((reads ? POLLIN : 0) | (parcels_is_leaving(&parcels[i]) ? POLLOUT : 0));
        watched[i] = (struct pollfd){.fd = events != 0 && connections[i] != NULL ? connections[i]->fd : -1, .events = events};
    }
    poll(watched, (nfds_t)count, 1);
}

static bool parcels_is_over(const Stay *stay, int64_t now, int64_t still_ns)
{
    return now >= stay->until || (still_ns >= STILL_NS && (still_ns >= stay->still_ns || lock_is_wanted(stay->lock)));
}

int64_t parcels_move(Parcel *parcels, ConnectionState *const *connections, int count, const Stay *stay, Judge judge, void *user)
{
    int64_t began = native_monotonic_ns(), now = began, last = began;
    for (;;) {
        Round round = {false, false, false};
        for (int i = 0; i < count; i++)
            if (connections[i] != NULL)
                parcels_move_one(&parcels[i], connections[i], &round, judge, user);
        now = native_monotonic_ns();
        last = round.moved ? now : last;
        if (!round.goes_on || round.stopped || parcels_is_over(stay, now, now - last))
            return last - began;
        if (round.moved)
            continue;
        if (now - last >= stay->look_ns)
            parcels_sleep(parcels, connections, count);
        else if (stay->yields)
            sched_yield();
        else
            RELAX();
    }
}
