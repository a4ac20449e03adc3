/* The shortcuts of rankwise.backends.fast_calls: each does the whole of a plain call, or says that it did nothing. */
#include "arguments.h"
#include "collectives.h"
#include "hooks.h"
#include "recorder.h"
#include "swaps.h"
#include "turn.h"
#include <string.h>

/* The public calls. */
typedef enum { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BARRIER, NAMES } Name;
enum { MOST_NUMBERS = 2 * MOST_PARTS };
/* How many places for plans there are at first and at the most; no more than half of them are taken. */
enum { FEWEST_PLACES = 8, MOST_PLACES = 512 };

/* What distinguishes one prepared call from another; zero where nothing is said. */
typedef struct {
    int name, option, type, count;
    npy_intp numbers[MOST_NUMBERS];
} Key;

/* How one kind of call is done. */
typedef struct {
    Way way;
    size_t fetch_count;
    uint64_t about[RECORD_WORDS];
    PyObject *kind; /* of Python; NULL where there is none */
} Doing;

typedef struct {
    Key key;
    Doing doing;
} Plan;

typedef struct {
    PyObject_HEAD
    Board *board; /* or */
    Wire *wire;   /* by which these calls go; the other is NULL */
    int rank, size;
    Trail *trail;
    Turn *turn;
    const int64_t *waited_ns; /* for how long others were waited for in all */
    PyObject *sequence, *collected; /* of the group that is served, as the trail is; NULL before */
    PyObject *ops;                  /* in the order of `Op`; None where Python has none of that name */
    PyObject *tell, *wait, *learn, *failed, *broken; /* CallHooks of rankwise_gloo_tcp: what is left to Python */
    int plans, places;
    Plan *table; /* grows with use; NULL while nothing is known */
} Calls;

/* What one call works on. */
typedef struct {
    Key key;
    Kind kind;
    Op op;
    PyArrayObject *array; /* this rank's contribution; NULL for a barrier */
    PyObject *held[MOST_NUMBERS];
    int holds;
    void *out;
    Route route;
    Part keep_to, keep_from; /* what this rank has for itself */
} Given;

static PyObject *names[NAMES];
/* What Python calls the ops that are known here; all others are left to it. */
static const char *const op_names[OPS] = {[SUM] = "SUM", [AVG] = "AVG",   [PRODUCT] = "PRODUCT", [MIN] = "MIN",
                                          [MAX] = "MAX", [BAND] = "BAND", [BOR] = "BOR",         [BXOR] = "BXOR"};

/* ------------------------------------------------------------------ arguments */

static bool calls_begin_given(Given *given, Name name, int option, PyArrayObject *array)
{
    memset(&given->key, 0, sizeof given->key);
    given->array = array;
    given->holds = 0;
    given->keep_to.count = 0;
    given->route.sends = given->route.takes = 0;
    given->route.item = 0;
    given->key.name = (int)name;
    given->key.option = option;
    if (array == NULL)
        return true;
    int kind = arguments_kind(array);
    given->kind = (Kind)kind;
    given->key.type = PyArray_TYPE(array);
    given->route.item = (size_t)PyArray_ITEMSIZE(array);
    return kind >= 0;
}

static bool calls_take_shape(Given *given)
{
    given->key.count = PyArray_NDIM(given->array);
    if (given->key.count > MOST_NUMBERS)
        return false;
    for (int i = 0; i < given->key.count; i++)
        given->key.numbers[i] = PyArray_DIM(given->array, i);
    return true;
}

static Part calls_part_of(PyArrayObject *array)
{
    return (Part){(unsigned char *)PyArray_DATA(array), (size_t)PyArray_SIZE(array)};
}

/* Take a list of one array for each rank, and their sizes into the key; it is held for as long as the call takes. */
static bool calls_take_list(Given *given, const Calls *calls, PyObject *list, bool written, Part parts[MOST_PARTS])
{
    bool is_list = PyList_CheckExact(list);
    if ((!is_list && !PyTuple_CheckExact(list)) || Py_SIZE(list) != calls->size || calls->size > MOST_PARTS)
        return false;
    for (int i = 0; i < calls->size; i++) {
        PyObject *item = is_list ? PyList_GET_ITEM(list, i) : PyTuple_GET_ITEM(list, i);
        PyArrayObject *array = arguments_plain(item, written);
        if (array == NULL || PyArray_TYPE(array) != given->key.type)
            return false;
        Py_INCREF(item);
        given->held[given->holds++] = item;
        parts[i] = calls_part_of(array);
        given->key.numbers[given->key.count++] = PyArray_SIZE(array);
    }
    return true;
}

