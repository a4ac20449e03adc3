#include "given.h"
#include "arguments.h"
#include "shared.h"
#include <string.h>

/* ------------------------------------------------------------------ arguments */

static Part given_part_of(PyArrayObject *array)
{
    return (Part){(unsigned char *)PyArray_DATA(array), (size_t)PyArray_SIZE(array)};
}

static bool given_begin(Given *given, Name name, int option, PyArrayObject *array)
{
    given->key.name = (int)name;
    given->key.option = option;
    given->key.type = given->key.count = 0;
    given->array = array;
    given->whole = (Part){0};
    given->root = -1;
    given->many = 0;
    given->keep_to.count = 0;
    given->route.sends = given->route.takes = 0;
    given->route.item = 0;
    if (array == NULL)
        return true;
    int kind = arguments_kind(array);
    given->kind = (Kind)kind;
    given->whole = given_part_of(array);
    given->key.type = PyArray_TYPE(array);
    given->route.item = (size_t)PyArray_ITEMSIZE(array);
    return kind >= 0;
}

static bool given_take_shape(Given *given)
{
    int dimensions = PyArray_NDIM(given->array);
    if (given->key.count + dimensions > MOST_NUMBERS)
        return false;
    for (int i = 0; i < dimensions; i++)
        given->key.numbers[given->key.count++] = PyArray_DIM(given->array, i);
    return true;
}

static void given_note_part(Given *given, PyArrayObject *owner, Part part)
{
    given->owners[given->many] = owner;
    given->parts[given->many++] = part;
}

/* Take a list of one array for each rank, and their sizes into the key; it is held for as long as the call takes. */
static bool given_take_list(Given *given, const Members *members, PyObject *list, bool written, Part parts[MOST_PARTS])
{
    bool is_list = PyList_CheckExact(list);
    if ((!is_list && !PyTuple_CheckExact(list)) || Py_SIZE(list) != members->size || members->size > MOST_PARTS)
        return false;
    for (int i = 0; i < members->size; i++) {
        PyObject *item = is_list ? PyList_GET_ITEM(list, i) : PyTuple_GET_ITEM(list, i);
        PyArrayObject *array = arguments_plain(item, written);
        if (array == NULL || PyArray_TYPE(array) != given->key.type)
            return false;
        given->held[given->holds++] = Py_NewRef(item);
        parts[i] = given_part_of(array);
        given_note_part(given, array, parts[i]);
        given->key.numbers[given->key.count++] = PyArray_SIZE(array);
    }
    return true;
}

/* Cut an array into one part for each rank, which is `one` elements long. */
static bool given_take_cut(Given *given, const Members *members, PyArrayObject *whole, npy_intp one, Part parts[MOST_PARTS])
{
    int size = members->size;
    if (size > MOST_PARTS || PyArray_TYPE(whole) != given->key.type || PyArray_SIZE(whole) != one * size)
        return false;
    for (int i = 0; i < size; i++) {
        parts[i].bytes = (unsigned char *)PyArray_DATA(whole) + (size_t)(one * i) * given->route.item;
        parts[i].count = (size_t)one;
        given_note_part(given, whole, parts[i]);
        given->key.numbers[given->key.count++] = one;
    }
    return true;
}

/* Whether no part that is written touches any other, or what is read but for a part with itself. */
static bool given_apart(const Members *members, size_t item, const Part *written, const Part *read, int reads)
{
    for (int i = 0; i < members->size; i++) {
        for (int j = 0; j < i; j++)
            if (collectives_touch(written[i], written[j], item))
                return false;
        for (int j = 0; j < reads; j++)
            if (collectives_touch(written[i], read[j], item))
                return false;
    }
    return true;
}

static void given_send_to(Given *given, int peer, Part part)
{
    Route *route = &given->route;
    route->send[route->sends].peer = peer;
    route->send[route->sends++].part = part;
}

static void given_take_from(Given *given, int peer, Part part)
{
    Route *route = &given->route;
    route->take[route->takes].peer = peer;
    route->take[route->takes++].part = part;
}

void given_drop(Given *given)
{
    while (given->holds > 0)
        Py_DECREF(given->held[--given->holds]);
}

void given_keep(const Given *given)
{
    Py_XINCREF(given->array);
    for (int i = 0; i < given->many; i++)
        Py_XINCREF(given->owners[i]);
    for (int i = 0; i < given->holds; i++)
        Py_INCREF(given->held[i]);
}

bool given_reduces(const Given *given)
{
    return given->key.name == ALL_REDUCE || given->key.name == REDUCE || given->key.name == REDUCE_SCATTER;
}

