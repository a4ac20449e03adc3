#include "tls.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

/* The most that a record holds. */
enum { RECORD_NBYTES = 16 << 10 };
/* What OpenSSL says of a call, and of a connection that has ended without a word. */
enum { ERROR_SSL = 1, WANT_READ = 2, WANT_WRITE = 3, UNEXPECTED_EOF = 294, REASON_BITS = 0x7FFFFF };
enum { MOST_PIECES = 16 };

/* Note what is wrong; tell whether it is only that the socket is not ready. */
static bool tls_must_wait(Tls *tls, int result)
{
    int error = tls->call.get_error(tls->ssl, result);
    if (error == WANT_READ || error == WANT_WRITE)
        return true;
    unsigned long code = tls->call.next_error();
    const char *reason = code == 0 ? NULL : tls->call.reason(code);
    snprintf(tls->why, sizeof tls->why, "%s", reason == NULL ? "the other end has closed it" : reason);
    tls->garbled = error == ERROR_SSL && code != 0 && (code & REASON_BITS) != UNEXPECTED_EOF;
    return false;
}

static int tls_at_most(size_t nbytes, size_t most)
{
    return (int)(nbytes < most ? nbytes : most);
}

/* ------------------------------------------------------------------ out */

/* Where in several places this is. */
typedef struct {
    const struct iovec *pieces;
    int count;
    size_t at; /* in the first of them */
} Place;

static void tls_skip(Place *place, size_t nbytes)
{
    while (place->count > 0 && place->at + nbytes >= place->pieces->iov_len) {
        nbytes -= place->pieces->iov_len - place->at;
        place->at = 0;
        place->pieces++;
        place->count--;
    }
    place->at += nbytes;
}

/* What goes into the next record: from where it lies if that is in one place, else put together in `scratch`. */
static int tls_next(const Place *place, const void **from, unsigned char scratch[RECORD_NBYTES])
{
    Place here = *place;
    size_t first = here.pieces->iov_len - here.at, gathered = 0;
    *from = (const char *)here.pieces->iov_base + here.at;
    if (first >= RECORD_NBYTES || here.count == 1)
        return tls_at_most(first, RECORD_NBYTES);
    while (here.count > 0 && gathered < RECORD_NBYTES) {
        size_t now = (size_t)tls_at_most(here.pieces->iov_len - here.at, RECORD_NBYTES - gathered);
        memcpy(scratch + gathered, (const char *)here.pieces->iov_base + here.at, now);
        gathered += now;
        tls_skip(&here, now);
    }
    *from = scratch;
    return (int)gathered;
}

static size_t tls_total(const struct iovec *pieces, int count)
{
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += pieces[i].iov_len;
    return total;
}

/* Send what was encrypted last; false where the system still does not take it. OpenSSL wants to hear as many bytes as before,
   and looks at none of them. */
static bool tls_send_held(Tls *tls, const unsigned char scratch[RECORD_NBYTES])
{
    if (tls->held == 0)
        return true;
    int result = tls->call.write(tls->ssl, scratch, (int)tls->held);
    if (result <= 0) {
        errno = tls_must_wait(tls, result) ? EAGAIN : EPIPE;
        return false;
    }
    tls->ahead += tls->held;
    tls->held = 0;
    return true;
}

