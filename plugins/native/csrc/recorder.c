/* The flight recorder: what it notes, a few dozen nanoseconds a call. How it is read is in recorder_type.c. */
#include "recorder.h"
#include "frames.h"

static Entry *recorder_slot_of(Recorder *recorder, uint64_t serial)
{
    return &recorder->ring[serial % recorder->capacity];
}

/* Let go of what an entry refers to; it is nobody's by the time that this may run other code. */
static void recorder_release(Entry *entry)
{
    PyObject *held[] = {entry->op, entry->dtype, entry->code, entry->error, (PyObject *)entry->trail};
    entry->trail = NULL;
    entry->op = entry->dtype = entry->code = entry->error = NULL;
    entry->serial = 0;
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_XDECREF(held[i]);
}

void entry_clear(Entry *entry)
{
    recorder_release(entry);
}

void entry_copy(Entry *target, const Entry *source)
{
    Entry copy = *source;
    Py_XINCREF(copy.op);
    Py_XINCREF(copy.dtype);
    Py_XINCREF(copy.code);
    Py_XINCREF(copy.error);
    copy.trail = NULL; /* it is the trail's own */
    recorder_release(target);
    *target = copy;
}

/* The entry of a mark: in the ring, or kept since others have pushed it out. */
Entry *trail_mark(Trail *trail, int which)
{
    uint64_t serial = trail->marks[which];
    if (serial == 0 || trail->recorder == NULL)
        return NULL;
    Entry *entry = recorder_slot_of(trail->recorder, serial);
    if (entry->serial == serial)
        return entry;
    return trail->kept != NULL && trail->kept[which].serial == serial ? &trail->kept[which] : NULL;
}

Entry *recorder_entry(Recorder *recorder, uint64_t serial)
{
    Entry *entry = recorder_slot_of(recorder, serial);
    return entry->serial == serial && entry->trail != NULL ? entry : NULL;
}

/* Keep the entry of a mark; without memory for it the mark is forgotten. */
void trail_keep(Trail *trail, int which, const Entry *entry)
{
    if (trail->kept == NULL && (trail->kept = PyMem_Calloc(MARKS, sizeof(Entry))) == NULL)
        trail->marks[which] = 0;
    else
        entry_copy(&trail->kept[which], entry);
}

static void recorder_push_out(Entry *entry)
{
    Trail *trail = entry->trail;
    if (trail == NULL)
        return;
    for (int which = 0; which < MARKS; which++)
        if (trail->marks[which] == entry->serial)
            trail_keep(trail, which, entry);
    recorder_release(entry);
}

static bool recorder_begins_with(PyObject *text, PyObject *beginning)
{
    Py_ssize_t length, count;
    const char *whole = PyUnicode_AsUTF8AndSize(text, &length);
    const char *part = whole == NULL ? NULL : PyUnicode_AsUTF8AndSize(beginning, &count);
    if (part == NULL)
        PyErr_Clear();
    return part != NULL && length >= count && memcmp(whole, part, (size_t)count) == 0;
}

/* Whether code is not the program's. Programs mostly call from one place, or a few. */
static bool recorder_inside(void *what, PyCodeObject *code)
{
    Recorder *recorder = what;
    Py_ssize_t count = PyList_GET_SIZE(recorder->skipped);
    if ((PyObject *)code == recorder->known && count == recorder->known_skipped)
        return false;
    for (Py_ssize_t i = 0; i < count; i++)
        if (recorder_begins_with(code->co_filename, PyList_GET_ITEM(recorder->skipped, i)))
            return true;
    Py_INCREF(code);
    Py_XSETREF(recorder->known, (PyObject *)code);
    recorder->known_skipped = count;
    return false;
}

/* Which of the trail's sums an operation belongs to; -1 if there is no room. A trail knows a few kinds, whose names are
   the same objects each time. */
static int recorder_kind_of(Trail *trail, PyObject *op)
{
    for (int kind = 0; kind < trail->kinds; kind++)
        if (trail->sums[kind].op == op)
            return kind;
    for (int kind = 0; kind < trail->kinds; kind++)
        if (PyUnicode_Compare(trail->sums[kind].op, op) == 0)
            return kind;
    Sums *more = PyMem_Realloc(trail->sums, (size_t)(trail->kinds + 1) * sizeof *more);
    if (more == NULL)
        return -1;
    trail->sums = more;
    trail->sums[trail->kinds] = (Sums){.op = op};
    Py_INCREF(op);
    return trail->kinds++;
}