bool given_is_each_its_own(const Given *given)
{
    return given->key.name == ALL_TO_ALL || given->key.name == GATHER || given->key.name == SCATTER;
}

static bool given_op_of(const Members *members, PyObject *object, Op *op)
{
    for (int i = 0; i < OPS; i++)
        if (PyTuple_GET_ITEM(members->ops, i) == object && object != Py_None) {
            *op = (Op)i;
            return true;
        }
    return false;
}

/* ------------------------------------------------------------------ names */

PyObject *given_names[NAMES];
/* Of operations that are described in steps; a program has few. */
enum { MOST_DESCRIBED = 64 };
static PyObject *given_described[MOST_DESCRIBED];
static int given_described_count;

PyObject *given_name(int name)
{
    return name < NAMES ? given_names[name] : given_described[name - NAMES];
}

/* The number of an operation that is described; -1 if it is left to Python. */
static int given_number_of(PyObject *name)
{
    for (int i = 0; i < given_described_count; i++)
        if (given_described[i] == name || (PyUnicode_CheckExact(name) && PyUnicode_Compare(given_described[i], name) == 0))
            return NAMES + i;
    if (!PyUnicode_CheckExact(name) || given_described_count == MOST_DESCRIBED)
        return -1;
    given_described[given_described_count] = Py_NewRef(name);
    return NAMES + given_described_count++;
}

/* ------------------------------------------------------------------ the calls */

/* An array that is reduced in place; NULL as well where ranks have it in common, which the core refuses. */
static PyArrayObject *given_reducible(PyObject *object)
{
    PyArrayObject *array = arguments_plain(object, true);
    Part part = array == NULL ? (Part){0} : given_part_of(array);
    return array != NULL && shared_word_of(&part, 1, (size_t)PyArray_ITEMSIZE(array), true) == 0 ? array : NULL;
}

bool given_take_all_reduce(const Members *members, PyObject *const *args, Given *given)
{
    PyArrayObject *array = given_reducible(args[0]);
    return array != NULL && given_op_of(members, args[1], &given->op) && given_begin(given, ALL_REDUCE, given->op, array) &&
           given_take_shape(given);
}

/* ------------------------------------------------------------------ several arrays as one */

/* Up to how many arrays, and how many bytes of all, are reduced as one: see calls/coalesced.py of the core. */
enum { MOST_TOGETHER = 256, MOST_TOGETHER_NBYTES = 64 << 10 };

static uint64_t given_mix(uint64_t mark, npy_intp number)
{
    mark = (mark ^ (uint64_t)number) * 0x100000001B3u;
    return mark ^ mark >> 29;
}

/* What stands for the shapes of arrays, as `shapes_mark` of calls/coalesced.py has it; and how many elements they have in
   all. False if one is not plain, or not like the others, or they are too long. */
static bool given_measure(PyObject *arrays, npy_intp *count, npy_intp *mark)
{
    uint64_t mixed = 0xCBF29CE484222325u;
    PyArrayObject *first = given_reducible(PyTuple_GET_ITEM(arrays, 0));
    *count = 0;
    for (Py_ssize_t i = 0; first != NULL && i < PyTuple_GET_SIZE(arrays); i++) {
        PyArrayObject *array = given_reducible(PyTuple_GET_ITEM(arrays, i));
        if (array == NULL || PyArray_TYPE(array) != PyArray_TYPE(first))
            return false;
        mixed = given_mix(mixed, PyArray_NDIM(array));
        for (int at = 0; at < PyArray_NDIM(array); at++)
            mixed = given_mix(mixed, PyArray_DIM(array, at));
        *count += PyArray_SIZE(array);
        if (*count * PyArray_ITEMSIZE(first) > MOST_TOGETHER_NBYTES)
            return false;
    }
    *mark = -1 - (npy_intp)(mixed >> 1);
    return first != NULL && *count > 0;
}

/* Copy all arrays into one, or out of it. */
static void given_copy_all(PyArrayObject *flat, PyObject *arrays, bool out)
{
    unsigned char *at = PyArray_DATA(flat);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arrays); i++) {
        PyArrayObject *array = (PyArrayObject *)PyTuple_GET_ITEM(arrays, i);
        size_t nbytes = (size_t)PyArray_NBYTES(array);
        memcpy(out ? PyArray_DATA(array) : (void *)at, out ? (void *)at : PyArray_DATA(array), nbytes);
        at += nbytes;
    }
}

