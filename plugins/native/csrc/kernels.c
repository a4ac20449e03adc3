/* Each loop is plain enough for the compiler to use vectors; what NaN and -0.0 become is said where it matters. */
#include "kernels.h"
#include <string.h>

/* Wider vectors where the processor has them; left out where a sanitizer runs before the choice can be made. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(RANKWISE_ONE_TARGET)
#define VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define VECTORS
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
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

/* Choices and no branches, so that the compiler can use vectors; signalling NaNs become quiet, as processors do it. */
static inline float kernels_from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    uint32_t normal = (rest << 13) + 0x38000000, special = (rest << 13) | 0x7f800000 | (rest > 0x7c00 ? 0x400000 : 0);
    uint32_t small = kernels_bits_of((float)(int32_t)rest * 0x1p-24f); /* zero or subnormal: exact in 32 bits */
    return kernels_float_of(sign | (rest >= 0x7c00 ? special : rest < 0x0400 ? small : normal));
}

/* To the nearest, ties to even. A NaN keeps the upper bits of its payload. */
static inline uint16_t kernels_to_half(float value)
{
    uint32_t bits = kernels_bits_of(value), rest = bits & 0x7fffffff;
    uint32_t sign = bits >> 16 & 0x8000, quiet = 0x7e00 | (rest >> 13 & 0x3ff);
    uint32_t normal = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
    uint32_t small = kernels_bits_of(kernels_float_of(rest) + 0.5f) - 0x3f000000; /* subnormal: the addition rounds */
    uint32_t finite = rest < 0x38800000 ? small : rest >= 0x477ff000 ? 0x7c00 : normal; /* or rounds to 65536 or more */
    return (uint16_t)(sign | (rest > 0x7f800000 ? quiet : finite));
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

/* Where a float stands among all others, as a number of its own sign; only below the first NaN. */
static inline int16_t kernels_order_of(uint16_t half)
{
    int16_t sign = (int16_t)-(half >> 15);
    return (int16_t)(((half & 0x7fff) ^ sign) - sign);
}

/* NumPy's rule for halves keeps the first of equal zeros, ml_dtypes' the second. */
#define CHOICES(name, infinity, least, largest)                                                                                     \
    LOOP(name##_min, uint16_t, (a & 0x7fff) > infinity || ((b & 0x7fff) <= infinity && kernels_order_of(a) least kernels_order_of(b)) ? a : b) \
    LOOP(name##_max, uint16_t, (a & 0x7fff) > infinity || ((b & 0x7fff) <= infinity && kernels_order_of(a) largest kernels_order_of(b)) ? a : b)

CHOICES(f16, 0x7c00, <=, >=)
CHOICES(bf16, 0x7f80, <, >)

#define CONVERSIONS(name)                                                                                   \
    VECTORS static void kernels_widen_##name(float *restrict wide, const uint16_t *restrict from, size_t n) \
    {                                                                                                       \
        for (size_t i = 0; i < n; i++)                                                                      \
            wide[i] = kernels_from_##name(from[i]);                                                         \
    }                                                                                                       \
    VECTORS static void kernels_narrow_##name(uint16_t *restrict to, const float *restrict wide, size_t n)  \
    {                                                                                                       \
        for (size_t i = 0; i < n; i++)                                                                      \
            to[i] = kernels_to_##name(wide[i]);                                                             \
    }

CONVERSIONS(half)
CONVERSIONS(bfloat)

/* The processor's own conversions, to the same bits, where it has them; those for bfloat16 take subnormals for zero. */
#if defined(__x86_64__) && defined(__GNUC__)
static bool kernels_converts(void)
{
    static _Atomic signed char known; /* in a virtual machine each look takes microseconds */
    unsigned a, b, c, d;
    if (known == 0)
        known = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0 ? 1 : -1;
    return known > 0;
}

__attribute__((target("avx2,f16c"))) static size_t kernels_widen_at_once(float *wide, const uint16_t *from, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(wide + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
    return i;
}

__attribute__((target("avx2,f16c"))) static size_t kernels_narrow_at_once(uint16_t *to, const float *wide, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(wide + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}
#elif defined(__aarch64__)
static bool kernels_converts(void)
{
    return true;
}

static size_t kernels_widen_at_once(float *wide, const uint16_t *from, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(wide + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + i))));
    return i;
}

static size_t kernels_narrow_at_once(uint16_t *to, const float *wide, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1_u16(to + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(wide + i))));
    return i;
}
#else
static bool kernels_converts(void)
{
    return false;
}

#define kernels_widen_at_once(wide, from, n) 0
#define kernels_narrow_at_once(to, wide, n) 0
#endif

static void kernels_widen_halves(float *wide, const uint16_t *from, size_t n)
{
    size_t done = kernels_converts() ? kernels_widen_at_once(wide, from, n) : 0;
    kernels_widen_half(wide + done, from + done, n - done);
}

static void kernels_narrow_halves(uint16_t *to, const float *wide, size_t n)
{
    size_t done = kernels_converts() ? kernels_narrow_at_once(to, wide, n) : 0;
    kernels_narrow_half(to + done, wide + done, n - done);
}

void kernels_widen(void *wide, const void *from, Kind kind, Kind wide_kind, size_t count)
{
    if (kind == wide_kind)
        memcpy(wide, from, count * kernels_kind_nbytes(kind));
    else if (kind == F16)
        kernels_widen_halves(wide, from, count);
    else
        kernels_widen_bfloat(wide, from, count);
}

void kernels_narrow(void *to, const void *wide, Kind kind, Kind wide_kind, size_t count)
{
    if (kind == wide_kind)
        memcpy(to, wide, count * kernels_kind_nbytes(kind));
    else if (kind == F16)
        kernels_narrow_halves(to, wide, count);
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