static int recorder_count_begin(Trail *trail, PyObject *op, int64_t nbytes)
{
    int kind = recorder_kind_of(trail, op);
    if (kind >= 0) {
        trail->sums[kind].begun++;
        trail->sums[kind].nbytes += nbytes;
    }
    return kind;
}

void recorder_count_end(Trail *trail, const Entry *entry)
{
    if (entry->serial == 0 || entry->kind < 0 || entry->kind >= trail->kinds)
        return;
    Sums *sums = trail->sums + entry->kind;
    if (entry->error != NULL) {
        sums->failed++;
        return;
    }
    sums->ended++;
    sums->busy_ns += entry->ended_ns - entry->began_ns;
    sums->waited_ns += entry->waited_ns;
}

static Entry *recorder_begin(Trail *trail, PyObject *op, PyObject *dtype, int64_t nbytes, int skipped, bool message,
                             int64_t began_ns)
{
    Recorder *recorder = trail->recorder;
    uint64_t serial = ++recorder->serial;
    Entry *entry = recorder_slot_of(recorder, serial);
    recorder_push_out(entry);
    Entry made = {.serial = serial, .nbytes = nbytes, .message = message, .thread = PyThread_get_thread_ident()};
    made.number = message ? trail->messages++ : trail->collectives++;
    made.trail = trail;
    made.op = op;
    made.kind = (short)recorder_count_begin(trail, op, nbytes);
    made.dtype = dtype;
    Py_INCREF(trail);
    Py_INCREF(op);
    Py_XINCREF(dtype);
    made.code = frames_find(skipped, recorder_inside, recorder, &made.lasti);
    made.began_ns = began_ns != 0 ? began_ns : native_monotonic_ns();
    *entry = made;
    trail->marks[message ? MESSAGE_BEGUN : BEGUN] = serial;
    /* The ring is larger than the nearest cache: the next call's entry is there by the time it comes. */
    const char *next = (const char *)recorder_slot_of(recorder, serial + 1);
    for (size_t at = 0; at < sizeof *entry; at += 64)
        __builtin_prefetch(next + at, 1);
    return entry;
}

int64_t trail_begin(Trail *trail, PyObject *op, PyObject *dtype, int64_t nbytes, int skipped)
{
    return recorder_begin(trail, op, dtype, nbytes, skipped, false, 0)->began_ns;
}

uint64_t trail_begin_message(Trail *trail, PyObject *op, PyObject *dtype, int64_t nbytes, long peer, long tag, int skipped,
                             int64_t began_ns)
{
    Entry *entry = recorder_begin(trail, op, dtype, nbytes, skipped, true, began_ns);
    entry->peer = peer;
    entry->tag = tag;
    return entry->serial;
}

/* The entry of the collective that this thread has begun last on this group; NULL if others have pushed it out. */
Entry *trail_mine(Trail *trail)
{
    unsigned long me = PyThread_get_thread_ident();
    Entry *entry = trail_mark(trail, BEGUN);
    if (entry != NULL && entry->thread == me)
        return entry;
    Recorder *recorder = trail->recorder;
    for (uint64_t back = 0; back < recorder->capacity && back < recorder->serial; back++) {
        entry = recorder_entry(recorder, recorder->serial - back);
        if (entry != NULL && entry->trail == trail && entry->thread == me && !entry->message)
            return entry;
    }
    return NULL;
}

void trail_end(Trail *trail, int64_t waited_ns)
{
    Entry *entry = trail_mine(trail);
    if (entry == NULL)
        return;
    entry->ended_ns = native_monotonic_ns();
    entry->waited_ns += waited_ns;
    recorder_count_end(trail, entry);
    trail->marks[ENDED] = entry->serial;
    if (recorder_entry(trail->recorder, entry->serial) == NULL)
        trail_keep(trail, ENDED, entry);
}

void trail_end_message(Trail *trail, uint64_t serial, long peer, int64_t waited_ns)
{
    Entry *entry = recorder_entry(trail->recorder, serial);
    if (entry == NULL)
        return;
    entry->peer = peer;
    entry->ended_ns = native_monotonic_ns();
    entry->waited_ns += waited_ns;
    recorder_count_end(trail, entry);
    trail->marks[MESSAGE_ENDED] = serial;
}