static bool given_begin_together(Given *given, Op op, PyArrayObject *flat, npy_intp many, npy_intp mark)
{
    given->op = op;
    if (!given_begin(given, ALL_REDUCE, (int)op, flat) || !given_take_shape(given))
        return false;
    given->key.numbers[given->key.count++] = many;
    given->key.numbers[given->key.count++] = mark;
    return true;
}

/* (arrays, op): pack them into an array that is held, as they are: the program may change its list while others are waited for. */
bool given_take_all_reduce_coalesced(const Members *members, PyObject *const *args, Given *given)
{
    npy_intp count, mark;
    Op op;
    if (!PyList_CheckExact(args[0]) || PyList_GET_SIZE(args[0]) < 2 || PyList_GET_SIZE(args[0]) > MOST_TOGETHER || !given_op_of(members, args[1], &op))
        return false;
    PyObject *arrays = PyList_AsTuple(args[0]);
    if (arrays == NULL)
        return false;
    given->held[given->holds++] = arrays;
    if (PyTuple_GET_SIZE(arrays) < 2 || !given_measure(arrays, &count, &mark))
        return false;
    PyArray_Descr *dtype = PyArray_DESCR((PyArrayObject *)PyTuple_GET_ITEM(arrays, 0));
    Py_INCREF(dtype);
    PyArrayObject *flat = (PyArrayObject *)PyArray_Empty(1, &count, dtype, 0);
    if (flat == NULL)
        return false;
    given->held[given->holds++] = (PyObject *)flat;
    given_copy_all(flat, arrays, false);
    return given_begin_together(given, op, flat, -PyTuple_GET_SIZE(arrays), mark);
}

/* (array, op, many, mark): one that several were packed into before. */
static bool given_take_together(const Members *members, PyObject *const *args, Given *given)
{
    PyArrayObject *flat = arguments_plain(args[0], true);
    Op op;
    if (flat == NULL || PyArray_NDIM(flat) != 1 || !given_op_of(members, args[1], &op) || !PyLong_CheckExact(args[2]) || !PyLong_CheckExact(args[3]))
        return false;
    npy_intp many = PyLong_AsSsize_t(args[2]), mark = PyLong_AsSsize_t(args[3]);
    bool fits = !PyErr_Occurred();
    PyErr_Clear();
    return fits && given_begin_together(given, op, flat, many, mark);
}

void given_unpack(const Given *given)
{
    given_copy_all(given->array, given->held[0], true);
}

static bool given_root_of(const Members *members, PyObject *object, int *root)
{
    int overflow;
    long found = PyLong_CheckExact(object) ? PyLong_AsLongAndOverflow(object, &overflow) : -1;
    *root = (int)found;
    return found >= 0 && found < members->size;
}

bool given_take_broadcast(const Members *members, PyObject *const *args, Given *given)
{
    PyArrayObject *array = arguments_plain(args[0], true);
    int root;
    if (array == NULL || !given_root_of(members, args[1], &root) || !given_begin(given, BROADCAST, root, array) || !given_take_shape(given))
        return false;
    given->root = root;
    given->route.slots = 1;
    if (members->rank == root)
        given_send_to(given, TO_ALL, given->whole);
    else
        given_take_from(given, root, given->whole);
    return true;
}

bool given_take_reduce(const Members *members, PyObject *const *args, Given *given)
{
    PyArrayObject *array = given_reducible(args[0]);
    int root;
    if (array == NULL || members->size > MOST_PARTS || !given_op_of(members, args[1], &given->op) ||
        !given_root_of(members, args[2], &root) || !given_begin(given, REDUCE, given->op, array))
        return false;
    given->root = root;
    given->key.numbers[given->key.count++] = root;
    if (members->rank != root)
        given_send_to(given, root, given->whole);
    for (int k = 1; k < members->size && members->rank == root; k++)
        given_take_from(given, (root + k) % members->size, given->whole);
    return given_take_shape(given);
}

bool given_take_barrier(const Members *Py_UNUSED(members), PyObject *const *Py_UNUSED(args), Given *given)
{
    return given_begin(given, BARRIER, 0, NULL);
}

static bool given_gather_parts(const Members *members, Given *given, const Part parts[MOST_PARTS])
{
    int rank = members->rank, size = members->size;
    Part own = given->whole;
    bool in_place = own.bytes == parts[rank].bytes;
    if (own.count != parts[rank].count || !given_apart(members, given->route.item, parts, &own, in_place ? 0 : 1))
        return false;
    given->route.slots = 1;
    given_send_to(given, TO_ALL, own);
    for (int k = 1; k < size; k++)
        given_take_from(given, (rank + k) % size, parts[(rank + k) % size]);
    given->keep_to = parts[rank];
    given->keep_from = own;
    return true;
}

