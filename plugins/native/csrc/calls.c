/* The shortcuts of rankwise.backends.fast_calls: each does the whole of a plain call, or says that it did nothing. */
#include "arguments.h"
#include "hooks.h"
#include "plans.h"
#include "recorder.h"
#include "relay.h"
#include "streams.h"
#include "turn.h"
#include <string.h>

typedef struct {
    PyObject_HEAD
    Board *board; /* or */
    Wire *wire;   /* or */
    Relay *relay; /* by which these calls go; the others are NULL */
    Members members;
    Trail *trail;
    Turn *turn;
    const int64_t *waited_ns; /* for how long others were waited for in all */
    PyObject *sequence, *collected; /* of the group that is served, as the trail is; NULL before */
    PyObject *tell, *wait, *learn, *failed, *broken; /* CallHooks of rankwise_gloo_tcp: what is left to Python */
    Plans plans;
} Calls;

static PyObject *names[NAMES];
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

/* Whether the board has room for what a plan says; Python has looked too, but this is what memory depends on. */
static bool calls_has_room(const Calls *calls, const Given *given, Way way, int slots)
{
    const Board *board = calls->board;
    if (calls->relay != NULL || calls->wire != NULL) /* each call looks by itself */
        return (way == RELAY) == (calls->relay != NULL) && way >= SWAP;
    if (way >= SWAP || way == MEET || given->key.name == REDUCE)
        return way == MEET && given->key.name != REDUCE;
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

static bool calls_reduces(const Given *given)
{
    return given->key.name == ALL_REDUCE || given->key.name == REDUCE || given->key.name == REDUCE_SCATTER;
}

/* Ask Python for the plan of a call that the slow path has prepared. */
static Plan *calls_learn(Calls *calls, const Given *given)
{
    Plan *plan = NULL;
    PyObject *numbers = PyTuple_New(given->key.count);
    for (int i = 0; numbers != NULL && i < given->key.count; i++)
        PyTuple_SET_ITEM(numbers, i, PyLong_FromSsize_t(given->key.numbers[i]));
    PyObject *array = given->array == NULL ? Py_None : (PyObject *)given->array;
    bool reduces = calls_reduces(given);
    PyObject *option = reduces ? Py_NewRef(PyTuple_GET_ITEM(calls->members.ops, given->op)) : PyLong_FromLong(given->key.option);
    PyObject *kind = PyObject_CallFunction(calls->learn, "OONN", names[given->key.name], array, option, numbers);
    Doing learnt = {.kind = kind};
    if (kind != NULL && kind != Py_None && calls_read_plan(calls, given, kind, &learnt)) {
        plan = plans_keep(&calls->plans, &given->key, &learnt);
        if (plan != NULL)
            Py_INCREF(kind);
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
    case SWAP_STREAM: return streams_reduce(swap, given->array, given->op, given->kind);
    case SWAP_SEGMENTS: return streams_broadcast(swap, given->array, given->key.option);
    default: return swaps_combine(swap, &given->route, given->keep_from.bytes, given->out, given->op, given->kind);
    }
}

/* What each rank has for all of them, or takes from all, in the order of ranks; false if that is not of one size. */
static bool calls_parts(const Calls *calls, const Given *given, Load *load)
{
    bool gathers = given->key.name == ALL_GATHER;
    const Route *route = &given->route;
    Part *parts = gathers ? load->takes : load->gives;
    parts[calls->members.rank] = gathers ? given->keep_to : given->keep_from;
    for (int i = 0; i < calls->members.size - 1; i++)
        parts[gathers ? route->take[i].peer : route->send[i].slot] = gathers ? route->take[i].part : route->send[i].part;
    for (int peer = 0; peer < calls->members.size; peer++)
        if (parts[peer].count != parts[0].count)
            return false;
    return true;
}

/* What goes along with a call; false if it is nothing that a relay knows. */
static bool calls_load(const Calls *calls, const Given *given, Load *load)
{
    int name = given->key.name, rank = calls->members.rank;
    *load = (Load){.manner = NOTHING, .root = given->root, .op = given->op, .kind = given->kind};
    if (given->array == NULL)
        return true;
    load->manner = calls_reduces(given) ? SUMMED : name == BROADCAST ? SENT_BY_ROOT : GATHERED;
    load->wide = load->manner == SUMMED ? kernels_accumulation_kind(given->op, given->kind) : given->kind;
    Part whole = {PyArray_DATA(given->array), (size_t)PyArray_SIZE(given->array)};
    load->count = whole.count;
    load->given = name != BROADCAST || rank == given->root;
    load->taken = name == BROADCAST ? rank != given->root : given->root < 0 || rank == given->root;
    load->gives[0] = load->takes[0] = whole;
    if (name == REDUCE_SCATTER) {
        load->count = whole.count * (size_t)calls->members.size;
        load->given = calls->members.size;
        load->first = whole.count * (size_t)rank;
        load->takes[0].bytes = given->out;
    } else if (name == ALL_GATHER)
        load->taken = calls->members.size;
    bool in_parts = name == ALL_GATHER || name == REDUCE_SCATTER;
    return name != ALL_TO_ALL && (!in_parts || calls_parts(calls, given, load));
}

/* Whether what was given may go over the wire, whose rooms are limited. */
static bool calls_fits(const Calls *calls, const Doing *doing, const Given *given)
{
    if (calls->relay != NULL) {
        Load load;
        return calls_load(calls, given, &load) && relay_fits(calls->relay, &load);
    }
    if (calls->wire == NULL)
        return true;
    size_t nbytes = doing->way == SWAP_REDUCE ? (size_t)PyArray_NBYTES(given->array) : 0;
    bool reduces = doing->way == SWAP_REDUCE || doing->way == SWAP_COMBINE || doing->way == SWAP_STREAM;
    if (reduces && kernels_merge_of(given->op, kernels_accumulation_kind(given->op, given->kind)) == NULL)
        return false;
    if (doing->way == SWAP_STREAM || doing->way == SWAP_SEGMENTS)
        return streams_fit(calls->wire) && (!reduces || kernels_accumulation_kind(given->op, given->kind) == given->kind);
    return calls->members.size <= MOST_PARCELS && swaps_fit(calls->wire, &given->route, calls->members.rank, calls->members.size, nbytes);
}

static bool calls_relay(Calls *calls, const Doing *doing, const Given *given, const uint64_t about[RECORD_WORDS], PyObject *deadline,
                        PyObject *hook)
{
    Load load;
    calls_load(calls, given, &load); /* which has been looked at before */
    Call call = {.await = calls->wait, .deadline = deadline == Py_None ? NULL : Py_NewRef(deadline)};
    Ending ending = relay_run(calls->relay, &call, about, &load, NULL);
    if (ending != DONE)
        calls_explain(hook, doing->kind, about[SEQUENCE], ending);
    Py_XDECREF(call.deadline);
    return ending == DONE;
}

/* Do what was given, as the call of a number, until a deadline; it may also be a time-out, or None for the group's. */
static bool calls_carry_out(Calls *calls, const Doing *doing, Given *given, uint64_t sequence, PyObject *deadline, PyObject *hook,
                            int64_t began_ns)
{
    uint64_t about[RECORD_WORDS];
    memcpy(about, doing->about, sizeof about);
    about[SEQUENCE] = sequence;
    if (calls->relay != NULL)
        return calls_relay(calls, doing, given, about, deadline, hook);
    if (calls->wire != NULL) {
        Swap swap = {.wire = calls->wire, .rank = calls->members.rank, .size = calls->members.size, .about = about, .deadline = deadline};
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
    Plan *plan = plans_known(&calls->plans, &given->key);
    if (plan == NULL)
        plan = calls_learn(calls, given);
    if (plan == NULL || plan->doing.way == NEVER || !calls_fits(calls, &plan->doing, given))
        return false;
    *doing = plan->doing;
    Py_INCREF(doing->kind);
    return true;
}

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
    if (given_count == count + 1 && calls->trail != NULL && calls_is_timeout(args[count]) && take(&calls->members, args, &given) && calls_enter(calls)) {
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
    given_drop(&given);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

/* The public calls by name, and how many arguments they have before the time-out. */
static const struct {
    const char *name;
    Py_ssize_t count;
    Take *take;
} takes[] = {
    {"all_reduce", 2, given_take_all_reduce},
    {"broadcast", 2, given_take_broadcast},
    {"reduce", 3, given_take_reduce},
    {"all_gather", 2, given_take_all_gather},
    {"all_gather_single", 2, given_take_all_gather_single},
    {"reduce_scatter", 3, given_take_reduce_scatter},
    {"reduce_scatter_single", 3, given_take_reduce_scatter_single},
    {"all_to_all", 2, given_take_all_to_all},
    {"all_to_all_single", 2, given_take_all_to_all_single},
    {"barrier", 0, given_take_barrier},
};

#define WHOLE(name, count)                                                                          \
    static PyObject *calls_##name(Calls *calls, PyObject *const *args, Py_ssize_t given)            \
    {                                                                                               \
        return calls_whole_call(calls, args, given, count, given_take_##name);                                  \
    }
WHOLE(all_reduce, 2)
WHOLE(broadcast, 2)
WHOLE(reduce, 3)
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
            takes[i].take(&calls->members, ((PyTupleObject *)given_args)->ob_item, &given)) {
            Doing doing;
            if (calls_find(calls, &given, &doing)) {
                done = calls_carry_out(calls, &doing, &given, sequence, deadline, calls->failed, native_monotonic_ns());
                Py_DECREF(doing.kind);
            }
            break;
        }
    given_drop(&given);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

/* Tell all other ranks of a group on several hosts what this one says of a call; return what all say, or None if that is
   left to Python. */
static PyObject *calls_compare(Calls *calls, PyObject *args)
{
    const char *record;
    Py_ssize_t nbytes;
    PyObject *deadline;
    if (!PyArg_ParseTuple(args, "y#O", &record, &nbytes, &deadline))
        return NULL;
    const Load nothing = {.manner = NOTHING, .root = -1};
    if (calls->relay == NULL || nbytes != WIRE_RECORD_NBYTES || !relay_fits(calls->relay, &nothing))
        Py_RETURN_NONE;
    uint64_t about[RECORD_WORDS] = {0};
    memcpy(about, record, WIRE_RECORD_NBYTES);
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)WIRE_RECORD_NBYTES * calls->relay->size);
    if (records == NULL)
        return NULL;
    Call call = {.await = calls->wait, .deadline = Py_NewRef(deadline)};
    Ending ending = relay_run(calls->relay, &call, about, &nothing, (unsigned char *)PyBytes_AS_STRING(records));
    if (ending != DONE) {
        calls_explain(calls->failed, Py_None, about[SEQUENCE], ending);
        Py_CLEAR(records);
    }
    Py_XDECREF(call.deadline);
    return records;
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
    plans_forget(&calls->plans);
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ the type */

/* The reduce ops in the order of `Op`; None where Python has none of that name. */
static PyObject *calls_ops_of(PyObject *given)
{
    PyObject *ops = PyTuple_New(OPS);
    for (int i = 0; ops != NULL && i < OPS; i++) {
        PyObject *op = PyDict_GetItemString(given, kernels_op_name((Op)i));
        PyTuple_SET_ITEM(ops, i, Py_NewRef(op == NULL ? Py_None : op));
    }
    return ops;
}

/* Where each object is that is held. */
static const size_t held[] = {offsetof(Calls, board),     offsetof(Calls, wire), offsetof(Calls, relay), offsetof(Calls, trail), offsetof(Calls, turn), offsetof(Calls, sequence),
                              offsetof(Calls, collected), offsetof(Calls, members.ops),   offsetof(Calls, tell), offsetof(Calls, wait),
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
    for (int i = 0; i < calls->plans.places; i++)
        Py_VISIT(calls->plans.table[i].doing.kind);
    return 0;
}

static int calls_clear(Calls *calls)
{
    plans_forget(&calls->plans);
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

/* Calls(board, wire or relay, turn, ops, hooks) */
static PyObject *calls_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *way, *turn, *ops, *asked;
    if (!PyArg_ParseTuple(args, "OO!O!O", &way, &TurnType, &turn, &PyDict_Type, &ops, &asked))
        return NULL;
    if (!PyObject_TypeCheck(way, &BoardType) && !PyObject_TypeCheck(way, &WireType) && !PyObject_TypeCheck(way, &RelayType)) {
        PyErr_SetString(PyExc_TypeError, "calls go by a board, by a wire or by both");
        return NULL;
    }
    Calls *calls = (Calls *)type->tp_alloc(type, 0);
    if (calls == NULL)
        return NULL;
    if (PyObject_TypeCheck(way, &BoardType)) {
        calls->board = (Board *)Py_NewRef(way);
        calls->members.rank = calls->board->rank;
        calls->members.size = calls->board->size;
        calls->waited_ns = &calls->board->patience.waited_ns;
    } else if (PyObject_TypeCheck(way, &RelayType)) {
        calls->relay = (Relay *)Py_NewRef(way);
        calls->members.rank = calls->relay->rank;
        calls->members.size = calls->relay->size;
        calls->waited_ns = &calls->relay->waited_ns;
    } else {
        calls->wire = (Wire *)Py_NewRef(way);
        calls->members.rank = calls->wire->rank;
        calls->members.size = calls->wire->size;
        calls->waited_ns = &calls->wire->waited_ns;
    }
    calls->turn = (Turn *)Py_NewRef(turn);
    if ((calls->members.ops = calls_ops_of(ops)) == NULL || !hooks_take(calls, asked, hooks, sizeof hooks / sizeof *hooks))
        Py_CLEAR(calls);
    return (PyObject *)calls;
}

#define FAST(name) {#name, (PyCFunction)(void (*)(void))calls_##name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    FAST(all_reduce),
    FAST(broadcast),
    FAST(reduce),
    FAST(all_gather),
    FAST(all_gather_single),
    FAST(reduce_scatter),
    FAST(reduce_scatter_single),
    FAST(all_to_all),
    FAST(all_to_all_single),
    FAST(barrier),
    {"run", (PyCFunction)calls_run, METH_VARARGS, "Carry out a collective whose turn it is."},
    {"compare", (PyCFunction)calls_compare, METH_VARARGS, "Compare the calls of ranks on several hosts."},
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
    static const char *const texts[NAMES] = {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"};
    for (int i = 0; i < NAMES; i++)
        if ((names[i] = PyUnicode_InternFromString(texts[i])) == NULL)
            return -1;
    return PyModule_AddType(module, &CallsType);
}