/* Whether nothing can be sent any more. OpenSSL is not to find out: it would read no more of what had come before. */
static bool tls_is_broken(const Tls *tls)
{
    struct pollfd watched = {.fd = tls->fd, .events = POLLOUT};
    return poll(&watched, 1, 0) > 0 && (watched.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

ssize_t tls_send(Tls *tls, const struct iovec *pieces, int count)
{
    unsigned char scratch[RECORD_NBYTES];
    size_t total = tls_total(pieces, count), done;
    Place place = {pieces, count, 0};
    if (tls_is_broken(tls)) {
        errno = EPIPE;
        return -1;
    }
    tls->call.clear_error();
    if (!tls_send_held(tls, scratch))
        return -1;
    done = tls->ahead < total ? tls->ahead : total;
    tls->ahead -= done;
    tls_skip(&place, done);
    while (done < total) {
        const void *from;
        int now = tls_next(&place, &from, scratch), result = tls->call.write(tls->ssl, from, now);
        if (result <= 0) {
            bool waits = tls_must_wait(tls, result);
            tls->held = waits ? (size_t)now : 0;
            errno = waits ? EAGAIN : EPIPE;
            return done > 0 ? (ssize_t)done : -1;
        }
        done += (size_t)result;
        tls_skip(&place, (size_t)result);
    }
    return (ssize_t)done;
}

/* ------------------------------------------------------------------ in */

ssize_t tls_receive(Tls *tls, const struct iovec *pieces, int count)
{
    size_t done = 0;
    tls->call.clear_error();
    for (int i = 0; i < count && !tls->ended; i++)
        for (size_t at = 0; at < pieces[i].iov_len;) {
            if (done > 0 && !tls_holds(tls)) /* to ask in vain costs as much as a short record */
                return (ssize_t)done;
            int result = tls->call.read(tls->ssl, (char *)pieces[i].iov_base + at, tls_at_most(pieces[i].iov_len - at, INT_MAX));
            if (result <= 0) {
                bool waits = tls_must_wait(tls, result);
                tls->ended = !waits; /* not where it is found in sending: what had been said before may still be there */
                errno = EAGAIN;
                return done > 0 ? (ssize_t)done : waits ? -1 : 0;
            }
            at += (size_t)result;
            done += (size_t)result;
        }
    return (ssize_t)done;
}

/* ------------------------------------------------------------------ for Python */

/* What several places are: buffers that are lent until they are given back. */
typedef struct {
    Py_buffer buffers[MOST_PIECES];
    struct iovec pieces[MOST_PIECES];
    int count;
    size_t total;
} Lent;

static void tls_give_back(Lent *lent)
{
    while (lent->count > 0)
        PyBuffer_Release(&lent->buffers[--lent->count]);
}

/* Borrow the first of some buffers; false with an exception set. */
static bool tls_borrow(PyObject *given, int flags, Lent *lent)
{
    PyObject *list = PySequence_Fast(given, "several buffers are wanted");
    lent->count = 0;
    lent->total = 0;
    for (Py_ssize_t i = 0; list != NULL && i < PySequence_Fast_GET_SIZE(list) && lent->count < MOST_PIECES; i++) {
        Py_buffer *buffer = &lent->buffers[lent->count];
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(list, i), buffer, flags) < 0) {
            tls_give_back(lent);
            Py_CLEAR(list);
            break;
        }
        lent->pieces[lent->count++] = (struct iovec){buffer->buf, (size_t)buffer->len};
        lent->total += (size_t)buffer->len;
    }
    Py_XDECREF(list);
    return list != NULL;
}

/* Send or receive, more than a record without the interpreter, and give back what was lent. */
static ssize_t tls_carry(Tls *tls, Lent *lent, ssize_t (*carry)(Tls *, const struct iovec *, int))
{
    PyThreadState *let_go = lent->total > RECORD_NBYTES ? PyEval_SaveThread() : NULL;
    ssize_t count = carry(tls, lent->pieces, lent->count);
    if (let_go != NULL)
        PyEval_RestoreThread(let_go);
    int error = errno;
    tls_give_back(lent);
    errno = error;
    return count;
}

static PyObject *tls_py_send(Tls *tls, PyObject *parts)
{
    Lent lent;
    if (!tls_borrow(parts, PyBUF_SIMPLE, &lent))
        return NULL;
    ssize_t count = tls_carry(tls, &lent, tls_send);
    return count < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromSsize_t(count);
}

/* Receive until nothing more has come, or fits: who knows less looks for a record at a time. */
static ssize_t tls_receive_all(Tls *tls, const struct iovec *pieces, int count)
{
    ssize_t done = 0;
    for (int i = 0; i < count; i++)
        for (size_t at = 0; at < pieces[i].iov_len;) {
            struct iovec rest = {(char *)pieces[i].iov_base + at, pieces[i].iov_len - at};
            ssize_t now = tls_receive(tls, &rest, 1);
            if (now <= 0)
                return done > 0 ? done : now;
            at += (size_t)now;
            done += now;
        }
    return done;
}

