/* Arrays that the ranks of a host have in common: by their addresses, and how all ranks know that they mean the same. */
#ifndef RANKWISE_SHARED_H
#define RANKWISE_SHARED_H

#include "collectives.h"

/* What a rank tells in the place of its longest part where all parts of the outcome lie in memory that ranks have in common:
   this bit, a mark that is the same for the same memory, and IN_PLACE if its own part is there already. */
#define COMMON ((uint64_t)1 << 61)
enum { IN_PLACE = 1 };

/* Where ranks have an array each, in blocks of memory that they have in common, a word has which block is a rank's instead. */
enum { PLACES = 255 };

/* An array in one of several blocks. */
typedef struct {
    uint64_t word; /* what this rank tells of it; 0 if it lies in no such memory */
    unsigned char *first; /* where it would lie in the first block */
    size_t stride;
    int count;
} Blocks;

Blocks shared_blocks_of(Part part, size_t item);
/* What a rank tells of so many parts; 0 if they do not lie in such memory, or are empty. */
uint64_t shared_word_of(const Part *parts, int count, size_t item, bool in_place);
/* Whether programs hand this type over, besides arrays of the very type. */
bool shared_is_array(PyObject *object);
int shared_add_functions(PyObject *module);

#endif
