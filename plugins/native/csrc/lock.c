#include "lock.h"
#include <sched.h>

/* How long a thread that has waited may take to wake up. */
enum { HANDING_NS = 200000 };

void lock_release(EngineLock *lock)
{
    atomic_store_explicit(&lock->asked, false, memory_order_relaxed);
    atomic_store_explicit(&lock->held, false, memory_order_relaxed);
    PyThread_release_lock(lock->lock);
}

/* Prepare what the lock guards for the thread that has just taken it. */
static bool lock_prepare(EngineLock *lock)
{
    if (lock->prepare == NULL || lock->prepare(lock->whose))
        return true;
    lock_release(lock);
    return false;
}

static bool lock_take_free(EngineLock *lock)
{
    if (!PyThread_acquire_lock(lock->lock, NOWAIT_LOCK))
        return false;
    atomic_store_explicit(&lock->held, true, memory_order_relaxed);
    return true;
}

bool lock_try(EngineLock *lock)
{
    if (!lock_take_free(lock))
        return false;
    bool prepared = lock_prepare(lock);
    if (!prepared)
        PyErr_Clear(); /* who waits for it hears why */
    return prepared;
}

void lock_hand_over(EngineLock *lock)
{
    int waiting = atomic_load_explicit(&lock->waiting, memory_order_relaxed);
    lock_release(lock);
    if (waiting == 0)
        return;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t until = native_monotonic_ns() + HANDING_NS; native_monotonic_ns() < until;) {
        if (atomic_load_explicit(&lock->waiting, memory_order_relaxed) < waiting)
            break;
        sched_yield();
    }
    Py_END_ALLOW_THREADS
}

/* Wait for it until a time, or for ever where that is negative: 1 once it is taken, 0 if it was not in time, -1 if a
   signal's handler has raised, or what the lock guards could not be prepared. */
static int lock_wait(EngineLock *lock, int64_t until)
{
    int interrupted = 0;
    PyLockStatus status = PY_LOCK_INTR;
    while (status == PY_LOCK_INTR && interrupted == 0) {
        int64_t left = until < 0 ? -1 : until - native_monotonic_ns();
        Py_BEGIN_ALLOW_THREADS
        atomic_fetch_add_explicit(&lock->waiting, 1, memory_order_relaxed);
        status = PyThread_acquire_lock_timed(lock->lock, until < 0 ? -1 : left < 0 ? 0 : left / 1000, 1);
        if (status == PY_LOCK_ACQUIRED)
            atomic_store_explicit(&lock->held, true, memory_order_relaxed);
        atomic_fetch_sub_explicit(&lock->waiting, 1, memory_order_relaxed);
        Py_END_ALLOW_THREADS
        if (status == PY_LOCK_INTR)
            interrupted = Py_MakePendingCalls();
    }
    if (status != PY_LOCK_ACQUIRED)
        return interrupted;
    return lock_prepare(lock) ? 1 : -1;
}

/* ------------------------------------------------------------------ the type */

static PyObject *lock_py_acquire(EngineLock *lock, PyObject *args, PyObject *named)
{
    static char *names[] = {"blocking", "timeout", NULL};
    int blocking = 1;
    double timeout_s = -1;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|pd", names, &blocking, &timeout_s))
        return NULL;
    int taken = lock_try(lock);
    if (!taken && blocking)
        taken = lock_wait(lock, timeout_s < 0 ? -1 : native_monotonic_ns() + (int64_t)(timeout_s * 1e9));
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

static PyObject *lock_py_enter(EngineLock *lock, PyObject *Py_UNUSED(nothing))
{
    return !lock_try(lock) && lock_wait(lock, -1) < 0 ? NULL : Py_NewRef(Py_True);
}

static PyObject *lock_py_release(EngineLock *lock, PyObject *Py_UNUSED(nothing))
{
    if (!lock_is_held(lock)) {
        PyErr_SetString(PyExc_RuntimeError, "release unlocked lock");
        return NULL;
    }
    lock_release(lock);
    Py_RETURN_NONE;
}

static PyObject *lock_py_exit(EngineLock *lock, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    return lock_py_release(lock, NULL);
}

static PyObject *lock_py_locked(EngineLock *lock, PyObject *Py_UNUSED(nothing))
{
    bool held = lock_is_held(lock);
    if (held)
        atomic_store_explicit(&lock->asked, true, memory_order_relaxed);
    return PyBool_FromLong(held);
}

static PyObject *lock_py_wanted(EngineLock *lock, PyObject *Py_UNUSED(nothing))
{
    return PyBool_FromLong(lock_is_wanted(lock));
}

static PyObject *lock_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, named, "", names))
        return NULL;
    EngineLock *lock = (EngineLock *)type->tp_alloc(type, 0);
    if (lock == NULL || (lock->lock = PyThread_allocate_lock()) != NULL)
        return (PyObject *)lock;
    Py_DECREF(lock);
    return PyErr_NoMemory();
}

static void lock_free(EngineLock *lock)
{
    if (lock->lock != NULL) {
        if (lock_is_held(lock)) /* as Python does: some systems free none that is held */
            PyThread_release_lock(lock->lock);
        PyThread_free_lock(lock->lock);
    }
    Py_TYPE(lock)->tp_free((PyObject *)lock);
}

static PyMethodDef methods[] = {
    {"acquire", (PyCFunction)(void (*)(void))lock_py_acquire, METH_VARARGS | METH_KEYWORDS, "Take it, waiting if need be."},
    {"release", (PyCFunction)lock_py_release, METH_NOARGS, "Let it go."},
    {"locked", (PyCFunction)lock_py_locked, METH_NOARGS, "Tell whether a thread has it, which then sees that it was asked for."},
    {"wanted", (PyCFunction)lock_py_wanted, METH_NOARGS, "Tell whether another thread wants it."},
    {"__enter__", (PyCFunction)lock_py_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))lock_py_exit, METH_FASTCALL, NULL},
    {0},
};

PyTypeObject EngineLockType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.EngineLock",
    .tp_basicsize = sizeof(EngineLock),
    .tp_new = lock_new,
    .tp_dealloc = (destructor)lock_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
};
