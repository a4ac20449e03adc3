#include "guards.h"
#include <string.h>

_Static_assert((int)HEAD_NBYTES == (int)GUARDED_NBYTES && (int)HEAD_TAG_NBYTES == (int)TAG_NBYTES, "a guard keeps headers and a tag");

static GuardState *guards_of(PyObject *guard)
{
    return state_is_none(guard) ? NULL : (GuardState *)guard;
}

bool guards_known(PyObject *guard)
{
    return state_is_none(guard) || (PyObject_TypeCheck(guard, &GuardStateType) && state_makes_tags((const GuardState *)guard));
}

size_t guards_unit(PyObject *guard)
{
    return HEAD_NBYTES + (guards_of(guard) == NULL ? 0 : HEAD_TAG_NBYTES);
}

static bool guards_has_foreseen(const GuardState *state, const void *head)
{
    return state->foresees && state->foreseen_number == state->number && memcmp(state->foreseen, head, HEAD_NBYTES) == 0;
}

bool guards_tag(PyObject *guard, unsigned ahead, const void *head, unsigned char tag[HEAD_TAG_NBYTES])
{
    const GuardState *state = guards_of(guard);
    if (state == NULL)
        return true;
    if (ahead > 0 || !guards_has_foreseen(state, head))
        return state_make_tag(state, state->number + ahead, head, tag);
    memcpy(tag, state->foreseen_tag, HEAD_TAG_NBYTES);
    return true;
}

bool guards_match(PyObject *guard, const void *head, const unsigned char tag[HEAD_TAG_NBYTES])
{
    unsigned char made[HEAD_TAG_NBYTES], different = 0;
    if (guards_of(guard) == NULL)
        return true;
    if (!guards_tag(guard, 0, head, made))
        return false;
    for (int i = 0; i < HEAD_TAG_NBYTES; i++)
        different |= made[i] ^ tag[i];
    return different == 0;
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

void guards_foresee(PyObject *guard, const void *head)
{
    GuardState *state = guards_of(guard);
    if (state == NULL)
        return;
    if (head == NULL)
        head = state->before; /* a caller that does the same again, or two things in turn, does now what came before the latest */
    if (guards_has_foreseen(state, head))
        return;
    memcpy(state->foreseen, head, HEAD_NBYTES);
    state->foreseen_number = state->number;
    state->foresees = state_make_tag(state, state->number, head, state->foreseen_tag);
}
