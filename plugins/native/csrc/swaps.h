/* The collectives over the wire, to the same bytes as those of rankwise_gloo_tcp: every rank sends each other its record
   with its data behind, so that one message's time is all it takes. */
#ifndef RANKWISE_SWAPS_H
#define RANKWISE_SWAPS_H

#include "given.h"
#include "wire.h"

/* The tag of what compares calls. */
#define FINGERPRINT_TAG 0x40000000u

/* Part of an array, with which Python may have to go on; nothing where that has no owner. */
typedef struct {
    PyArrayObject *owner; /* borrowed */
    Part part;
} Owned;

/* One call. */
typedef struct {
    Wire *wire;
    const uint64_t *about; /* this rank's record */
    PyObject **deadline;   /* a deadline, a time-out, or None for the group's, of which Python makes a deadline */
    Parcel parcels[MOST_PARCELS];
    unsigned char *straight; /* where the only part of a long one of two ranks goes while it comes */
    unsigned char *out;      /* where what is reduced goes; NULL where nothing is, */
    const unsigned char *own; /* ... and this rank's own */
    size_t merged; /* how many elements are reduced */
    Op op;
    Kind kind;
} Swap;

/* All of an array; nothing for NULL. */
Owned swaps_whole(PyArrayObject *array);
/* The owner, and which of its bytes some of an array are, from the first to the last. */
PyObject *swaps_range(Owned array, size_t begin, size_t end);
/* Keep the deadline that Python has found; false for NULL. */
bool swaps_set_deadline(PyObject **place, PyObject *deadline);
/* Whether what goes to and comes from each rank fits. */
bool swaps_fit(const Wire *wire, const Given *given);
/* Say what goes to the `k`th next rank, and how much comes from it, besides the records. */
void swaps_address(Swap *swap, int k, const void *data, size_t nbytes, size_t expected);
/* Exchange it; `misfit` tells whether something of another length has come. False with an exception set. */
bool swaps_trade(Swap *swap, bool *misfit);
Ending swaps_compare(Swap *swap);
/* Exchange what goes along with a call, and put it to its places, or reduce it in the order of ranks. */
Ending swaps_along(Swap *swap, const Given *given);

#endif
