/* The shortcuts of rankwise.backends.shortcuts: each does the whole of a plain call, or says that it did nothing. */
#include "arguments.h"
#include "collectives.h"
#include "fields.h"
#include "recorder.h"
#include "turn.h"
#include <string.h>

/* The public calls, and the ways in which Python has prepared them. */
typedef enum { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BARRIER, NAMES } Name;
typedef enum { NEVER, MEET, ONE_SHOT, TWO_SHOT, MOVE, COMBINE, WAYS } Way;
enum { MOST_NUMBERS = 2 * MOST_PARTS };
/* How many places for plans there are at first and at the most; no more than half of them are taken. */
enum { FEWEST_PLACES = 8, MOST_PLACES = 512 };

/* What distinguishes one prepared call from another; zero where nothing is said. */
typedef struct {
    int name, option, type, count;
    npy_intp numbers[MOST_NUMBERS];
} Key;

typedef struct {
    Key key;
    Way way;
    size_t fetch_count;
    uint64_t about[RECORD_WORDS];
    PyObject *call; /* of Python; NULL where there is no plan */
} Plan;

typedef struct {
    PyObject_HEAD
    Board *board;
    Trail *trail;
    Turn *turn;
    Field failure; /* of the communicator */
    PyObject *comm, *tell, *sequence, *collected, *ops;
    PyObject *await, *broken, *learn; /* what is left to Python: waiting for long, errors, plans */
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

static bool begin_given(Given *given, Name name, int option, PyArrayObject *array)
{
    memset(&given->key, 0, sizeof given->key);
    given->array = array;
    given->holds = 0;
    given->keep_to.count = 0;
    given->route.sends = given->route.takes = 0;
    given->key.name = (int)name;
    given->key.option = option;
    if (array == NULL)
        return true;
    int kind = kind_of(array);
    given->kind = (Kind)kind;
    given->key.type = PyArray_TYPE(array);
    given->route.item = (size_t)PyArray_ITEMSIZE(array);
    return kind >= 0;
}

static bool take_shape(Given *given)
{
    given->key.count = PyArray_NDIM(given->array);
    if (given->key.count > MOST_NUMBERS)
        return false;
    for (int i = 0; i < given->key.count; i++)
        given->key.numbers[i] = PyArray_DIM(given->array, i);
    return true;
}

static Part part_of(PyArrayObject *array)
{
    return (Part){(unsigned char *)PyArray_DATA(array), (size_t)PyArray_SIZE(array)};
}

/* Take a list of one array for each rank, and their sizes into the key; it is held for as long as the call takes. */
static bool take_list(Given *given, const Calls *calls, PyObject *list, bool written, Part parts[MOST_PARTS])
{
    bool is_list = PyList_CheckExact(list);
    if ((!is_list && !PyTuple_CheckExact(list)) || Py_SIZE(list) != calls->board->size || calls->board->size > MOST_PARTS)
        return false;
    for (int i = 0; i < calls->board->size; i++) {
        PyObject *item = is_list ? PyList_GET_ITEM(list, i) : PyTuple_GET_ITEM(list, i);
        PyArrayObject *array = plain(item, written);
        if (array == NULL || PyArray_TYPE(array) != given->key.type)
            return false;
        Py_INCREF(item);
        given->held[given->holds++] = item;
        parts[i] = part_of(array);
        given->key.numbers[given->key.count++] = PyArray_SIZE(array);
    }
    return true;
}

/* Cut an array into one part for each rank, which is `one` elements long. */
static bool take_cut(Given *given, const Calls *calls, PyArrayObject *whole, npy_intp one, Part parts[MOST_PARTS])
{
    int size = calls->board->size;
    if (size > MOST_PARTS || PyArray_TYPE(whole) != given->key.type || PyArray_SIZE(whole) != one * size)
        return false;
    for (int i = 0; i < size; i++) {
        parts[i].bytes = (unsigned char *)PyArray_DATA(whole) + (size_t)(one * i) * given->route.item;
        parts[i].count = (size_t)one;
        given->key.numbers[given->key.count++] = one;
    }
    return true;
}

static bool touch(Part a, Part b, size_t item)
{
    return a.count > 0 && b.count > 0 && a.bytes < b.bytes + b.count * item && b.bytes < a.bytes + a.count * item;
}

/* Whether no part that is written touches any other, or what is read but for a part with itself. */
static bool apart(const Calls *calls, size_t item, const Part *written, const Part *read, int reads)
{
    for (int i = 0; i < calls->board->size; i++) {
        for (int j = 0; j < i; j++)
            if (touch(written[i], written[j], item))
                return false;
        for (int j = 0; j < reads; j++)
            if (touch(written[i], read[j], item))
                return false;
    }
    return true;
}

static void send_to(Given *given, int slot, Part part)
{
    Route *route = &given->route;
    route->send[route->sends].slot = slot;
    route->send[route->sends++].part = part;
}

static void take_from(Given *given, int peer, int slot, Part part)
{
    Route *route = &given->route;
    route->take[route->takes].peer = peer;
    route->take[route->takes].slot = slot;
    route->take[route->takes++].part = part;
}

static void drop(Given *given)
{
    while (given->holds > 0)
        Py_DECREF(given->held[--given->holds]);
}

/* ------------------------------------------------------------------ the turn */

/* Take the group's turn if the call is plain and nobody is before it. */
static bool enter(Calls *calls)
{
    return PyDict_GET_SIZE(calls->collected) == 0 && look_at(calls->comm, calls->failure) == Py_None &&
           turn_take(calls->turn, (PyObject *)calls);
}

static bool leave(Calls *calls)
{
    PyObject *told = turn_give_back(calls->turn) ? PyObject_CallNoArgs(calls->tell) : Py_NewRef(Py_None);
    Py_XDECREF(told);
    return told != NULL;
}

/* ------------------------------------------------------------------ plans */

static unsigned hash_of(const Key *key)
{
    uint64_t mixed = (uint64_t)key->name * 31 + (uint64_t)key->option;
    mixed = mixed * 1000003 + (uint64_t)key->type;
    for (int i = 0; i < key->count; i++)
        mixed = (mixed ^ (uint64_t)key->numbers[i]) * 0x9E3779B97F4A7C15u;
    return (unsigned)(mixed >> 32);
}

/* The place of a plan, which is empty if it is not known; there are places. */
static Plan *plan_place(const Calls *calls, const Key *key)
{
    Plan *plan = &calls->table[hash_of(key) % (unsigned)calls->places];
    while (plan->call != NULL) {
        if (plan->key.name == key->name && plan->key.option == key->option && plan->key.type == key->type &&
            plan->key.count == key->count &&
            memcmp(plan->key.numbers, key->numbers, (size_t)key->count * sizeof *key->numbers) == 0)
            return plan;
        plan = plan == &calls->table[calls->places - 1] ? calls->table : plan + 1;
    }
    return plan;
}

static Plan *plan_known(const Calls *calls, const Key *key)
{
    Plan *plan = calls->places == 0 ? NULL : plan_place(calls, key);
    return plan == NULL || plan->call == NULL ? NULL : plan;
}

static void forget_plans(Calls *calls)
{
    Plan *table = calls->table;
    int places = calls->places;
    calls->table = NULL;
    calls->plans = calls->places = 0;
    for (int i = 0; i < places; i++)
        Py_XDECREF(table[i].call);
    PyMem_Free(table);
}

/* Have room for one plan more; a program that makes ever new calls begins anew. */
static bool make_room(Calls *calls)
{
    if (2 * calls->plans < calls->places)
        return true;
    if (calls->places == MOST_PLACES)
        forget_plans(calls);
    int places = calls->places, more = places == 0 ? FEWEST_PLACES : 2 * places;
    Plan *old = calls->table, *table = PyMem_Calloc((size_t)more, sizeof *table);
    if (table == NULL)
        return false;
    calls->table = table;
    calls->places = more;
    for (int i = 0; i < places; i++)
        if (old[i].call != NULL)
            *plan_place(calls, &old[i].key) = old[i];
    PyMem_Free(old);
    return true;
}

/* Whether the board has room for what a plan says; Python has looked too, but this is what memory depends on. */
static bool has_room(const Calls *calls, const Given *given, Way way, int slots)
{
    const Board *board = calls->board;
    if (way == MEET)
        return true;
    if (way == MOVE || way == COMBINE)
        return board_slot_nbytes(board, slots) >= given->route.item && (way == MOVE || merge_of(given->op, given->kind));
    Kind wide = accumulation_kind(given->op, given->kind);
    size_t item = kind_nbytes(wide), count = (size_t)PyArray_SIZE(given->array);
    if (board->size < 2 || merge_of(given->op, wide) == NULL)
        return false;
    return way == ONE_SHOT ? count <= board->area_nbytes / item : board_slot_nbytes(board, board->size) >= item;
}

/* Ask Python for the plan of a call that the general way has prepared. */
static Plan *learn(Calls *calls, const Given *given)
{
    Plan *plan = NULL;
    PyObject *numbers = PyTuple_New(given->key.count);
    for (int i = 0; numbers != NULL && i < given->key.count; i++)
        PyTuple_SET_ITEM(numbers, i, PyLong_FromSsize_t(given->key.numbers[i]));
    PyObject *array = given->array == NULL ? Py_None : (PyObject *)given->array;
    bool reduces = given->key.name == ALL_REDUCE || given->key.name == REDUCE_SCATTER;
    PyObject *option = reduces ? Py_NewRef(PyTuple_GET_ITEM(calls->ops, given->op)) : PyLong_FromLong(given->key.option);
    PyObject *told = PyObject_CallFunction(calls->learn, "OONN", names[given->key.name], array, option, numbers);
    int way;
    unsigned long long about[RECORD_WORDS] = {0};
    Py_ssize_t fetch_count;
    PyObject *call;
    bool known = told != NULL && told != Py_None &&
                 PyArg_ParseTuple(told, "OiKKKKKn", &call, &way, about + 1, about + 2, about + 3, about + 4, about + 5,
                                  &fetch_count);
    if (known && !make_room(calls)) {
        PyErr_NoMemory();
        known = false;
    }
    if (known) {
        plan = plan_place(calls, &given->key);
        plan->key = given->key;
        plan->fetch_count = (size_t)fetch_count;
        plan->way = way > NEVER && way < WAYS && has_room(calls, given, (Way)way, given->route.slots) ? (Way)way : NEVER;
        for (int i = 0; i < RECORD_WORDS; i++)
            plan->about[i] = about[i];
        Py_INCREF(call);
        plan->call = call;
        calls->plans++;
    }
    Py_XDECREF(told);
    return known ? plan : NULL;
}

/* ------------------------------------------------------------------ carrying out */

static Ending go(Call *call, const Plan *plan, Given *given)
{
    given->route.fetch_count = plan->way == MOVE ? plan->fetch_count : SIZE_MAX;
    given->route.told = given->key.name == ALL_TO_ALL; /* the others may send more than this rank knows */
    given->route.longest = plan->about[LONGEST];
    void *array = given->array == NULL ? NULL : PyArray_DATA(given->array);
    size_t count = given->array == NULL ? 0 : (size_t)PyArray_SIZE(given->array);
    switch (plan->way) {
    case MEET: return meet_only(call);
    case ONE_SHOT: return one_shot(call, array, count, given->op, given->kind);
    case TWO_SHOT: return two_shot(call, array, count, given->op, given->kind);
    case MOVE: return move(call, &given->route, given->keep_to, given->keep_from);
    default: return combine(call, &given->route, given->keep_from.bytes, given->out, given->op, given->kind);
    }
}

/* Let Python raise what all ranks raise. */
static void explain(Calls *calls, PyObject *call, uint64_t sequence, Ending ending)
{
    PyObject *error = ending == BROKEN ? raised() : NULL;
    PyObject *told = PyObject_CallFunction(calls->broken, "OKOO", call, (unsigned long long)sequence,
                                           error == NULL ? Py_None : error, ending == UNREADABLE ? Py_True : Py_False);
    if (told != NULL)
        PyErr_SetString(PyExc_SystemError, "a call that has failed was not explained");
    Py_XDECREF(told);
    Py_XDECREF(error);
}

static bool number(Calls *calls, uint64_t *sequence)
{
    PyObject *next = Py_TYPE(calls->sequence)->tp_iternext(calls->sequence);
    *sequence = next == NULL ? 0 : PyLong_AsUnsignedLongLong(next);
    Py_XDECREF(next);
    return !PyErr_Occurred();
}

/* Make the call, whose turn it is. */
static bool make(Calls *calls, Plan *plan, Given *given)
{
    uint64_t about[RECORD_WORDS];
    memcpy(about, plan->about, sizeof about);
    PyArrayObject *array = given->array;
    PyObject *dtype = array == NULL ? NULL : (PyObject *)PyArray_DESCR(array);
    int64_t began_ns = trail_begin(calls->trail, names[given->key.name], dtype, array == NULL ? 0 : PyArray_NBYTES(array), 1);
    if (!number(calls, &about[SEQUENCE]) || !board_enter(calls->board))
        return false;
    Call call = {.board = calls->board, .about = about, .await = calls->await, .holds = true, .looked_ns = began_ns};
    /* Kept alive: while the interpreter is let go, others may forget the plan. */
    PyObject *prepared = plan->call;
    Py_INCREF(prepared);
    int64_t waited_ns = calls->board->patience.waited_ns;
    Ending ending = go(&call, plan, given);
    board_leave(calls->board);
    if (ending != DONE)
        explain(calls, prepared, about[SEQUENCE], ending);
    Py_DECREF(prepared);
    Py_XDECREF(call.deadline);
    if (ending == DONE)
        trail_end(calls->trail, calls->board->patience.waited_ns - waited_ns);
    return ending == DONE;
}

static PyObject *carry_out(Calls *calls, Given *given)
{
    bool done = false;
    if (enter(calls)) {
        Plan *plan = plan_known(calls, &given->key);
        if (plan == NULL)
            plan = learn(calls, given);
        if (plan != NULL && plan->way != NEVER)
            done = make(calls, plan, given);
        PyObject *error = PyErr_Occurred() ? raised() : NULL;
        if (!leave(calls) && error == NULL)
            error = raised();
        if (error != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
            Py_DECREF(error);
        }
    }
    drop(given);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

static PyObject *nothing(Given *given)
{
    drop(given);
    Py_RETURN_FALSE;
}

static bool op_of(const Calls *calls, PyObject *object, Op *op)
{
    for (int i = 0; i < OPS; i++)
        if (PyTuple_GET_ITEM(calls->ops, i) == object && object != Py_None) {
            *op = (Op)i;
            return true;
        }
    return false;
}

/* ------------------------------------------------------------------ the calls */

static PyObject *all_reduce(Calls *calls, PyObject *const *args, Py_ssize_t count)
{
    Given given;
    PyArrayObject *array = count == 2 ? plain(args[0], true) : NULL;
    if (array == NULL || !op_of(calls, args[1], &given.op) || !begin_given(&given, ALL_REDUCE, given.op, array) ||
        !take_shape(&given))
        Py_RETURN_FALSE;
    return carry_out(calls, &given);
}

static PyObject *broadcast(Calls *calls, PyObject *const *args, Py_ssize_t count)
{
    Given given;
    int rank = calls->board->rank;
    PyArrayObject *array = count == 2 ? plain(args[0], true) : NULL;
    if (array == NULL || !PyLong_CheckExact(args[1]))
        Py_RETURN_FALSE;
    long root = PyLong_AsLong(args[1]);
    if (root < 0 || root >= calls->board->size || !begin_given(&given, BROADCAST, (int)root, array) || !take_shape(&given)) {
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    given.route.slots = 1;
    if (rank == root)
        send_to(&given, 0, part_of(array));
    else
        take_from(&given, (int)root, 0, part_of(array));
    return carry_out(calls, &given);
}

static PyObject *barrier(Calls *calls, PyObject *Py_UNUSED(unused))
{
    Given given;
    begin_given(&given, BARRIER, 0, NULL);
    return carry_out(calls, &given);
}

static PyObject *gather_parts(Calls *calls, Given *given, const Part parts[MOST_PARTS])
{
    int rank = calls->board->rank, size = calls->board->size;
    Part own = part_of(given->array);
    bool in_place = own.bytes == parts[rank].bytes;
    if (own.count != parts[rank].count || !apart(calls, given->route.item, parts, &own, in_place ? 0 : 1))
        return nothing(given);
    given->route.slots = 1;
    send_to(given, 0, own);
    for (int k = 1; k < size; k++)
        take_from(given, (rank + k) % size, 0, parts[(rank + k) % size]);
    given->keep_to = parts[rank];
    given->keep_from = own;
    return carry_out(calls, given);
}

static PyObject *all_gather(Calls *calls, PyObject *const *args, Py_ssize_t count)
{
    Given given;
    Part parts[MOST_PARTS];
    PyArrayObject *array = count == 2 ? plain(args[1], false) : NULL;
    if (array == NULL || !begin_given(&given, ALL_GATHER, 0, array))
        Py_RETURN_FALSE;
    return take_list(&given, calls, args[0], true, parts) ? gather_parts(calls, &given, parts) : nothing(&given);
}

static PyObject *all_gather_single(Calls *calls, PyObject *const *args, Py_ssize_t count)
{
    Given given;
    Part parts[MOST_PARTS];
    PyArrayObject *array = count == 2 ? plain(args[1], false) : NULL, *out = count == 2 ? plain(args[0], true) : NULL;
    if (array == NULL || out == NULL || !begin_given(&given, ALL_GATHER, 0, array) ||
        !take_cut(&given, calls, out, PyArray_SIZE(array), parts))
        Py_RETURN_FALSE;
    return gather_parts(calls, &given, parts);
}

static PyObject *scatter_parts(Calls *calls, Given *given, PyArrayObject *out, const Part parts[MOST_PARTS])
{
    int rank = calls->board->rank, size = calls->board->size;
    Part target = part_of(out);
    for (int i = 0; i < size; i++) {
        if (touch(parts[i], target, given->route.item) && !(i == rank && parts[i].bytes == target.bytes))
            return nothing(given);
    }
    if (target.count != parts[rank].count)
        return nothing(given);
    given->route.slots = size;
    for (int k = 1; k < size; k++) {
        int peer = (rank + k) % size;
        send_to(given, peer, parts[peer]);
        take_from(given, peer, rank, target);
    }
    given->keep_from = parts[rank];
    given->out = target.bytes;
    return carry_out(calls, given);
}

static PyObject *reduce_scatter(Calls *calls, PyObject *const *args, Py_ssize_t count)
{
    Given given;
    Part parts[MOST_PARTS];
    PyArrayObject *out = count == 3 ? plain(args[0], true) : NULL;
    if (out == NULL || !op_of(calls, args[2], &given.op) || !begin_given(&given, REDUCE_SCATTER, given.op, out))
        Py_RETURN_FALSE;
    return take_list(&given, calls, args[1], false, parts) ? scatter_parts(calls, &given, out, parts) : nothing(&given);
}

static PyObject *reduce_scatter_single(Calls *calls, PyObject *const *args, Py_ssize_t count)
{
    Given given;
    Part parts[MOST_PARTS];
    PyArrayObject *out = count == 3 ? plain(args[0], true) : NULL, *whole = count == 3 ? plain(args[1], false) : NULL;
    if (out == NULL || whole == NULL || !op_of(calls, args[2], &given.op) ||
        !begin_given(&given, REDUCE_SCATTER, given.op, out) ||
        !take_cut(&given, calls, whole, PyArray_SIZE(out), parts))
        Py_RETURN_FALSE;
    return scatter_parts(calls, &given, out, parts);
}

static PyObject *exchange_parts(Calls *calls, Given *given, const Part outs[MOST_PARTS], const Part ins[MOST_PARTS])
{
    int rank = calls->board->rank, size = calls->board->size;
    if (ins[rank].count != outs[rank].count || !apart(calls, given->route.item, outs, ins, size))
        return nothing(given);
    given->route.slots = size;
    for (int k = 1; k < size; k++) {
        int peer = (rank + k) % size;
        send_to(given, peer, ins[peer]);
        take_from(given, peer, rank, outs[peer]);
    }
    given->keep_to = outs[rank];
    given->keep_from = ins[rank];
    return carry_out(calls, given);
}

static PyObject *all_to_all(Calls *calls, PyObject *const *args, Py_ssize_t count)
{
    Given given;
    Part outs[MOST_PARTS], ins[MOST_PARTS];
    int rank = calls->board->rank;
    PyObject *list = count == 2 ? args[1] : NULL;
    if (list == NULL || !PyList_CheckExact(list) || PyList_GET_SIZE(list) <= rank)
        Py_RETURN_FALSE;
    PyArrayObject *mine = plain(PyList_GET_ITEM(list, rank), false);
    if (mine == NULL || !begin_given(&given, ALL_TO_ALL, 0, mine))
        Py_RETURN_FALSE;
    bool taken = take_list(&given, calls, list, false, ins) && take_list(&given, calls, args[0], true, outs);
    return taken ? exchange_parts(calls, &given, outs, ins) : nothing(&given);
}

static PyObject *all_to_all_single(Calls *calls, PyObject *const *args, Py_ssize_t count)
{
    Given given;
    Part outs[MOST_PARTS], ins[MOST_PARTS];
    int size = calls->board->size;
    PyArrayObject *out = count == 2 ? plain(args[0], true) : NULL, *in = count == 2 ? plain(args[1], false) : NULL;
    if (out == NULL || in == NULL || PyArray_NDIM(in) == 0 || PyArray_NDIM(out) == 0 || PyArray_DIM(in, 0) % size != 0 ||
        PyArray_DIM(out, 0) % size != 0 || !begin_given(&given, ALL_TO_ALL, 0, in) ||
        !take_cut(&given, calls, in, PyArray_SIZE(in) / size, ins) || !take_cut(&given, calls, out, PyArray_SIZE(out) / size, outs))
        Py_RETURN_FALSE;
    return exchange_parts(calls, &given, outs, ins);
}

/* ------------------------------------------------------------------ the type */

/* The reduce ops in the order of `Op`; None where Python has none of that name. */
static PyObject *ops_of(PyObject *given)
{
    PyObject *ops = PyTuple_New(OPS);
    for (int i = 0; ops != NULL && i < OPS; i++) {
        PyObject *op = PyDict_GetItemString(given, op_names[i]);
        PyTuple_SET_ITEM(ops, i, Py_NewRef(op == NULL ? Py_None : op));
    }
    return ops;
}

static int calls_traverse(Calls *calls, visitproc visit, void *arg)
{
    PyObject *held[] = {(PyObject *)calls->board, (PyObject *)calls->trail, (PyObject *)calls->turn, calls->comm, calls->tell,
                        calls->sequence, calls->collected, calls->ops, calls->await, calls->broken, calls->learn};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_VISIT(held[i]);
    for (int i = 0; i < calls->places; i++)
        Py_VISIT(calls->table[i].call);
    return 0;
}

static int calls_clear(Calls *calls)
{
    forget_plans(calls);
    Py_CLEAR(calls->board);
    Py_CLEAR(calls->trail);
    Py_CLEAR(calls->turn);
    PyObject **held[] = {&calls->comm,      &calls->tell, &calls->sequence, &calls->collected,
                         &calls->ops,       &calls->await, &calls->broken, &calls->learn};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_CLEAR(*held[i]);
    return 0;
}

static void calls_free(Calls *calls)
{
    PyObject_GC_UnTrack(calls);
    calls_clear(calls);
    Py_TYPE(calls)->tp_free((PyObject *)calls);
}

static PyObject *calls_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    Calls *calls = (Calls *)type->tp_alloc(type, 0);
    if (calls == NULL)
        return NULL;
    PyObject *ops;
    if (!PyArg_ParseTuple(args, "O!O!O!OOOO!O!OOO", &BoardType, &calls->board, &TrailType, &calls->trail, &TurnType, &calls->turn,
                          &calls->comm, &calls->tell, &calls->sequence, &PyDict_Type, &calls->collected, &PyDict_Type,
                          &ops, &calls->await, &calls->broken, &calls->learn)) {
        memset((char *)calls + sizeof(PyObject), 0, offsetof(Calls, plans) - sizeof(PyObject));
        Py_DECREF(calls);
        return NULL;
    }
    PyObject *held[] = {(PyObject *)calls->board, (PyObject *)calls->trail, (PyObject *)calls->turn, calls->comm, calls->tell,
                        calls->sequence, calls->collected, calls->await, calls->broken, calls->learn};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_INCREF(held[i]);
    if (!PyIter_Check(calls->sequence)) {
        PyErr_SetString(PyExc_TypeError, "there is no sequence");
        Py_CLEAR(calls);
    } else if ((calls->ops = ops_of(ops)) == NULL || (calls->failure = field_of(calls->comm, "failure")) < 0) {
        Py_CLEAR(calls);
    }
    return (PyObject *)calls;
}

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef methods[] = {
    {"all_reduce", FAST(all_reduce), NULL},
    {"broadcast", FAST(broadcast), NULL},
    {"all_gather", FAST(all_gather), NULL},
    {"all_gather_single", FAST(all_gather_single), NULL},
    {"reduce_scatter", FAST(reduce_scatter), NULL},
    {"reduce_scatter_single", FAST(reduce_scatter_single), NULL},
    {"all_to_all", FAST(all_to_all), NULL},
    {"all_to_all_single", FAST(all_to_all_single), NULL},
    {"barrier", (PyCFunction)barrier, METH_NOARGS, NULL},
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
