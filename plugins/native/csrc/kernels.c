/* Each loop is plain enough for the compiler to use vectors; what NaN and -0.0 become is said where it matters. */
#include "kernels.h"
#include <string.h>

/* Wider vectors where the processor has them; left out where a sanitizer runs before the choice can be made. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(RANKWISE_ONE_TARGET)
#define VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define VECTORS
#endif

#define LOOP(name, type, expression)                                                          \
    VECTORS static void name(void *out, const void *left, const void *right, size_t count)    \
    {                                                                                         \
        type *to = out;                                                                       \
        const type *first = left, *second = right;                                            \
        for (size_t i = 0; i < count; i++) {                                                  \
            type a = first[i], b = second[i];                                                 \
            to[i] = (type)(expression);                                                       \
        }                                                                                     \
    }

/* NumPy's: the least or largest of anything and NaN is NaN, the first one of two, and of equal zeros the second. Whose
   payload the sum of two NaNs has is open there too: it depends on the place in the array. */
#define FLOATS(name, type)                                     \
    LOOP(name##_sum, type, a + b)                              \
    LOOP(name##_product, type, a *b)                           \
    LOOP(name##_min, type, (a < b || a != a) ? a : b)          \
    LOOP(name##_max, type, (a > b || a != a) ? a : b)

/* Unsigned, and of 32 bits at the least: nothing overflows but as NumPy does. */
#define INTEGERS(name, type, wide)                             \
    LOOP(name##_sum, type, (wide)a + (wide)b)                  \
    LOOP(name##_product, type, (wide)a *(wide)b)               \
    LOOP(name##_min, type, a < b ? a : b)                      \
    LOOP(name##_max, type, a > b ? a : b)                      \
    LOOP(name##_and, type, a &b)                               \
    LOOP(name##_or, type, a | b)                               \
    LOOP(name##_xor, type, a ^ b)

FLOATS(f32, float)
FLOATS(f64, double)
INTEGERS(i8, int8_t, uint32_t)
INTEGERS(i16, int16_t, uint32_t)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(i64, int64_t, uint64_t)
INTEGERS(u8, uint8_t, uint32_t)
INTEGERS(u16, uint16_t, uint32_t)
INTEGERS(u32, uint32_t, uint32_t)
INTEGERS(u64, uint64_t, uint64_t)
/* Whatever is not 0 is true. */
LOOP(bool_or, uint8_t, (a != 0) | (b != 0))
LOOP(bool_and, uint8_t, (a != 0) & (b != 0))
LOOP(bool_xor, uint8_t, (a != 0) ^ (b != 0))

/* ------------------------------------------------------------------ floats of 16 bits */

static inline uint32_t kernels_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float kernels_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float kernels_from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= 0x7c00) /* infinite or NaN, with its payload */
        return kernels_float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest < 0x0400) /* zero or subnormal: exact in 32 bits */
        return kernels_float_of(sign | kernels_bits_of((float)rest * 0x1p-24f));
    return kernels_float_of(sign | ((rest << 13) + 0x38000000));
}

/* To the nearest, ties to even. A NaN keeps the upper bits of its payload, or one where they are 0. */
static inline uint16_t kernels_to_half(float value)
{
    uint32_t bits = kernels_bits_of(value), rest = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (rest > 0x7f800000) {
        uint32_t payload = rest >> 13 & 0x3ff;
        return (uint16_t)(sign | 0x7c00 | (payload != 0 ? payload : 1));
    }
    if (rest >= 0x477ff000) /* rounds to 65536 or more */
        return sign | 0x7c00;
    if (rest < 0x38800000) /* subnormal: the addition rounds */
        return (uint16_t)(sign | (kernels_bits_of(kernels_float_of(rest) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

static inline float kernels_from_bfloat(uint16_t half)
{
    return kernels_float_of((uint32_t)half << 16);
}

/* To the nearest, ties to even; every NaN becomes the quiet one, with its sign. */
static inline uint16_t kernels_to_bfloat(float value)
{
    uint32_t bits = kernels_bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)((bits >> 16 & 0x8000) | 0x7fc0);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* NumPy's rule for halves keeps the first of equal zeros, ml_dtypes' the second. */
LOOP(f16_min, uint16_t, (kernels_from_half(a) <= kernels_from_half(b) || kernels_from_half(a) != kernels_from_half(a)) ? a : b)
LOOP(f16_max, uint16_t, (kernels_from_half(a) >= kernels_from_half(b) || kernels_from_half(a) != kernels_from_half(a)) ? a : b)
LOOP(bf16_min, uint16_t, (kernels_from_bfloat(a) < kernels_from_bfloat(b) || kernels_from_bfloat(a) != kernels_from_bfloat(a)) ? a : b)
LOOP(bf16_max, uint16_t, (kernels_from_bfloat(a) > kernels_from_bfloat(b) || kernels_from_bfloat(a) != kernels_from_bfloat(a)) ? a : b)

#define CONVERSIONS(name)                                                                           \
    VECTORS static void kernels_widen_##name(float *restrict wide, const uint16_t *restrict from, size_t n) \
    {                                                                                               \
        for (size_t i = 0; i < n; i++)                                                              \
            wide[i] = kernels_from_##name(from[i]);                                                         \
    }                                                                                               \
    VECTORS static void kernels_narrow_##name(uint16_t *restrict to, const float *restrict wide, size_t n)  \
    {                                                                                               \
        for (size_t i = 0; i < n; i++)                                                              \
            to[i] = kernels_to_##name(wide[i]);                                                             \
    }

CONVERSIONS(half)
CONVERSIONS(bfloat)

void kernels_widen(void *wide, const void *from, Kind kind, Kind wide_kind, size_t count)
{
    if (kind == wide_kind)
        memcpy(wide, from, count * kernels_kind_nbytes(kind));
    else if (kind == F16)
        kernels_widen_half(wide, from, count);
    else
        kernels_widen_bfloat(wide, from, count);
}

void kernels_narrow(void *to, const void *wide, Kind kind, Kind wide_kind, size_t count)
{
    if (kind == wide_kind)
        memcpy(to, wide, count * kernels_kind_nbytes(kind));
    else if (kind == F16)
        kernels_narrow_half(to, wide, count);
    else
        kernels_narrow_bfloat(to, wide, count);
}

/* ------------------------------------------------------------------ tables */

static const char *const kernels_op_names[OPS] = {[SUM] = "SUM", [AVG] = "AVG",   [PRODUCT] = "PRODUCT", [MIN] = "MIN",
                                          [MAX] = "MAX", [BAND] = "BAND", [BOR] = "BOR",         [BXOR] = "BXOR"};

const char *kernels_op_name(Op op)
{
    return kernels_op_names[op];
}

Op kernels_op_named(const char *name)
{
    Op op = 0;
    while (op < OPS && strcmp(kernels_op_names[op], name) != 0)
        op++;
    return op;
}

size_t kernels_kind_nbytes(Kind kind)
{
    static const unsigned char sizes[KINDS] = {4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1};
    return sizes[kind];
}

Kind kernels_accumulation_kind(Op op, Kind kind)
{
    return (kind == F16 || kind == BF16) && (op == SUM || op == AVG || op == PRODUCT) ? F32 : kind;
}

#define FLOAT_ROW(name) {[SUM] = name##_sum, [AVG] = name##_sum, [PRODUCT] = name##_product, [MIN] = name##_min, [MAX] = name##_max}
#define INTEGER_ROW(name) \
    {[SUM] = name##_sum, [PRODUCT] = name##_product, [MIN] = name##_min, [MAX] = name##_max, \
     [BAND] = name##_and, [BOR] = name##_or, [BXOR] = name##_xor}

Merge kernels_merge_of(Op op, Kind kind)
{
    static const Merge table[KINDS][OPS] = {
        [F32] = FLOAT_ROW(f32),
        [F64] = FLOAT_ROW(f64),
        [F16] = {[MIN] = f16_min, [MAX] = f16_max},
        [BF16] = {[MIN] = bf16_min, [MAX] = bf16_max},
        [I8] = INTEGER_ROW(i8),
        [I16] = INTEGER_ROW(i16),
        [I32] = INTEGER_ROW(i32),
        [I64] = INTEGER_ROW(i64),
        [U8] = INTEGER_ROW(u8),
        [U16] = INTEGER_ROW(u16),
        [U32] = INTEGER_ROW(u32),
        [U64] = INTEGER_ROW(u64),
        [BOOL] = {[SUM] = bool_or, [PRODUCT] = bool_and, [MIN] = bool_and, [MAX] = bool_or,
                  [BAND] = bool_and, [BOR] = bool_or, [BXOR] = bool_xor},
    };
    return table[kind][op];
}

void kernels_average(void *total, Kind kind, size_t count, int size)
{
    float *singles = total;
    double *doubles = total;
    for (size_t i = 0; kind == F32 && i < count; i++)
        singles[i] /= (float)size;
    for (size_t i = 0; kind == F64 && i < count; i++)
        doubles[i] /= size;
}
