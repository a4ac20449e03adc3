#include "wording.h"
#include <stdarg.h>
#include <stdio.h>

/* There is room for the numbers of all parts, and of all dimensions, and some words. */
enum { MOST_TEXT = 24 * (MOST_NUMBERS + 8) + 128 };

typedef struct {
    char bytes[MOST_TEXT];
    size_t length;
} Text;

static void wording_add(Text *text, const char *format, ...)
{
    va_list given;
    va_start(given, format);
    int added = vsnprintf(text->bytes + text->length, sizeof text->bytes - text->length, format, given);
    va_end(given);
    text->length += added > 0 ? (size_t)added : 0;
}

/* A tuple of numbers, as Python writes it. */
static void wording_add_numbers(Text *text, int count, const npy_intp *numbers)
{
    wording_add(text, "(");
    for (int i = 0; i < count; i++)
        wording_add(text, i == 0 ? "%zd" : ", %zd", (Py_ssize_t)numbers[i]);
    wording_add(text, count == 1 ? ",)" : ")");
}

const char *wording_dtype(Kind kind)
{
    static const char *const names[KINDS] = {[F32] = "float32", [F64] = "float64", [F16] = "float16", [BF16] = "bfloat16", [I8] = "int8",
                                             [I16] = "int16",   [I32] = "int32",   [I64] = "int64",   [U8] = "uint8",      [U16] = "uint16",
                                             [U32] = "uint32",  [U64] = "uint64",  [BOOL] = "bool"};
    return names[kind];
}

PyObject *wording_of(const Given *given, const char *name)
{
    int call = given->key.name;
    bool has_shape = call == ALL_REDUCE || call == REDUCE || call == BROADCAST;
    bool has_parts = call == ALL_GATHER || call == REDUCE_SCATTER; /* which are the same on all ranks */
    Text text = {.length = 0};
    wording_add(&text, "('%s', '%s', %d, '%s', ", name, given_reduces(given) ? kernels_op_name(given->op) : "", given->root,
                given->array == NULL ? "" : wording_dtype(given->kind));
    wording_add(&text, "%zd, ", has_shape ? (Py_ssize_t)given->whole.count : (Py_ssize_t)-1);
    wording_add_numbers(&text, has_parts ? given->key.count : 0, given->key.numbers);
    wording_add(&text, ", ");
    if (has_shape)
        wording_add_numbers(&text, PyArray_NDIM(given->array), PyArray_DIMS(given->array));
    else
        wording_add(&text, "None");
    wording_add(&text, ")");
    if (text.length >= sizeof text.bytes) {
        PyErr_SetString(PyExc_OverflowError, "a call has too many numbers");
        return NULL;
    }
    return PyBytes_FromStringAndSize(text.bytes, (Py_ssize_t)text.length);
}