static PyObject *tls_py_receive(Tls *tls, PyObject *rooms)
{
    Lent lent;
    if (!tls_borrow(rooms, PyBUF_WRITABLE, &lent))
        return NULL;
    ssize_t count = tls_carry(tls, &lent, tls_receive_all);
    if (count == 0 && tls->garbled)
        return PyErr_Format(PyExc_ValueError, "%s", tls->why);
    return count < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromSsize_t(count);
}

static PyObject *tls_py_holds(Tls *tls, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(tls_holds(tls));
}

static PyObject *tls_py_shake(Tls *tls, PyObject *Py_UNUSED(none))
{
    int result;
    bool waits = false;
    Py_BEGIN_ALLOW_THREADS
    tls->call.clear_error();
    result = tls->call.do_handshake(tls->ssl);
    waits = result != 1 && tls_must_wait(tls, result);
    Py_END_ALLOW_THREADS
    if (result == 1 || waits)
        return PyBool_FromLong(result == 1);
    return PyErr_Format(tls->garbled ? PyExc_ValueError : PyExc_ConnectionError, "%s", tls->why);
}

static bool tls_take_function(PyObject *functions, const char *name, void *place)
{
    PyObject *found = PyMapping_GetItemString(functions, name);
    void *address = found == NULL ? NULL : PyLong_AsVoidPtr(found);
    Py_XDECREF(found);
    if (address == NULL && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "%s is nowhere", name);
    memcpy(place, &address, sizeof address);
    return address != NULL;
}

static bool tls_take_functions(PyObject *from, TlsFunctions *call)
{
    return tls_take_function(from, "SSL_read", &call->read) && tls_take_function(from, "SSL_write", &call->write) &&
           tls_take_function(from, "SSL_get_error", &call->get_error) && tls_take_function(from, "SSL_pending", &call->pending) &&
           tls_take_function(from, "SSL_do_handshake", &call->do_handshake) &&
           tls_take_function(from, "ERR_clear_error", &call->clear_error) &&
           tls_take_function(from, "ERR_get_error", &call->next_error) &&
           tls_take_function(from, "ERR_reason_error_string", &call->reason);
}

/* Tls(owner, address, fd, functions): a connection of OpenSSL, which its owner keeps, its socket, and the addresses of the
   functions by name. */
static PyObject *tls_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *owner, *address, *functions;
    int fd;
    if (!PyArg_ParseTuple(args, "OOiO", &owner, &address, &fd, &functions))
        return NULL;
    Tls *tls = (Tls *)type->tp_alloc(type, 0);
    if (tls == NULL)
        return NULL;
    tls->owner = Py_NewRef(owner);
    tls->fd = fd;
    tls->ssl = PyLong_AsVoidPtr(address);
    if (tls->ssl == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "there is no connection");
    if (tls->ssl == NULL || !tls_take_functions(functions, &tls->call))
        Py_CLEAR(tls);
    return (PyObject *)tls;
}

static void tls_free(Tls *tls)
{
    Py_XDECREF(tls->owner);
    Py_TYPE(tls)->tp_free((PyObject *)tls);
}

static PyMethodDef methods[] = {
    {"send", (PyCFunction)tls_py_send, METH_O, "Send some of what lies in several places, and return how much."},
    {"receive", (PyCFunction)tls_py_receive, METH_O, "Receive into several places, and return how much; 0 at the end."},
    {"holds", (PyCFunction)tls_py_holds, METH_NOARGS, "Tell whether something is decrypted that nobody has taken."},
    {"shake", (PyCFunction)tls_py_shake, METH_NOARGS, "Go on with the handshake; tell whether it is done."},
    {0},
};

PyTypeObject TlsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Tls",
    .tp_basicsize = sizeof(Tls),
    .tp_new = tls_new,
    .tp_dealloc = (destructor)tls_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
};

int tls_add_types(PyObject *module)
{
    return PyModule_AddType(module, &TlsType);
}