/* Cut an array into one part for each rank, which is `one` elements long. */
static bool calls_take_cut(Given *given, const Calls *calls, PyArrayObject *whole, npy_intp one, Part parts[MOST_PARTS])
{
    int size = calls->size;
    if (size > MOST_PARTS || PyArray_TYPE(whole) != given->key.type || PyArray_SIZE(whole) != one * size)
        return false;
    for (int i = 0; i < size; i++) {
        parts[i].bytes = (unsigned char *)PyArray_DATA(whole) + (size_t)(one * i) * given->route.item;
        parts[i].count = (size_t)one;
        given->key.numbers[given->key.count++] = one;
    }
    return true;
}

static bool calls_touch(Part a, Part b, size_t item)
{
    return a.count > 0 && b.count > 0 && a.bytes < b.bytes + b.count * item && b.bytes < a.bytes + a.count * item;
}

/* Whether no part that is written touches any other, or what is read but for a part with itself. */
static bool calls_apart(const Calls *calls, size_t item, const Part *written, const Part *read, int reads)
{
    for (int i = 0; i < calls->size; i++) {
        for (int j = 0; j < i; j++)
            if (calls_touch(written[i], written[j], item))
                return false;
        for (int j = 0; j < reads; j++)
            if (calls_touch(written[i], read[j], item))
                return false;
    }
    return true;
}

static void calls_send_to(Given *given, int slot, Part part)
{
    Route *route = &given->route;
    route->send[route->sends].slot = slot;
    route->send[route->sends++].part = part;
}

static void calls_take_from(Given *given, int peer, int slot, Part part)
{
    Route *route = &given->route;
    route->take[route->takes].peer = peer;
    route->take[route->takes].slot = slot;
    route->take[route->takes++].part = part;
}

static void calls_drop(Given *given)
{
    while (given->holds > 0)
        Py_DECREF(given->held[--given->holds]);
}

/* ------------------------------------------------------------------ the turn */

/* Take the group's turn if the call is plain and nobody is before it. */
static bool calls_enter(Calls *calls)
{
    return PyDict_GET_SIZE(calls->collected) == 0 && turn_take(calls->turn, (PyObject *)calls);
}

static bool calls_leave(Calls *calls)
{
    PyObject *told = turn_give_back(calls->turn) ? PyObject_CallNoArgs(calls->tell) : Py_NewRef(Py_None);
    Py_XDECREF(told);
    return told != NULL;
}

/* ------------------------------------------------------------------ plans */

static unsigned calls_hash_of(const Key *key)
{
    uint64_t mixed = (uint64_t)key->name * 31 + (uint64_t)key->option;
    mixed = mixed * 1000003 + (uint64_t)key->type;
    for (int i = 0; i < key->count; i++)
        mixed = (mixed ^ (uint64_t)key->numbers[i]) * 0x9E3779B97F4A7C15u;
    return (unsigned)(mixed >> 32);
}

/* The place of a plan, which is empty if it is not known; there are places. */
static Plan *calls_plan_place(const Calls *calls, const Key *key)
{
    Plan *plan = &calls->table[calls_hash_of(key) % (unsigned)calls->places];
    while (plan->doing.kind != NULL) {
        if (plan->key.name == key->name && plan->key.option == key->option && plan->key.type == key->type &&
            plan->key.count == key->count &&
            memcmp(plan->key.numbers, key->numbers, (size_t)key->count * sizeof *key->numbers) == 0)
            return plan;
        plan = plan == &calls->table[calls->places - 1] ? calls->table : plan + 1;
    }
    return plan;
}

static Plan *calls_plan_known(const Calls *calls, const Key *key)
{
    Plan *plan = calls->places == 0 ? NULL : calls_plan_place(calls, key);
    return plan == NULL || plan->doing.kind == NULL ? NULL : plan;
}

static void calls_forget_plans(Calls *calls)
{
    Plan *table = calls->table;
    int places = calls->places;
    calls->table = NULL;
    calls->plans = calls->places = 0;
    for (int i = 0; i < places; i++)
        Py_XDECREF(table[i].doing.kind);
    PyMem_Free(table);
}

