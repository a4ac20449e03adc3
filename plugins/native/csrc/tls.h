/* Connections that are encrypted, by OpenSSL: its functions come by their addresses, from whatever has it, so that nothing is
   linked. Keys, certificates and whom to believe are Python's part. Whoever sends or receives holds the engine's lock. */
#ifndef RANKWISE_TLS_H
#define RANKWISE_TLS_H

#include "native.h"
#include <sys/types.h>
#include <sys/uio.h>

/* The functions that are called, as OpenSSL declares them. */
typedef struct {
    int (*read)(void *ssl, void *to, int nbytes);
    int (*write)(void *ssl, const void *from, int nbytes);
    int (*get_error)(const void *ssl, int result);
    int (*pending)(const void *ssl);
    int (*do_handshake)(void *ssl);
    void (*clear_error)(void);
    unsigned long (*next_error)(void);
    const char *(*reason)(unsigned long error);
} TlsFunctions;

typedef struct {
    PyObject_HEAD
    PyObject *owner; /* frees OpenSSL's object when it goes */
    void *ssl;
    int fd;
    TlsFunctions call;
    size_t held;  /* how many bytes are encrypted, in a record that the system has not taken whole; */
    size_t ahead; /* ... and how many have left before they were asked for again, as fewer were */
    bool ended, garbled;
    char why[120]; /* what was wrong last */
} Tls;

extern PyTypeObject TlsType;

/* Send some of what lies in several places: -1 with EAGAIN where the system takes none for now. Bytes count as sent once it
   has all that they became; until then the same bytes, or others in their place, must come next time. */
ssize_t tls_send(Tls *tls, const struct iovec *pieces, int count);
/* Receive into several places what has come of a record or some: -1 with EAGAIN for nothing, 0 at the end. */
ssize_t tls_receive(Tls *tls, const struct iovec *pieces, int count);

/* Whether something has been decrypted that nobody has taken: no poller sees it. */
static inline bool tls_holds(const Tls *tls)
{
    return tls->call.pending(tls->ssl) > 0;
}

#endif
