#include "shared.h"

/* A table without a lock, as calls look without the interpreter: who looks for an address holds the memory that it is in, so
   that its entry stays; of any other entry it does not matter whether it is seen. What finds no place here is not known, and
   goes the way of other arrays. */
enum { MOST_STRETCHES = 64 };

typedef struct {
    _Atomic uintptr_t begin; /* 0 where there is none */
    _Atomic uintptr_t end;
    _Atomic uint64_t mark;
    _Atomic size_t stride; /* how long each block is */
} Stretch;

static Stretch stretches[MOST_STRETCHES];
static _Atomic int used; /* none is behind these */
static PyTypeObject *array_type;

/* Find where a part is; false if it is in none of these. */
static bool shared_find(Part part, size_t nbytes, uintptr_t *first, uintptr_t *last, uint64_t *mark, size_t *stride)
{
    uintptr_t at = (uintptr_t)part.bytes;
    int many = atomic_load_explicit(&used, memory_order_acquire);
    for (int i = 0; i < many; i++) {
        uintptr_t begin = atomic_load_explicit(&stretches[i].begin, memory_order_acquire);
        if (begin != 0 && at >= begin && at + nbytes <= atomic_load_explicit(&stretches[i].end, memory_order_relaxed)) {
            *first = begin;
            *last = atomic_load_explicit(&stretches[i].end, memory_order_relaxed);
            *mark = atomic_load_explicit(&stretches[i].mark, memory_order_relaxed);
            *stride = atomic_load_explicit(&stretches[i].stride, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

uint64_t shared_word_of(const Part *parts, int count, size_t item, bool in_place)
{
    uint64_t mixed = 0xCBF29CE484222325u, mark;
    uintptr_t begin, end;
    size_t stride;
    bool found = false;
    if (atomic_load_explicit(&used, memory_order_relaxed) == 0)
        return 0;
    for (int i = 0; i < count; i++) {
        if (parts[i].count == 0)
            continue;
        if (!shared_find(parts[i], parts[i].count * item, &begin, &end, &mark, &stride) || stride < end - begin)
            return 0;
        mixed = (mixed ^ (mark + ((uintptr_t)parts[i].bytes - begin))) * 0x100000001B3u;
        found = true;
    }
    return !found ? 0 : COMMON | (mixed & (COMMON - 1) & ~(uint64_t)IN_PLACE) | (in_place ? IN_PLACE : 0);
}

Blocks shared_blocks_of(Part part, size_t item)
{
    uintptr_t begin, end, at = (uintptr_t)part.bytes;
    uint64_t mark;
    size_t stride, nbytes = part.count * item;
    if (atomic_load_explicit(&used, memory_order_relaxed) == 0 || !shared_find(part, nbytes, &begin, &end, &mark, &stride))
        return (Blocks){0};
    size_t place = (at - begin) / stride, offset = (at - begin) % stride, count = (end - begin) / stride;
    if (count < 2 || count > PLACES || offset + nbytes > stride)
        return (Blocks){0};
    uint64_t told = (mark + offset) * 0x100000001B3u;
    return (Blocks){COMMON | (told & (COMMON - 1) & ~(uint64_t)PLACES) | place, part.bytes - place * stride, stride, (int)count};
}

bool shared_is_array(PyObject *object)
{
    return PyArray_CheckExact(object) || Py_TYPE(object) == array_type;
}

/* (type, address, nbytes, mark, stride) */
static PyObject *shared_py_note(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyTypeObject *type;
    unsigned long long address, nbytes, mark, stride;
    if (!PyArg_ParseTuple(args, "O!KKKK", &PyType_Type, &type, &address, &nbytes, &mark, &stride))
        return NULL;
    if (stride == 0 || nbytes % stride != 0)
        return PyErr_Format(PyExc_ValueError, "%llu bytes are no blocks of %llu", nbytes, stride);
    if (!PyType_IsSubtype(type, &PyArray_Type))
        return PyErr_Format(PyExc_TypeError, "%s is no type of arrays", type->tp_name);
    Py_XSETREF(array_type, (PyTypeObject *)Py_NewRef((PyObject *)type));
    for (int i = 0; i < MOST_STRETCHES; i++) {
        Stretch *stretch = &stretches[i];
        if (atomic_load_explicit(&stretch->begin, memory_order_relaxed) != 0)
            continue;
        atomic_store_explicit(&stretch->end, (uintptr_t)(address + nbytes), memory_order_relaxed);
        atomic_store_explicit(&stretch->mark, mark, memory_order_relaxed);
        atomic_store_explicit(&stretch->stride, (size_t)stride, memory_order_relaxed);
        atomic_store_explicit(&stretch->begin, (uintptr_t)address, memory_order_release);
        if (i >= atomic_load_explicit(&used, memory_order_relaxed))
            atomic_store_explicit(&used, i + 1, memory_order_release);
        break;
    }
    Py_RETURN_NONE;
}

static PyObject *shared_py_forget(PyObject *Py_UNUSED(module), PyObject *number)
{
    uintptr_t address = (uintptr_t)PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred())
        return NULL;
    for (int i = 0; i < MOST_STRETCHES; i++)
        if (atomic_load_explicit(&stretches[i].begin, memory_order_relaxed) == address)
            atomic_store_explicit(&stretches[i].begin, 0, memory_order_relaxed);
    int many = atomic_load_explicit(&used, memory_order_relaxed);
    while (many > 0 && atomic_load_explicit(&stretches[many - 1].begin, memory_order_relaxed) == 0)
        many--;
    atomic_store_explicit(&used, many, memory_order_release);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"note_shared", shared_py_note, METH_VARARGS, "Learn of memory that ranks have in common."},
    {"forget_shared", shared_py_forget, METH_O, "Forget it."},
    {0},
};

int shared_add_functions(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
