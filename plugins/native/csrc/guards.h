/* The tags of headers, by the hash that Python uses. What both know of a guard is in state.h. */
#ifndef RANKWISE_GUARDS_H
#define RANKWISE_GUARDS_H

#include "parcels.h"

int guards_add_texts(void);
/* How long a header is, with its tag if it has one. */
size_t guards_unit(PyObject *guard);
/* Write the tag of the next header; nothing where headers are not guarded. False with an exception set. */
bool guards_tag(PyObject *guard, const void *head, unsigned char tag[HEAD_TAG_NBYTES]);
/* Whether it is the tag of the next header. */
bool guards_match(PyObject *guard, const void *head, const unsigned char tag[HEAD_TAG_NBYTES], bool *match);
/* Count a header that has gone or come, before the next one. */
void guards_count(PyObject *guard, const void *head);
/* Make the tag of the next header beforehand, while there is time: of this one, or where it is NULL of that which is
   likely. False with an exception set. */
bool guards_foresee(PyObject *guard, const void *head);

#endif
