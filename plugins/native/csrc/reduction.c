#include "reduction.h"

void reduction_prepare(Reduction *reduction, Op op, Kind kind)
{
    Kind wide = kernels_accumulation_kind(op, kind);
    reduction->op = op;
    reduction->kind = kind;
    reduction->wide = wide;
    reduction->merge = kernels_merge_of(op, wide);
    reduction->item = kernels_kind_nbytes(kind);
    reduction->step = REDUCTION_NBYTES / kernels_kind_nbytes(wide);
}

size_t reduction_now(const Reduction *reduction, size_t left)
{
    return left < reduction->step ? left : reduction->step;
}

/* A contribution in the kind that is reduced in. */
static const void *reduction_widened(const Reduction *reduction, const void *from, void *scratch)
{
    if (reduction->wide == reduction->kind)
        return from;
    kernels_widen(scratch, from, reduction->kind, reduction->wide, reduction->count);
    return scratch;
}

void reduction_begin(Reduction *reduction, const void *first, void *out, size_t count)
{
    reduction->count = count;
    reduction->into = out != NULL && reduction->wide == reduction->kind ? out : reduction->total;
    reduction->left = reduction_widened(reduction, first, reduction->total);
}

void reduction_add(Reduction *reduction, const void *next)
{
    reduction->merge(reduction->into, reduction->left, reduction_widened(reduction, next, reduction->next), reduction->count);
    reduction->left = reduction->into;
}

void reduction_end(Reduction *reduction, void *out, int size)
{
    if (reduction->op == AVG)
        kernels_average(reduction->into, reduction->wide, reduction->count, size);
    if (reduction->into != out)
        kernels_narrow(out, reduction->into, reduction->kind, reduction->wide, reduction->count);
}