/* Have room for one plan more; a program that makes ever new calls begins anew. */
static bool calls_make_room(Calls *calls)
{
    if (2 * calls->plans < calls->places)
        return true;
    if (calls->places == MOST_PLACES)
        calls_forget_plans(calls);
    int places = calls->places, more = places == 0 ? FEWEST_PLACES : 2 * places;
    Plan *old = calls->table, *table = PyMem_Calloc((size_t)more, sizeof *table);
    if (table == NULL)
        return false;
    calls->table = table;
    calls->places = more;
    for (int i = 0; i < places; i++)
        if (old[i].doing.kind != NULL)
            *calls_plan_place(calls, &old[i].key) = old[i];
    PyMem_Free(old);
    return true;
}

/* Whether the board has room for what a plan says; Python has looked too, but this is what memory depends on. */
static bool calls_has_room(const Calls *calls, const Given *given, Way way, int slots)
{
    const Board *board = calls->board;
    if ((way >= SWAP) != (calls->wire != NULL))
        return false;
    if (way >= SWAP)
        return true; /* each call looks by itself */
    if (way == MEET)
        return true;
    if (way == MOVE || way == COMBINE)
        return board_slot_nbytes(board, slots) >= given->route.item && (way == MOVE || kernels_merge_of(given->op, given->kind));
    Kind wide = kernels_accumulation_kind(given->op, given->kind);
    size_t item = kernels_kind_nbytes(wide), count = (size_t)PyArray_SIZE(given->array);
    if (board->size < 2 || kernels_merge_of(given->op, wide) == NULL)
        return false;
    return way == ONE_SHOT ? count <= board->area_nbytes / item : board_slot_nbytes(board, board->size) >= item;
}

/* Take what a kind of call says of itself: `way`, `about` and `fetch_count`. */
static bool calls_read_plan(const Calls *calls, const Given *given, PyObject *kind, Doing *doing)
{
    PyObject *way = PyObject_GetAttrString(kind, "way"), *about = PyObject_GetAttrString(kind, "about");
    PyObject *fetch_count = PyObject_GetAttrString(kind, "fetch_count");
    if (way != NULL && about != NULL && fetch_count != NULL) {
        long number = PyLong_AsLong(way);
        bool known = number > NEVER && number < WAYS && calls_has_room(calls, given, (Way)number, given->route.slots);
        doing->way = known ? (Way)number : NEVER;
        doing->fetch_count = PyLong_AsSize_t(fetch_count);
        if (!PyTuple_CheckExact(about) || PyTuple_GET_SIZE(about) != RECORD_WORDS - 1)
            PyErr_SetString(PyExc_TypeError, "a kind of call has another record");
        for (int i = 1; i < RECORD_WORDS && !PyErr_Occurred(); i++)
            doing->about[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(about, i - 1));
    }
    Py_XDECREF(way);
    Py_XDECREF(about);
    Py_XDECREF(fetch_count);
    return !PyErr_Occurred();
}

/* Ask Python for the plan of a call that the general way has prepared. */
static Plan *calls_learn(Calls *calls, const Given *given)
{
    Plan *plan = NULL;
    PyObject *numbers = PyTuple_New(given->key.count);
    for (int i = 0; numbers != NULL && i < given->key.count; i++)
        PyTuple_SET_ITEM(numbers, i, PyLong_FromSsize_t(given->key.numbers[i]));
    PyObject *array = given->array == NULL ? Py_None : (PyObject *)given->array;
    bool reduces = given->key.name == ALL_REDUCE || given->key.name == REDUCE_SCATTER;
    PyObject *option = reduces ? Py_NewRef(PyTuple_GET_ITEM(calls->ops, given->op)) : PyLong_FromLong(given->key.option);
    PyObject *kind = PyObject_CallFunction(calls->learn, "OONN", names[given->key.name], array, option, numbers);
    Doing learnt = {.kind = kind};
    if (kind != NULL && kind != Py_None && calls_read_plan(calls, given, kind, &learnt)) {
        if (calls_make_room(calls)) {
            plan = calls_plan_place(calls, &given->key);
            calls->plans += plan->doing.kind == NULL;
            Py_XDECREF(plan->doing.kind);
            *plan = (Plan){.key = given->key, .doing = learnt};
            Py_INCREF(kind);
        } else {
            PyErr_NoMemory();
        }
    }
    Py_XDECREF(kind);
    return plan;
}

/* ------------------------------------------------------------------ carrying out */

