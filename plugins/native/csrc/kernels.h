/* Arithmetic on arrays of one dtype, to the bits that NumPy and ml_dtypes give. */
#ifndef RANKWISE_KERNELS_H
#define RANKWISE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { F32, F64, F16, BF16, I8, I16, I32, I64, U8, U16, U32, U64, BOOL, KINDS } Kind;
typedef enum { SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, OPS } Op;

/* out[i] = a[i] op b[i]; `out` may be `a` or `b`. */
typedef void (*Merge)(void *out, const void *a, const void *b, size_t count);

size_t kernels_kind_nbytes(Kind kind);
/* What Python calls an op, and the op of a name; OPS for those that are left to Python. */
const char *kernels_op_name(Op op);
Op kernels_op_named(const char *name);
/* What an op is reduced in: float32 for sums and products of floats of 16 bits, else the kind itself. */
Kind kernels_accumulation_kind(Op op, Kind kind);
/* How to reduce in a kind; NULL where the op is not defined. AVG adds. */
Merge kernels_merge_of(Op op, Kind kind);
/* Divide by the number of contributions, in place. */
void kernels_average(void *total, Kind kind, size_t count, int size);
/* Between 16 bits and 32; plain copies for all other kinds. */
void kernels_widen(void *wide, const void *narrow, Kind kind, Kind wide_kind, size_t count);
void kernels_narrow(void *narrowed, const void *wide, Kind kind, Kind wide_kind, size_t count);

#endif
