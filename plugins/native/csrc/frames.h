/* Where in which code a program is. */
#ifndef RANKWISE_FRAMES_H
#define RANKWISE_FRAMES_H

#include "native.h"

/* Whether a frame of this code is not the program's. */
typedef bool (*Passed)(void *what, PyCodeObject *code);

/* Return the code of the nearest frame that is neither among the first `skipped` nor passed over, or of the outermost,
   and its instruction; a new reference, or NULL where there is no frame. */
PyObject *frames_find(int skipped, Passed passed, void *what, int *instruction);

#endif