static Ending calls_go(Call *call, const Doing *doing, Given *given)
{
    given->route.fetch_count = doing->way == MOVE ? doing->fetch_count : SIZE_MAX;
    given->route.told = given->key.name == ALL_TO_ALL; /* the others may send more than this rank knows */
    given->route.longest = doing->about[LONGEST];
    void *array = given->array == NULL ? NULL : PyArray_DATA(given->array);
    size_t count = given->array == NULL ? 0 : (size_t)PyArray_SIZE(given->array);
    switch (doing->way) {
    case MEET: return collectives_meet(call);
    case ONE_SHOT: return collectives_one_shot(call, array, count, given->op, given->kind);
    case TWO_SHOT: return collectives_two_shot(call, array, count, given->op, given->kind);
    case MOVE: return collectives_move(call, &given->route, given->keep_to, given->keep_from);
    default: return collectives_combine(call, &given->route, given->keep_from.bytes, given->out, given->op, given->kind);
    }
}

/* Let a hook raise what all ranks raise. */
static void calls_explain(PyObject *hook, PyObject *kind, uint64_t sequence, Ending ending)
{
    PyObject *error = ending == BROKEN ? arguments_raised() : NULL;
    PyObject *told = PyObject_CallFunction(hook, "OKOO", kind, (unsigned long long)sequence,
                                           error == NULL ? Py_None : error, ending == UNREADABLE ? Py_True : Py_False);
    if (told != NULL)
        PyErr_SetString(PyExc_SystemError, "a call that has failed was not explained");
    Py_XDECREF(told);
    Py_XDECREF(error);
}

static bool calls_number(Calls *calls, uint64_t *sequence)
{
    PyObject *next = Py_TYPE(calls->sequence)->tp_iternext(calls->sequence);
    *sequence = next == NULL ? 0 : PyLong_AsUnsignedLongLong(next);
    Py_XDECREF(next);
    return !PyErr_Occurred();
}

static Ending calls_swap(Swap *swap, const Doing *doing, Given *given)
{
    void *array = given->array == NULL ? NULL : PyArray_DATA(given->array);
    size_t count = given->array == NULL ? 0 : (size_t)PyArray_SIZE(given->array);
    switch (doing->way) {
    case SWAP: return swaps_compare(swap);
    case SWAP_REDUCE: return swaps_reduce(swap, array, count, given->op, given->kind);
    case SWAP_MOVE: return swaps_move(swap, &given->route, given->keep_to, given->keep_from);
    default: return swaps_combine(swap, &given->route, given->keep_from.bytes, given->out, given->op, given->kind);
    }
}

/* Whether what was given may go over the wire, whose rooms are limited. */
static bool calls_fits(const Calls *calls, const Doing *doing, const Given *given)
{
    if (calls->wire == NULL)
        return true;
    size_t nbytes = doing->way == SWAP_REDUCE ? (size_t)PyArray_NBYTES(given->array) : 0;
    bool reduces = doing->way == SWAP_REDUCE || doing->way == SWAP_COMBINE;
    if (reduces && kernels_merge_of(given->op, kernels_accumulation_kind(given->op, given->kind)) == NULL)
        return false;
    return calls->size <= MOST_PARCELS && swaps_fit(calls->wire, &given->route, calls->rank, calls->size, nbytes);
}

/* Do what was given, as the call of a number, until a deadline; it may also be a time-out, or None for the group's. */
static bool calls_carry_out(Calls *calls, const Doing *doing, Given *given, uint64_t sequence, PyObject *deadline, PyObject *hook,
                            int64_t began_ns)
{
    uint64_t about[RECORD_WORDS];
    memcpy(about, doing->about, sizeof about);
    about[SEQUENCE] = sequence;
    if (calls->wire != NULL) {
        Swap swap = {.wire = calls->wire, .rank = calls->rank, .size = calls->size, .about = about, .deadline = deadline};
        Ending ended = calls_swap(&swap, doing, given);
        if (ended != DONE)
            calls_explain(hook, doing->kind, sequence, ended);
        return ended == DONE;
    }
    if (!board_enter(calls->board))
        return false;
    Call call = {.board = calls->board, .about = about, .await = calls->wait, .holds = true, .looked_ns = began_ns,
                 .deadline = deadline == Py_None ? NULL : Py_NewRef(deadline)};
    Ending ending = calls_go(&call, doing, given);
    board_leave(calls->board);
    if (ending != DONE)
        calls_explain(hook, doing->kind, sequence, ending);
    Py_XDECREF(call.deadline);
    return ending == DONE;
}