bool given_take_all_gather(const Members *members, PyObject *const *args, Given *given)
{
    Part parts[MOST_PARTS];
    PyArrayObject *array = arguments_plain(args[1], false);
    return array != NULL && given_begin(given, ALL_GATHER, 0, array) && given_take_list(given, members, args[0], true, parts) &&
           given_gather_parts(members, given, parts);
}

bool given_take_all_gather_single(const Members *members, PyObject *const *args, Given *given)
{
    Part parts[MOST_PARTS];
    PyArrayObject *array = arguments_plain(args[1], false), *out = arguments_plain(args[0], true);
    return array != NULL && out != NULL && given_begin(given, ALL_GATHER, 0, array) &&
           given_take_cut(given, members, out, PyArray_SIZE(array), parts) && given_gather_parts(members, given, parts);
}

/* Whether an array that is written touches no part but that of this rank, which it may be. */
static bool given_spares(const Members *members, size_t item, const Part *parts, Part written)
{
    for (int i = 0; i < members->size; i++)
        if (collectives_touch(parts[i], written, item) && !(i == members->rank && parts[i].bytes == written.bytes))
            return false;
    return true;
}

static bool given_scatter_parts(const Members *members, Given *given, const Part parts[MOST_PARTS])
{
    int rank = members->rank, size = members->size;
    Part target = given->whole;
    if (target.count != parts[rank].count || !given_spares(members, given->route.item, parts, target))
        return false;
    given->route.slots = size;
    for (int k = 1; k < size; k++) {
        int peer = (rank + k) % size;
        given_send_to(given, peer, parts[peer]);
        given_take_from(given, peer, target);
    }
    given->keep_from = parts[rank];
    return true;
}

bool given_take_reduce_scatter(const Members *members, PyObject *const *args, Given *given)
{
    Part parts[MOST_PARTS];
    PyArrayObject *out = arguments_plain(args[0], true);
    return out != NULL && given_op_of(members, args[2], &given->op) && given_begin(given, REDUCE_SCATTER, given->op, out) &&
           given_take_list(given, members, args[1], false, parts) && given_scatter_parts(members, given, parts);
}

bool given_take_reduce_scatter_single(const Members *members, PyObject *const *args, Given *given)
{
    Part parts[MOST_PARTS];
    PyArrayObject *out = arguments_plain(args[0], true), *whole = arguments_plain(args[1], false);
    return out != NULL && whole != NULL && given_op_of(members, args[2], &given->op) &&
           given_begin(given, REDUCE_SCATTER, given->op, out) && given_take_cut(given, members, whole, PyArray_SIZE(out), parts) &&
           given_scatter_parts(members, given, parts);
}

static bool given_trade_parts(const Members *members, Given *given, const Part outs[MOST_PARTS], const Part ins[MOST_PARTS])
{
    int rank = members->rank, size = members->size;
    if (ins[rank].count != outs[rank].count || !given_apart(members, given->route.item, outs, ins, size))
        return false;
    given->route.slots = size;
    for (int k = 1; k < size; k++) {
        int peer = (rank + k) % size;
        given_send_to(given, peer, ins[peer]);
        given_take_from(given, peer, outs[peer]);
    }
    given->keep_to = outs[rank];
    given->keep_from = ins[rank];
    return true;
}

bool given_take_all_to_all(const Members *members, PyObject *const *args, Given *given)
{
    Part outs[MOST_PARTS], ins[MOST_PARTS];
    int rank = members->rank;
    if (!PyList_CheckExact(args[1]) || PyList_GET_SIZE(args[1]) <= rank)
        return false;
    PyArrayObject *mine = arguments_plain(PyList_GET_ITEM(args[1], rank), false);
    return mine != NULL && given_begin(given, ALL_TO_ALL, 0, mine) && given_take_list(given, members, args[1], false, ins) &&
           given_take_list(given, members, args[0], true, outs) && given_trade_parts(members, given, outs, ins);
}

bool given_take_all_to_all_single(const Members *members, PyObject *const *args, Given *given)
{
    Part outs[MOST_PARTS], ins[MOST_PARTS];
    int size = members->size;
    PyArrayObject *out = arguments_plain(args[0], true), *in = arguments_plain(args[1], false);
    if (out == NULL || in == NULL || PyArray_NDIM(in) == 0 || PyArray_NDIM(out) == 0 || PyArray_DIM(in, 0) % size != 0 ||
        PyArray_DIM(out, 0) % size != 0 || !given_begin(given, ALL_TO_ALL, 0, in) ||
        !given_take_cut(given, members, in, PyArray_SIZE(in) / size, ins) ||
        !given_take_cut(given, members, out, PyArray_SIZE(out) / size, outs))
        return false;
    given->whole = ins[members->rank]; /* which is the array of such a call */
    return given_trade_parts(members, given, outs, ins);
}

