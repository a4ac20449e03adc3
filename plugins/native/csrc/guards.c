#include "guards.h"
#include <string.h>

_Static_assert(HEAD_NBYTES == GUARDED_NBYTES && HEAD_TAG_NBYTES == TAG_NBYTES, "a guard keeps headers and a tag");
static PyObject *text_copy, *text_update, *text_digest;

int guards_add_texts(void)
{
    text_copy = PyUnicode_InternFromString("copy");
    text_update = PyUnicode_InternFromString("update");
    text_digest = PyUnicode_InternFromString("digest");
    return text_copy == NULL || text_update == NULL || text_digest == NULL ? -1 : 0;
}

static GuardState *guards_of(PyObject *guard)
{
    return !state_is_none(guard) && PyObject_TypeCheck(guard, &GuardStateType) ? (GuardState *)guard : NULL;
}

size_t guards_unit(PyObject *guard)
{
    return HEAD_NBYTES + (guards_of(guard) == NULL ? 0 : HEAD_TAG_NBYTES);
}

/* Ask Python's hash. */
static bool guards_make(const GuardState *state, const void *head, unsigned char tag[HEAD_TAG_NBYTES])
{
    unsigned char text[sizeof state->number + HEAD_NBYTES];
    memcpy(text, &state->number, sizeof state->number);
    memcpy(text + sizeof state->number, head, HEAD_NBYTES);
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)text, sizeof text), *made = NULL, *done = NULL, *digest = NULL;
    if (bytes != NULL && (made = PyObject_CallMethodNoArgs(state->keyed, text_copy)) != NULL &&
        (done = PyObject_CallMethodOneArg(made, text_update, bytes)) != NULL)
        digest = PyObject_CallMethodNoArgs(made, text_digest);
    bool well = digest != NULL && PyBytes_CheckExact(digest) && PyBytes_GET_SIZE(digest) == HEAD_TAG_NBYTES;
    if (well)
        memcpy(tag, PyBytes_AS_STRING(digest), HEAD_TAG_NBYTES);
    else if (digest != NULL)
        PyErr_SetString(PyExc_TypeError, "a guard makes other tags");
    Py_XDECREF(bytes);
    Py_XDECREF(made);
    Py_XDECREF(done);
    Py_XDECREF(digest);
    return well;
}

static bool guards_has_foreseen(const GuardState *state, const void *head)
{
    return state->foresees && state->foreseen_number == state->number && memcmp(state->foreseen, head, HEAD_NBYTES) == 0;
}

bool guards_tag(PyObject *guard, const void *head, unsigned char tag[HEAD_TAG_NBYTES])
{
    const GuardState *state = guards_of(guard);
    if (state == NULL)
        return true;
    if (!guards_has_foreseen(state, head))
        return guards_make(state, head, tag);
    memcpy(tag, state->foreseen_tag, HEAD_TAG_NBYTES);
    return true;
}

bool guards_match(PyObject *guard, const void *head, const unsigned char tag[HEAD_TAG_NBYTES], bool *match)
{
    unsigned char made[HEAD_TAG_NBYTES];
    *match = guards_of(guard) == NULL;
    if (*match)
        return true;
    if (!guards_tag(guard, head, made))
        return false;
    unsigned char different = 0;
    for (int i = 0; i < HEAD_TAG_NBYTES; i++)
        different |= made[i] ^ tag[i];
    *match = different == 0;
    return true;
}

void guards_count(PyObject *guard, const void *head)
{
    GuardState *state = guards_of(guard);
    if (state == NULL)
        return;
    state->number++;
    memcpy(state->before, state->latest, HEAD_NBYTES);
    memcpy(state->latest, head, HEAD_NBYTES);
}

bool guards_foresee(PyObject *guard, const void *head)
{
    GuardState *state = guards_of(guard);
    if (state == NULL)
        return true;
    if (head == NULL)
        head = state->before; /* whoever does the same again, or two things in turn, does now what came before the latest */
    if (guards_has_foreseen(state, head))
        return true;
    unsigned char made[HEAD_TAG_NBYTES];
    unsigned long long number = state->number;
    if (!guards_make(state, head, made))
        return false;
    memcpy(state->foreseen, head, HEAD_NBYTES);
    memcpy(state->foreseen_tag, made, HEAD_TAG_NBYTES);
    state->foreseen_number = number;
    state->foresees = true;
    return true;
}