/* Make a public call, whose turn it is. */
static bool calls_make(Calls *calls, const Doing *doing, Given *given, PyObject *timeout)
{
    PyArrayObject *array = given->array;
    PyObject *dtype = array == NULL ? NULL : (PyObject *)PyArray_DESCR(array);
    uint64_t sequence;
    int64_t began_ns = trail_begin(calls->trail, names[given->key.name], dtype, array == NULL ? 0 : PyArray_NBYTES(array), 1);
    int64_t waited_ns = *calls->waited_ns;
    if (!calls_number(calls, &sequence) || !calls_carry_out(calls, doing, given, sequence, timeout, calls->broken, began_ns))
        return false;
    trail_end(calls->trail, *calls->waited_ns - waited_ns);
    return true;
}

/* Find how to do what was given, if it can be done here. It is a copy, and its kind is owned by the caller, as others may
   forget all plans whenever Python's code runs. */
static bool calls_find(Calls *calls, const Given *given, Doing *doing)
{
    Plan *plan = calls_plan_known(calls, &given->key);
    if (plan == NULL)
        plan = calls_learn(calls, given);
    if (plan == NULL || plan->doing.way == NEVER || !calls_fits(calls, &plan->doing, given))
        return false;
    *doing = plan->doing;
    Py_INCREF(doing->kind);
    return true;
}

/* What a public call takes of its arguments; false if it is left to Python. What it holds is dropped in any case. */
typedef bool Take(const Calls *calls, PyObject *const *args, Given *given);

static bool calls_is_timeout(PyObject *timeout)
{
    return timeout == Py_None || (PyFloat_CheckExact(timeout) && PyFloat_AS_DOUBLE(timeout) >= 0);
}

