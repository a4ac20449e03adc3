/* The tags of headers, by a library's hash, without the interpreter. What Python and C both know of a guard is in state.h. */
#ifndef RANKWISE_GUARDS_H
#define RANKWISE_GUARDS_H

#include "parcels.h"

/* Whether a guard, or None for none, can be used here. */
bool guards_known(PyObject *guard);
/* How long a header is, with its tag if it has one. */
size_t guards_unit(PyObject *guard);
/* Write the tag of the header that comes after `ahead` others, nothing where headers are not guarded; false if the library
   cannot. */
bool guards_tag(PyObject *guard, unsigned ahead, const void *head, unsigned char tag[HEAD_TAG_NBYTES]);
/* Whether it is the tag of the next header. */
bool guards_match(PyObject *guard, const void *head, const unsigned char tag[HEAD_TAG_NBYTES]);
/* Count a header that has gone or come, before the next one. */
void guards_count(PyObject *guard, const void *head);
/* Make the tag of the next header beforehand, while there is time: of this one, or where it is NULL of that which is
   likely. */
void guards_foresee(PyObject *guard, const void *head);

#endif
