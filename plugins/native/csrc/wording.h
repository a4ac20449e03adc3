/* What all ranks compare of a call, in the words of Python. */
#ifndef RANKWISE_WORDING_H
#define RANKWISE_WORDING_H

#include "given.h"

/* What the tables call a dtype. */
const char *wording_dtype(Kind kind);
/* The bytes that `Fingerprint.digest` of rankwise.collective.fingerprint makes a hash of; NULL with an exception set. The array
   of the call lies in C order, and is one. */
PyObject *wording_of(const Given *given, const char *name);

#endif