/* Take an array, at the root a list of one for each rank, and who that is. */
static bool given_take_rooted(const Members *members, PyObject *const *args, Given *given, Name name, Part parts[MOST_PARTS])
{
    bool gathers = name == GATHER;
    PyArrayObject *array = arguments_plain(args[0], !gathers);
    int root;
    if (array == NULL || !given_root_of(members, args[2], &root) || !given_begin(given, name, root, array))
        return false;
    given->root = root;
    given->route.slots = gathers ? 1 : members->size; /* to a root alone */
    if (members->rank != root)
        return args[1] == Py_None && given_take_shape(given);
    given->key.numbers[given->key.count++] = PyArray_SIZE(array);
    return given_take_list(given, members, args[1], gathers, parts) && PyArray_SIZE(array) == (npy_intp)parts[root].count;
}

bool given_take_gather(const Members *members, PyObject *const *args, Given *given)
{
    Part parts[MOST_PARTS];
    if (!given_take_rooted(members, args, given, GATHER, parts))
        return false;
    Part own = given->whole;
    int root = given->root, size = members->size;
    if (members->rank != root) {
        given_send_to(given, root, own);
        return true;
    }
    bool in_place = own.bytes == parts[root].bytes;
    for (int k = 1; k < size; k++)
        given_take_from(given, (root + k) % size, parts[(root + k) % size]);
    given->keep_to = parts[root];
    given->keep_from = own;
    return given_apart(members, given->route.item, parts, &own, in_place ? 0 : 1);
}

bool given_take_scatter(const Members *members, PyObject *const *args, Given *given)
{
    Part parts[MOST_PARTS];
    if (!given_take_rooted(members, args, given, SCATTER, parts))
        return false;
    Part own = given->whole;
    int root = given->root, size = members->size;
    if (members->rank != root) {
        given_take_from(given, root, own);
        return true;
    }
    for (int k = 1; k < size; k++)
        given_send_to(given, (root + k) % size, parts[(root + k) % size]);
    given->keep_to = own;
    given->keep_from = parts[root];
    return given_spares(members, given->route.item, parts, own);
}

/* ------------------------------------------------------------------ calls that are described in steps */

/* Whether none of the arrays of a call touches another: else it matters in which order steps read and write. */
static bool given_is_apart(const Given *given)
{
    for (int i = 0; i < given->many; i++)
        for (int j = 0; j <= i; j++)
            if (collectives_touch(given->parts[i], j == i ? given->whole : given->parts[j], given->route.item))
                return false;
    return true;
}

/* (name, array, reduce op or None, root or -1, arrays that go or None, arrays that come or None) */
bool given_take_described(const Members *members, PyObject *const *args, Given *given)
{
    PyArrayObject *array = given_reducible(args[1]);
    int name = given_number_of(args[0]);
    Op op = OPS;
    long root = PyLong_CheckExact(args[3]) ? PyLong_AsLong(args[3]) : -2;
    PyErr_Clear();
    if (array == NULL || name < 0 || root < -1 || root >= members->size || (args[2] != Py_None && !given_op_of(members, args[2], &op)) ||
        !given_begin(given, (Name)name, (int)op, array))
        return false;
    bool gives = args[4] != Py_None, takes = args[5] != Py_None;
    int lists = (int)gives + (int)takes;
    if (lists * members->size + 4 > MOST_NUMBERS)
        return false;
    given->op = op;
    npy_intp *numbers = given->key.numbers;
    numbers[given->key.count++] = root;
    numbers[given->key.count++] = gives ? members->size : 0;
    numbers[given->key.count++] = takes ? members->size : 0;
    if (lists == 0)
        return given_take_shape(given);
    numbers[given->key.count++] = PyArray_SIZE(array);
    Part parts[MOST_PARTS];
    return (!gives || given_take_list(given, members, args[4], false, parts)) && (!takes || given_take_list(given, members, args[5], true, parts)) &&
           given_is_apart(given);
}

/* ------------------------------------------------------------------ all of them by name */

#define GIVEN_TAKER(name, count) {#name, count, given_take_##name},

const Taker *given_taker(const char *name)
{
    static const Taker takers[] = {GIVEN_CALLS(GIVEN_TAKER){"together", 4, given_take_together}};
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
        if (strcmp(takers[i].name, name) == 0)
            return &takers[i];
    return NULL;
}
