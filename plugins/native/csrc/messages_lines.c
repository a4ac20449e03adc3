/* Where receives stand that were posted before their messages came. Whoever takes the engine's lock finds each in its line.
   Most are met before anybody does; until then they stand in a list of C's own, which has some only while no line has any.
   So those of a tag and a rank are served in the order in which they were posted. */
#include "messages.h"

/* A line or the list is no longer here, since C finds the first of many slowly; then the engine takes in the messages. */
enum { MOST_POSTED = 32 };

/* ------------------------------------------------------------------ the lines */

PyObject *messages_key(Messages *messages, unsigned tag, int peer)
{
    Way *way = &messages->ways[peer];
    if (way->key == NULL || way->key_tag != tag) {
        Py_XSETREF(way->key, Py_BuildValue("(Ii)", tag, peer));
        way->key_tag = tag;
    }
    return way->key;
}

bool messages_is_kept(Messages *messages, const Letter *letter)
{
    if (PyDict_GET_SIZE(messages->arrivals) == 0)
        return false;
    if (messages_is_anyones(letter))
        return hooks_has_key(messages->arrivals, PyLong_FromUnsignedLong(letter->tag));
    return hooks_has_key(messages->lines, Py_XNewRef(messages_key(messages, letter->tag, letter->peer)));
}

/* A line without anything, which is the last that has become so if there is one. */
static PyObject *lines_new(Messages *messages)
{
    PyObject *line = messages->spare;
    messages->spare = NULL;
    return line != NULL ? line : PyODict_New();
}

/* Put a request at the end of its line; false if so many are there, or with an exception set. */
static bool lines_enter(Messages *messages, unsigned tag, int peer, RequestState *request, Py_ssize_t most)
{
    PyObject *key = messages_key(messages, tag, peer), *line = key == NULL ? NULL : PyDict_GetItemWithError(messages->receives, key);
    bool made = line == NULL && !PyErr_Occurred();
    if (made && ((line = lines_new(messages)) == NULL || PyDict_SetItem(messages->receives, key, line) < 0))
        Py_CLEAR(line);
    bool has_room = line != NULL && PyDict_GET_SIZE(line) < most;
    PyObject *number = has_room ? PyIter_Next(messages->numbers) : NULL, *name = PyLong_FromVoidPtr(request);
    PyObject *place = number == NULL ? NULL : PyTuple_Pack(2, number, request);
    bool entered = place != NULL && name != NULL && PyODict_SetItem(line, name, place) == 0;
    if (made && line != NULL) {
        if (!entered)
            PyDict_DelItem(messages->receives, key);
        Py_DECREF(line);
    }
    Py_XDECREF(number);
    Py_XDECREF(name);
    Py_XDECREF(place);
    return entered;
}

/* The first in the line of a tag and a rank, if it was posted here and no receive from anyone may be before it; borrowed. An
   exception may be set. */
static RequestState *lines_first(Messages *messages, unsigned tag, int peer)
{
    PyObject *name, *place, *key, *line;
    Py_ssize_t at = 0;
    if (hooks_has_key(messages->receives, Py_BuildValue("(IO)", tag, Py_None)))
        return NULL;
    if ((key = messages_key(messages, tag, peer)) == NULL)
        return NULL;
    line = PyDict_GetItemWithError(messages->receives, key);
    if (line == NULL || !PyODict_Check(line) || PyDict_GET_SIZE(line) > MOST_POSTED || !PyDict_Next(line, &at, &name, &place) || !PyTuple_Check(place) || PyTuple_GET_SIZE(place) != 2)
        return NULL;
    RequestState *request = (RequestState *)PyTuple_GET_ITEM(place, 1);
    return Py_IS_TYPE(request, messages->request_type) && request->by == (PyObject *)messages ? request : NULL;
}

/* Take the first out of its line; false with an exception set. */
static bool lines_leave(Messages *messages, unsigned tag, int peer, RequestState *request)
{
    PyObject *key = messages_key(messages, tag, peer), *name = PyLong_FromVoidPtr(request);
    PyObject *line = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(messages->receives, key));
    bool left = line != NULL && name != NULL && PyODict_DelItem(line, name) == 0;
    if (left && PyDict_GET_SIZE(line) == 0) {
        left = PyDict_DelItem(messages->receives, key) == 0;
        if (left && messages->spare == NULL && Py_REFCNT(line) == 1)
            messages->spare = Py_NewRef(line);
    }
    Py_XDECREF(line);
    Py_XDECREF(name);
    return left;
}

/* ------------------------------------------------------------------ the list */

/* Whether what is posted goes to the list, and is looked for there. After a want of memory both have some; those in the lines
   are older. */
static bool lines_are_empty(const Messages *messages)
{
    return PyDict_GET_SIZE(messages->receives) == 0;
}

/* Where the first of a tag and a rank stands in the list; or where that ends. */
static RequestState **list_place(Messages *messages, unsigned tag, int peer)
{
    RequestState **place = &messages->fresh;
    while (*place != NULL && ((*place)->tag != tag || (*place)->from != peer))
        place = &(*place)->behind;
    return place;
}

bool messages_has_fresh(const Messages *messages, const Letter *letter)
{
    for (const RequestState *request = messages->fresh; request != NULL; request = request->behind) {
        const Way *way = messages->ways + request->from;
        if (request->tag == letter->tag && way >= letter->first && way < letter->end)
            return true;
    }
    return false;
}

/* Take out of the list what stands at a place; the reference is the caller's. */
static RequestState *list_take_out(RequestState **place)
{
    RequestState *request = *place;
    *place = request->behind;
    request->behind = NULL;
    return request;
}

void messages_drop_fresh(Messages *messages)
{
    while (messages->fresh != NULL)
        Py_DECREF(list_take_out(&messages->fresh));
}

/* Put a request at the end of the list; false, without an exception, if that is long. */
static bool list_enter(Messages *messages, RequestState *request)
{
    RequestState **place = &messages->fresh;
    int before = 0;
    for (; *place != NULL; place = &(*place)->behind)
        before++;
    if (before == MOST_POSTED)
        return false;
    *place = (RequestState *)Py_NewRef(request);
    return true;
}

bool messages_line_up(void *whose)
{
    Messages *messages = whose;
    bool entered = true;
    int collects = messages->fresh == NULL ? 0 : PyGC_Disable();
    while (messages->fresh != NULL && entered) {
        RequestState *request = messages->fresh;
        entered = lines_enter(messages, (unsigned)request->tag, request->from, request, PY_SSIZE_T_MAX);
        if (entered)
            Py_DECREF(list_take_out(&messages->fresh));
    }
    if (collects)
        PyGC_Enable();
    return entered;
}

/* ------------------------------------------------------------------ wherever they stand */

bool messages_enter(Messages *messages, unsigned tag, int peer, RequestState *request)
{
    return (lines_are_empty(messages) && list_enter(messages, request)) ||
           (messages_line_up(messages) && lines_enter(messages, tag, peer, request, MOST_POSTED));
}

RequestState *messages_first_posted(Messages *messages, unsigned tag, int peer)
{
    return lines_are_empty(messages) ? *list_place(messages, tag, peer) : lines_first(messages, tag, peer);
}

bool messages_leave(Messages *messages, unsigned tag, int peer, RequestState *request)
{
    if (!lines_are_empty(messages))
        return lines_leave(messages, tag, peer, request);
    Py_DECREF(list_take_out(list_place(messages, tag, peer)));
    return true;
}