/* Do the whole of a public call, whose last argument is its time-out. */
static PyObject *calls_whole_call(Calls *calls, PyObject *const *args, Py_ssize_t given_count, Py_ssize_t count, Take *take)
{
    Given given;
    given.holds = 0;
    bool done = false;
    if (given_count == count + 1 && calls->trail != NULL && calls_is_timeout(args[count]) && take(calls, args, &given) && calls_enter(calls)) {
        Doing doing;
        if (calls_find(calls, &given, &doing)) {
            done = calls_make(calls, &doing, &given, args[count]);
            Py_DECREF(doing.kind);
        }
        PyObject *error = PyErr_Occurred() ? arguments_raised() : NULL;
        if (!calls_leave(calls) && error == NULL)
            error = arguments_raised();
        if (error != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
            Py_DECREF(error);
        }
    }
    calls_drop(&given);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

static bool calls_op_of(const Calls *calls, PyObject *object, Op *op)
{
    for (int i = 0; i < OPS; i++)
        if (PyTuple_GET_ITEM(calls->ops, i) == object && object != Py_None) {
            *op = (Op)i;
            return true;
        }
    return false;
}

/* ------------------------------------------------------------------ the calls */

static bool calls_take_all_reduce(const Calls *calls, PyObject *const *args, Given *given)
{
    PyArrayObject *array = arguments_plain(args[0], true);
    return array != NULL && calls_op_of(calls, args[1], &given->op) && calls_begin_given(given, ALL_REDUCE, given->op, array) &&
           calls_take_shape(given);
}

static bool calls_take_broadcast(const Calls *calls, PyObject *const *args, Given *given)
{
    PyArrayObject *array = arguments_plain(args[0], true);
    int overflow;
    if (array == NULL || !PyLong_CheckExact(args[1]))
        return false;
    long root = PyLong_AsLongAndOverflow(args[1], &overflow);
    if (overflow || root < 0 || root >= calls->size || !calls_begin_given(given, BROADCAST, (int)root, array) || !calls_take_shape(given))
        return false;
    given->route.slots = 1;
    if (calls->rank == root)
        calls_send_to(given, 0, calls_part_of(array));
    else
        calls_take_from(given, (int)root, 0, calls_part_of(array));
    return true;
}

static bool calls_take_barrier(const Calls *Py_UNUSED(calls), PyObject *const *Py_UNUSED(args), Given *given)
{
    return calls_begin_given(given, BARRIER, 0, NULL);
}

static bool calls_gather_parts(const Calls *calls, Given *given, const Part parts[MOST_PARTS])
{
    int rank = calls->rank, size = calls->size;
    Part own = calls_part_of(given->array);
    bool in_place = own.bytes == parts[rank].bytes;
    if (own.count != parts[rank].count || !calls_apart(calls, given->route.item, parts, &own, in_place ? 0 : 1))
        return false;
    given->route.slots = 1;
    calls_send_to(given, 0, own);
    for (int k = 1; k < size; k++)
        calls_take_from(given, (rank + k) % size, 0, parts[(rank + k) % size]);
    given->keep_to = parts[rank];
    given->keep_from = own;
    return true;
}

static bool calls_take_all_gather(const Calls *calls, PyObject *const *args, Given *given)
{
    Part parts[MOST_PARTS];
    PyArrayObject *array = arguments_plain(args[1], false);
    return array != NULL && calls_begin_given(given, ALL_GATHER, 0, array) && calls_take_list(given, calls, args[0], true, parts) &&
           calls_gather_parts(calls, given, parts);
}

static bool calls_take_all_gather_single(const Calls *calls, PyObject *const *args, Given *given)
{
    Part parts[MOST_PARTS];
    PyArrayObject *array = arguments_plain(args[1], false), *out = arguments_plain(args[0], true);
    return array != NULL && out != NULL && calls_begin_given(given, ALL_GATHER, 0, array) &&
           calls_take_cut(given, calls, out, PyArray_SIZE(array), parts) && calls_gather_parts(calls, given, parts);
}

static bool calls_scatter_parts(const Calls *calls, Given *given, PyArrayObject *out, const Part parts[MOST_PARTS])
{
    int rank = calls->rank, size = calls->size;
    Part target = calls_part_of(out);
    for (int i = 0; i < size; i++)
        if (calls_touch(parts[i], target, given->route.item) && !(i == rank && parts[i].bytes == target.bytes))
            return false;
    if (target.count != parts[rank].count)
        return false;
    given->route.slots = size;
    for (int k = 1; k < size; k++) {
        int peer = (rank + k) % size;
        calls_send_to(given, peer, parts[peer]);
        calls_take_from(given, peer, rank, target);
    }
    given->keep_from = parts[rank];
    given->out = target.bytes;
    return true;
}

static bool calls_take_reduce_scatter(const Calls *calls, PyObject *const *args, Given *given)
{
    Part parts[MOST_PARTS];
    PyArrayObject *out = arguments_plain(args[0], true);
    return out != NULL && calls_op_of(calls, args[2], &given->op) && calls_begin_given(given, REDUCE_SCATTER, given->op, out) &&
           calls_take_list(given, calls, args[1], false, parts) && calls_scatter_parts(calls, given, out, parts);
}

static bool calls_take_reduce_scatter_single(const Calls *calls, PyObject *const *args, Given *given)
{
    Part parts[MOST_PARTS];
    PyArrayObject *out = arguments_plain(args[0], true), *whole = arguments_plain(args[1], false);
    return out != NULL && whole != NULL && calls_op_of(calls, args[2], &given->op) &&
           calls_begin_given(given, REDUCE_SCATTER, given->op, out) && calls_take_cut(given, calls, whole, PyArray_SIZE(out), parts) &&
           calls_scatter_parts(calls, given, out, parts);
}

static bool calls_exchange_parts(const Calls *calls, Given *given, const Part outs[MOST_PARTS], const Part ins[MOST_PARTS])
{
    int rank = calls->rank, size = calls->size;
    if (ins[rank].count != outs[rank].count || !calls_apart(calls, given->route.item, outs, ins, size))
        return false;
    given->route.slots = size;
    for (int k = 1; k < size; k++) {
        int peer = (rank + k) % size;
        calls_send_to(given, peer, ins[peer]);
        calls_take_from(given, peer, rank, outs[peer]);
    }
    given->keep_to = outs[rank];
    given->keep_from = ins[rank];
    return true;
}

static bool calls_take_all_to_all(const Calls *calls, PyObject *const *args, Given *given)
{
    Part outs[MOST_PARTS], ins[MOST_PARTS];
    int rank = calls->rank;
    if (!PyList_CheckExact(args[1]) || PyList_GET_SIZE(args[1]) <= rank)
        return false;
    PyArrayObject *mine = arguments_plain(PyList_GET_ITEM(args[1], rank), false);
    return mine != NULL && calls_begin_given(given, ALL_TO_ALL, 0, mine) && calls_take_list(given, calls, args[1], false, ins) &&
           calls_take_list(given, calls, args[0], true, outs) && calls_exchange_parts(calls, given, outs, ins);
}

static bool calls_take_all_to_all_single(const Calls *calls, PyObject *const *args, Given *given)
{
    Part outs[MOST_PARTS], ins[MOST_PARTS];
    int size = calls->size;
    PyArrayObject *out = arguments_plain(args[0], true), *in = arguments_plain(args[1], false);
    return out != NULL && in != NULL && PyArray_NDIM(in) != 0 && PyArray_NDIM(out) != 0 && PyArray_DIM(in, 0) % size == 0 &&
           PyArray_DIM(out, 0) % size == 0 && calls_begin_given(given, ALL_TO_ALL, 0, in) &&
           calls_take_cut(given, calls, in, PyArray_SIZE(in) / size, ins) && calls_take_cut(given, calls, out, PyArray_SIZE(out) / size, outs) &&
           calls_exchange_parts(calls, given, outs, ins);
}

/* The public calls by name, and how many arguments they have before the time-out. */
static const struct {
    const char *name;
    Py_ssize_t count;
    Take *take;
} takes[] = {
    {"all_reduce", 2, calls_take_all_reduce},
    {"broadcast", 2, calls_take_broadcast},
    {"all_gather", 2, calls_take_all_gather},
    {"all_gather_single", 2, calls_take_all_gather_single},
    {"reduce_scatter", 3, calls_take_reduce_scatter},
    {"reduce_scatter_single", 3, calls_take_reduce_scatter_single},
    {"all_to_all", 2, calls_take_all_to_all},
    {"all_to_all_single", 2, calls_take_all_to_all_single},
    {"barrier", 0, calls_take_barrier},
};

#define WHOLE(name, count)                                                                          \
    static PyObject *calls_##name(Calls *calls, PyObject *const *args, Py_ssize_t given)            \
    {                                                                                               \
        return calls_whole_call(calls, args, given, count, calls_take_##name);                                  \
    }
WHOLE(all_reduce, 2)
WHOLE(broadcast, 2)
WHOLE(all_gather, 2)
WHOLE(all_gather_single, 2)
WHOLE(reduce_scatter, 3)
WHOLE(reduce_scatter_single, 3)
WHOLE(all_to_all, 2)
WHOLE(all_to_all_single, 2)
WHOLE(barrier, 0)

/* Do what a call of this name has to do but for its turn and the recorder; false if it is left to Python. */
static PyObject *calls_run(Calls *calls, PyObject *args)
{
    const char *name;
    PyObject *given_args, *deadline;
    unsigned long long sequence;
    if (!PyArg_ParseTuple(args, "sO!KO", &name, &PyTuple_Type, &given_args, &sequence, &deadline))
        return NULL;
    Given given;
    given.holds = 0;
    bool done = false;
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++)
        if (strcmp(takes[i].name, name) == 0 && PyTuple_GET_SIZE(given_args) == takes[i].count &&
            takes[i].take(calls, ((PyTupleObject *)given_args)->ob_item, &given)) {
            Doing doing;
            if (calls_find(calls, &given, &doing)) {
                done = calls_carry_out(calls, &doing, &given, sequence, deadline, calls->failed, native_monotonic_ns());
                Py_DECREF(doing.kind);
            }
            break;
        }
    calls_drop(&given);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

/* Serve the public calls of a group from now on. */
static PyObject *calls_serve(Calls *calls, PyObject *args)
{
    PyObject *trail, *collected, *sequence;
    if (!PyArg_ParseTuple(args, "O!O!O", &TrailType, &trail, &PyDict_Type, &collected, &sequence))
        return NULL;
    if (!PyIter_Check(sequence)) {
        PyErr_SetString(PyExc_TypeError, "there is no sequence");
        return NULL;
    }
    Py_XSETREF(calls->collected, Py_NewRef(collected));
    Py_XSETREF(calls->sequence, Py_NewRef(sequence));
    Py_XSETREF(calls->trail, (Trail *)Py_NewRef(trail));
    Py_RETURN_NONE;
}

static PyObject *calls_forget(Calls *calls, PyObject *Py_UNUSED(unused))
{
    calls_forget_plans(calls);
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ the type */

/* The reduce ops in the order of `Op`; None where Python has none of that name. */
static PyObject *calls_ops_of(PyObject *given)
{
    PyObject *ops = PyTuple_New(OPS);
    for (int i = 0; ops != NULL && i < OPS; i++) {
        PyObject *op = PyDict_GetItemString(given, op_names[i]);
        PyTuple_SET_ITEM(ops, i, Py_NewRef(op == NULL ? Py_None : op));
    }
    return ops;
}

/* Where each object is that is held. */
static const size_t held[] = {offsetof(Calls, board),     offsetof(Calls, wire), offsetof(Calls, trail), offsetof(Calls, turn), offsetof(Calls, sequence),
                              offsetof(Calls, collected), offsetof(Calls, ops),   offsetof(Calls, tell), offsetof(Calls, wait),
                              offsetof(Calls, learn),     offsetof(Calls, failed), offsetof(Calls, broken)};
/* What is asked of `CallHooks`. */
static const Hook hooks[] = {{"tell", offsetof(Calls, tell)},
                             {"wait", offsetof(Calls, wait)},
                             {"learn", offsetof(Calls, learn)},
                             {"failed", offsetof(Calls, failed)},
                             {"broken", offsetof(Calls, broken)}};

static int calls_traverse(Calls *calls, visitproc visit, void *arg)
{
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_VISIT(*hooks_place(calls, held[i]));
    for (int i = 0; i < calls->places; i++)
        Py_VISIT(calls->table[i].doing.kind);
    return 0;
}

static int calls_clear(Calls *calls)
{
    calls_forget_plans(calls);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_CLEAR(*hooks_place(calls, held[i]));
    return 0;
}

static void calls_free(Calls *calls)
{
    PyObject_GC_UnTrack(calls);
    calls_clear(calls);
    Py_TYPE(calls)->tp_free((PyObject *)calls);
}

/* Calls(board or wire, turn, ops, hooks) */
static PyObject *calls_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *way, *turn, *ops, *asked;
    if (!PyArg_ParseTuple(args, "OO!O!O", &way, &TurnType, &turn, &PyDict_Type, &ops, &asked))
        return NULL;
    if (!PyObject_TypeCheck(way, &BoardType) && !PyObject_TypeCheck(way, &WireType)) {
        PyErr_SetString(PyExc_TypeError, "calls go by a board or by a wire");
        return NULL;
    }
    Calls *calls = (Calls *)type->tp_alloc(type, 0);
    if (calls == NULL)
        return NULL;
    if (PyObject_TypeCheck(way, &BoardType)) {
        calls->board = (Board *)Py_NewRef(way);
        calls->rank = calls->board->rank;
        calls->size = calls->board->size;
        calls->waited_ns = &calls->board->patience.waited_ns;
    } else {
        calls->wire = (Wire *)Py_NewRef(way);
        calls->rank = calls->wire->rank;
        calls->size = calls->wire->size;
        calls->waited_ns = &calls->wire->waited_ns;
    }
    calls->turn = (Turn *)Py_NewRef(turn);
    if ((calls->ops = calls_ops_of(ops)) == NULL || !hooks_take(calls, asked, hooks, sizeof hooks / sizeof *hooks))
        Py_CLEAR(calls);
    return (PyObject *)calls;
}

#define FAST(name) {#name, (PyCFunction)(void (*)(void))calls_##name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    FAST(all_reduce),
    FAST(broadcast),
    FAST(all_gather),
    FAST(all_gather_single),
    FAST(reduce_scatter),
    FAST(reduce_scatter_single),
    FAST(all_to_all),
    FAST(all_to_all_single),
    FAST(barrier),
    {"run", (PyCFunction)calls_run, METH_VARARGS, "Carry out a collective whose turn it is."},
    {"serve", (PyCFunction)calls_serve, METH_VARARGS, "Serve the public calls of a group."},
    {"forget", (PyCFunction)calls_forget, METH_NOARGS, "Forget all kinds of calls."},
    {0},
};

static PyTypeObject CallsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Calls",
    .tp_basicsize = sizeof(Calls),
    .tp_new = calls_new,
    .tp_dealloc = (destructor)calls_free,
    .tp_traverse = (traverseproc)calls_traverse,
    .tp_clear = (inquiry)calls_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_methods = methods,
};

int calls_add_types(PyObject *module)
{
    static const char *const texts[NAMES] = {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier"};
    for (int i = 0; i < NAMES; i++)
        if ((names[i] = PyUnicode_InternFromString(texts[i])) == NULL)
            return -1;
    return PyModule_AddType(module, &CallsType);
}
