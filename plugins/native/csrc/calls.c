/* The shortcuts of rankwise.backends.fast_calls: each does the whole of a plain call, or says that it did nothing. */
#include "arguments.h"
#include "hooks.h"
#include "program.h"
#include "recorder.h"
#include "streams.h"
#include "turn.h"
#include <datetime.h>
#include <string.h>

/* Longer time-outs are left to Python. */
#define LONGEST_S 1e9

typedef struct {
    PyObject_HEAD
    Board *board; /* or */
    Wire *wire;   /* or */
    Relay *relay; /* by which these calls go; the others are NULL */
    Members members;
    Trail *trail;
    Turn *turn;
    const int64_t *waited_ns; /* for how long others were waited for in all */
    PyObject *sequence, *collected, *owner; /* of the group that is served, as the trail is; NULL before */
    PyObject *tell, *wait, *learn, *unreadable, *garbled, *failed, *broken; /* CallHooks of rankwise_gloo_tcp: what is left to Python */
    PyArrayObject *scratch; /* memory beside what a program works on; NULL before */
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

/* Whether a call can be made in a way that Python says; each over a wire looks by itself. */
static bool calls_knows(const Calls *calls, const Given *given, const Doing *doing)
{
    if (calls->relay != NULL)
        return doing->way == RELAY || doing->way == PROGRAM;
    if (calls->wire != NULL)
        return doing->way >= SWAP && doing->way != RELAY;
    return plans_has_room(doing, calls->board, given);
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
    Doing learnt;
    if (kind != NULL && kind != Py_None && plans_read(&learnt, kind)) {
        learnt.way = calls_knows(calls, given, &learnt) ? learnt.way : NEVER;
        plan = plans_keep(&calls->plans, &given->key, &learnt);
        if (plan != NULL)
            Py_INCREF(kind);
    }
    Py_XDECREF(kind);
    return plan;
}

/* ------------------------------------------------------------------ carrying out */

/* Why a call has ended like that; NULL where the calls differ, which all ranks find out together. */
static PyObject *calls_reason(const Calls *calls, Ending ending)
{
    if (ending == UNLIKE)
        return NULL;
    PyObject *error = ending == BROKEN ? NULL : PyObject_CallNoArgs(ending == UNREADABLE ? calls->unreadable : calls->garbled);
    return error == NULL ? arguments_raised() : error;
}

/* Let a hook raise what all ranks raise, until the call's deadline; or return until when the call is made again, as the ranks'
   memory orders differ. */
static PyObject *calls_explain(const Calls *calls, PyObject *hook, PyObject *kind, uint64_t sequence, Ending ending, PyObject *deadline)
{
    PyObject *error = calls_reason(calls, ending);
    PyObject *told = PyObject_CallFunction(hook, "OKOO", kind, (unsigned long long)sequence, error == NULL ? Py_None : error, deadline);
    Py_XDECREF(error);
    if (told == Py_None) {
        PyErr_SetString(PyExc_SystemError, "a call that has failed was not explained");
        Py_CLEAR(told);
    }
    return told;
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
    void *array = given->whole.bytes;
    size_t count = given->whole.count;
    switch (doing->way) {
    case SWAP: return swaps_compare(swap);
    case SWAP_REDUCE: return swaps_reduce(swap, array, count, given->op, given->kind);
    case SWAP_MOVE: return swaps_move(swap, &given->route, given->keep_to, given->keep_from);
    case SWAP_STREAM: return streams_reduce(swap, swaps_whole(given->array), given->op, given->kind);
    case SWAP_SEGMENTS: return streams_broadcast(swap, swaps_whole(given->array), given->route.item, given->key.option);
    default: return swaps_combine(swap, &given->route, given->keep_from.bytes, given->out, given->op, given->kind);
    }
}

/* Say which arrays hold what this rank gives and takes, where it has one for each rank. */
static void calls_load_parts(const Given *given, int size, Load *load)
{
    int name = given->key.name;
    bool gives = name == ALL_TO_ALL || name == REDUCE_SCATTER || name == SCATTER, takes = !gives || name == ALL_TO_ALL;
    if (gives) {
        load->given = size;
        memcpy(load->gives, given->parts, (size_t)size * sizeof *load->gives);
    }
    if (takes) { /* of an all_to_all behind what this rank gives */
        load->taken = size;
        memcpy(load->takes, given->parts + given->many - size, (size_t)size * sizeof *load->takes);
    }
}

/* What goes along with a call; false if it is nothing that a relay knows. */
static bool calls_load(const Calls *calls, const Given *given, Load *load)
{
    int name = given->key.name, rank = calls->members.rank, size = calls->members.size;
    *load = (Load){.manner = NOTHING, .root = given->root, .op = given->op, .kind = given->kind};
    if (given->array == NULL)
        return true;
    bool is_root = rank == given->root, spreads = name == BROADCAST || name == SCATTER;
    load->manner = calls_reduces(given) ? SUMMED : spreads ? SENT_BY_ROOT : GATHERED;
    load->wide = load->manner == SUMMED ? kernels_accumulation_kind(given->op, given->kind) : given->kind;
    load->count = given->whole.count;
    load->given = !spreads || is_root;
    load->taken = spreads ? name == SCATTER || !is_root : given->root < 0 || is_root;
    load->gives[0] = load->takes[0] = given->whole;
    if (name == REDUCE_SCATTER || name == SCATTER || name == ALL_TO_ALL) { /* each takes its part of what comes */
        load->count *= (size_t)size;
        load->first = given->whole.count * (size_t)rank;
    }
    if (name == ALL_TO_ALL)
        load->stride = load->count;
    if (given->many > 0)
        calls_load_parts(given, size, load);
    bool alike = true;
    for (int i = 0; i < given->many; i++)
        alike = alike && given->parts[i].count == given->whole.count;
    return alike;
}

static const Load calls_nothing = {.manner = NOTHING, .root = -1};

/* What the program of a call works on. */
static Works calls_works(const Given *given)
{
    Works works = {.bases = {{given->array, given->whole}}, .count = 1 + given->many};
    for (int i = 0; i < given->many; i++)
        works.bases[1 + i] = (Owned){given->owners[i], given->parts[i]};
    return works;
}

/* Whether what was given may go over the wire, whose rooms are limited. */
static bool calls_fits(const Calls *calls, const Doing *doing, const Given *given)
{
    if (doing->program != NULL) {
        const Works works = calls_works(given);
        if (!program_fits((Program *)doing->program, &works))
            return false;
    }
    if (calls->relay != NULL) {
        Load load = calls_nothing;
        bool known = doing->way == PROGRAM || (calls_load(calls, given, &load) && (doing->program != NULL || !given_is_each_its_own(given)));
        return known && relay_fits(calls->relay, &load);
    }
    if (doing->way == PROGRAM)
        return true;
    if (calls->wire == NULL)
        return true;
    size_t nbytes = doing->way == SWAP_REDUCE ? given->whole.count * given->route.item : 0;
    bool reduces = doing->way == SWAP_REDUCE || doing->way == SWAP_COMBINE || doing->way == SWAP_STREAM;
    if (reduces && kernels_merge_of(given->op, kernels_accumulation_kind(given->op, given->kind)) == NULL)
        return false;
    if (doing->way == SWAP_STREAM || doing->way == SWAP_SEGMENTS)
        return streams_fit(calls->wire) && (!reduces || kernels_accumulation_kind(given->op, given->kind) == given->kind);
    return calls->members.size <= MOST_PARCELS && swaps_fit(calls->wire, &given->route, calls->members.rank, calls->members.size, nbytes);
}

/* Carry out the program of a call, once all have made the same. */
static Ending calls_follow(Calls *calls, const Doing *doing, const Given *given, Call *call)
{
    const Program *program = (Program *)doing->program;
    Works works = calls_works(given);
    if (calls->scratch == NULL || (size_t)PyArray_NBYTES(calls->scratch) < program->scratch_nbytes) {
        npy_intp nbytes = (npy_intp)program->scratch_nbytes + 1;
        Py_XSETREF(calls->scratch, (PyArrayObject *)PyArray_ZEROS(1, &nbytes, NPY_UBYTE, 0));
    }
    if (calls->scratch == NULL)
        return BROKEN;
    works.bases[works.count] = swaps_whole(calls->scratch);
    int64_t waited_ns = 0;
    Ending ending = program_run(program, calls->relay, call, &works, &waited_ns);
    if (calls->relay != NULL)
        relay_note_waits(calls->relay, waited_ns);
    else
        calls->wire->waited_ns += waited_ns;
    return ending;
}

/* Have a kind of call send no data along from now on, as others do not either. */
static Ending calls_keep_apart(Calls *calls, const Doing *doing)
{
    PyObject *kept = PyObject_CallMethod(doing->kind, "keep_apart", NULL);
    Py_XDECREF(kept);
    plans_forget(&calls->plans);
    return kept == NULL ? BROKEN : DONE;
}

/* Carry out a call of several hosts: its data goes with the comparison, or its program follows that. */
static Ending calls_relay(Calls *calls, const Doing *doing, const Given *given, Call *call, const uint64_t about[RECORD_WORDS])
{
    Load load = calls_nothing;
    if (doing->way == RELAY)
        calls_load(calls, given, &load); /* which has been looked at before */
    Ending ending = relay_run(calls->relay, call, about, &load, NULL);
    if (ending == DONE && doing->way == RELAY)
        return DONE;
    if (ending == APART)
        ending = doing->program == NULL ? UNLIKE : calls_keep_apart(calls, doing);
    return ending != DONE ? ending : calls_follow(calls, doing, given, call);
}

/* Do what was given, as the call of a number, until a deadline; it may also be a time-out, or None for the group's. `again` is
   until when all make it once more, or NULL. */
static bool calls_carry_out(Calls *calls, const Doing *doing, Given *given, uint64_t sequence, PyObject *deadline, PyObject *hook,
                            int64_t began_ns, PyObject **again)
{
    uint64_t about[RECORD_WORDS];
    memcpy(about, doing->about, sizeof about);
    about[SEQUENCE] = sequence;
    Ending ending = BROKEN;
    Call call = {.board = calls->board, .about = about, .await = calls->wait, .holds = true, .looked_ns = began_ns, .deadline = Py_NewRef(deadline)};
    if (calls->wire != NULL) {
        Swap swap = {.wire = calls->wire, .rank = calls->members.rank, .size = calls->members.size, .about = about, .deadline = &call.deadline};
        ending = doing->way == PROGRAM ? swaps_compare(&swap) : calls_swap(&swap, doing, given);
        if (ending == DONE && doing->way == PROGRAM)
            ending = calls_follow(calls, doing, given, &call);
    } else if (calls->relay != NULL)
        ending = calls_relay(calls, doing, given, &call, about);
    else if (board_enter(calls->board)) {
        ending = plans_go(doing, &call, given);
        board_leave(calls->board);
    }
    *again = ending == DONE ? NULL : calls_explain(calls, hook, doing->kind, sequence, ending, call.deadline);
    Py_DECREF(call.deadline);
    return ending == DONE;
}

/* Make a public call, whose turn it is. */
static bool calls_make(Calls *calls, const Doing *doing, Given *given, PyObject *timeout)
{
    PyArrayObject *array = given->array;
    PyObject *dtype = array == NULL ? NULL : (PyObject *)PyArray_DESCR(array);
    uint64_t sequence;
    bool done;
    int64_t began_ns = trail_begin(calls->trail, names[given->key.name], dtype, array == NULL ? 0 : PyArray_NBYTES(array), 1);
    int64_t waited_ns = *calls->waited_ns;
    PyObject *until = Py_NewRef(timeout);
    do { /* once; and again where the ranks' memory orders differ */
        PyObject *again = NULL;
        done = calls_number(calls, &sequence) && calls_carry_out(calls, doing, given, sequence, until, calls->broken, began_ns, &again);
        Py_DECREF(until);
        until = again;
    } while (until != NULL);
    if (!done)
        return false;
    trail_end(calls->trail, *calls->waited_ns - waited_ns);
    return true;
}

static void calls_drop(Doing *doing)
{
    Py_CLEAR(doing->kind);
    Py_CLEAR(doing->program);
}

/* Find how to do what was given, if it can be done here. It is a copy, and what it holds is owned by the caller, as others
   may forget all plans whenever Python's code runs. */
static bool calls_find(Calls *calls, const Given *given, Doing *doing)
{
    Plan *plan = plans_known(&calls->plans, &given->key);
    if (plan == NULL)
        plan = calls_learn(calls, given);
    if (plan == NULL || plan->doing.way == NEVER)
        return false;
    *doing = plan->doing;
    Py_INCREF(doing->kind);
    bool known = doing->way != PROGRAM && doing->way != RELAY;
    if (!known) {
        doing->program = PyObject_GetAttrString(doing->kind, "program");
        if (doing->program == Py_None)
            Py_CLEAR(doing->program);
        known = doing->program == NULL ? doing->way == RELAY && !PyErr_Occurred() : PyObject_TypeCheck(doing->program, &ProgramType);
    }
    if (known && calls_fits(calls, doing, given))
        return true;
    calls_drop(doing);
    return false;
}

/* A time-out as a call keeps it: None, or so many seconds; NULL, without an exception, for what Python has to look at. */
static PyObject *calls_timeout_of(PyObject *given)
{
    if (given == Py_None)
        return Py_NewRef(given);
    double timeout_s = -1;
    if (PyFloat_CheckExact(given))
        timeout_s = PyFloat_AS_DOUBLE(given);
    else if (PyLong_CheckExact(given))
        timeout_s = PyLong_AsDouble(given);
    else if (PyDelta_CheckExact(given))
        timeout_s = PyDateTime_DELTA_GET_DAYS(given) * 86400.0 + PyDateTime_DELTA_GET_SECONDS(given) + PyDateTime_DELTA_GET_MICROSECONDS(given) * 1e-6;
    PyErr_Clear();
    return timeout_s >= 0 && timeout_s <= LONGEST_S ? PyFloat_FromDouble(timeout_s) : NULL;
}

/* Do the whole of a public call, whose last argument is its time-out. */
static PyObject *calls_whole_call(Calls *calls, PyObject *const *args, Py_ssize_t given_count, Py_ssize_t count, Take *take, bool packs)
{
    Given given;
    given.holds = 0;
    bool done = false;
    PyObject *timeout = given_count == count + 1 && calls->trail != NULL ? calls_timeout_of(args[count]) : NULL;
    if (timeout != NULL && take(&calls->members, args, &given) && calls_enter(calls)) {
        Doing doing;
        if (calls_find(calls, &given, &doing)) {
            done = calls_make(calls, &doing, &given, timeout);
            calls_drop(&doing);
            if (done && packs)
                given_unpack(&given, args[0]);
        }
        PyObject *error = PyErr_Occurred() ? arguments_raised() : NULL;
        if (!calls_leave(calls) && error == NULL)
            error = arguments_raised();
        if (error != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
            Py_DECREF(error);
        }
    }
    Py_XDECREF(timeout);
    given_drop(&given);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

/* The calls by name, and how many arguments they have; the public ones have a time-out besides. */
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
    {"gather", 3, given_take_gather},
    {"scatter", 3, given_take_scatter},
    {"barrier", 0, given_take_barrier},
    {"together", 4, given_take_together},
};

#define WHOLE(name, count)                                                                          \
    static PyObject *calls_##name(Calls *calls, PyObject *const *args, Py_ssize_t given)            \
    {                                                                                               \
        return calls_whole_call(calls, args, given, count, given_take_##name, given_take_##name == given_take_coalesced); \
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
WHOLE(gather, 3)
WHOLE(scatter, 3)
WHOLE(barrier, 0)
WHOLE(coalesced, 2)

/* Take the mark of a memory order, which makes a call on one array one of another kind. */
static bool calls_take_order(PyObject *object, Given *given)
{
    npy_intp mark = PyLong_CheckExact(object) ? PyLong_AsSsize_t(object) : 0;
    PyErr_Clear();
    if (mark >= 0 || given->key.count == MOST_NUMBERS)
        return false;
    given->key.numbers[given->key.count++] = mark;
    return true;
}

/* Take the arguments of a call of this name, which are a tuple; of one on memory of another order than C's the last is its mark. */
static bool calls_take(const Calls *calls, const char *name, PyObject *args, Given *given)
{
    given->holds = 0;
    PyObject *const *items = ((PyTupleObject *)args)->ob_item;
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++)
        if (strcmp(takes[i].name, name) == 0) {
            Py_ssize_t count = takes[i].count, more = PyTuple_GET_SIZE(args) - count;
            bool is_ordered = more == 1 && (takes[i].take == given_take_all_reduce || takes[i].take == given_take_broadcast || takes[i].take == given_take_reduce);
            return (more == 0 || is_ordered) && takes[i].take(&calls->members, items, given) && (more == 0 || calls_take_order(items[count], given));
        }
    return false;
}

/* Do what a call of this name has to do but for its turn and the recorder; false if it is left to Python. */
static PyObject *calls_run(Calls *calls, PyObject *args)
{
    const char *name;
    PyObject *given_args, *deadline;
    unsigned long long sequence;
    if (!PyArg_ParseTuple(args, "sO!KO", &name, &PyTuple_Type, &given_args, &sequence, &deadline))
        return NULL;
    Given given;
    Doing doing;
    bool done = false;
    PyObject *again = NULL;
    if (calls_take(calls, name, given_args, &given) && calls_find(calls, &given, &doing)) {
        done = calls_carry_out(calls, &doing, &given, sequence, deadline, calls->failed, native_monotonic_ns(), &again);
        Py_XDECREF(again); /* it is Python that makes such a call again */
        calls_drop(&doing);
    }
    given_drop(&given);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

/* Copies of a call's lists, which the program may change as soon as its call has returned; of the rest, the same. */
static PyObject *calls_copy_lists(PyObject *args)
{
    PyObject *copies = PyTuple_New(PyTuple_GET_SIZE(args));
    for (Py_ssize_t i = 0; copies != NULL && i < PyTuple_GET_SIZE(args); i++) {
        PyObject *each = PyTuple_GET_ITEM(args, i);
        PyObject *copy = PyList_CheckExact(each) ? PyList_GetSlice(each, 0, PyList_GET_SIZE(each)) : Py_NewRef(each);
        if (copy == NULL)
            Py_CLEAR(copies);
        else
            PyTuple_SET_ITEM(copies, i, copy);
    }
    return copies;
}

/* What carries out a public call that is asynchronous: whose it is, its kind, and what `run` takes of it as a tuple; and this
   rank's own contribution. None if the call takes the general path. */
static PyObject *calls_known(Calls *calls, PyObject *args)
{
    PyObject *name, *given_args, *known = NULL;
    if (!PyArg_ParseTuple(args, "UO!", &name, &PyTuple_Type, &given_args))
        return NULL;
    const char *text = PyUnicode_AsUTF8(name);
    Given given = {.holds = 0};
    Doing doing;
    bool open = text != NULL && calls->trail != NULL && !calls->turn->closed && PyDict_GET_SIZE(calls->collected) == 0;
    if (open && calls_take(calls, text, given_args, &given) && calls_find(calls, &given, &doing)) {
        PyObject *copies = calls_copy_lists(given_args), *array = given.array == NULL ? PyUnicode_FromString("cpu") : Py_NewRef(given.array);
        known = copies == NULL || array == NULL ? NULL : Py_BuildValue("(OO(OO)O)", calls->owner, doing.kind, name, copies, array);
        Py_XDECREF(copies);
        Py_XDECREF(array);
        calls_drop(&doing);
    }
    given_drop(&given);
    return PyErr_Occurred() || known != NULL ? known : Py_NewRef(Py_None);
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
    if (calls->relay == NULL || nbytes != WIRE_RECORD_NBYTES || !relay_fits(calls->relay, &calls_nothing))
        Py_RETURN_NONE;
    uint64_t about[RECORD_WORDS] = {0};
    memcpy(about, record, WIRE_RECORD_NBYTES);
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)WIRE_RECORD_NBYTES * calls->relay->size);
    if (records == NULL)
        return NULL;
    Call call = {.await = calls->wait, .deadline = Py_NewRef(deadline)};
    Ending ending = relay_run(calls->relay, &call, about, &calls_nothing, (unsigned char *)PyBytes_AS_STRING(records));
    if (ending != DONE) {
        PyObject *told = calls_explain(calls, calls->failed, Py_None, about[SEQUENCE], ending, call.deadline);
        Py_XDECREF(told);
        Py_CLEAR(records);
    }
    Py_DECREF(call.deadline);
    return records;
}

/* program(arrays, scratch, steps): a long call of several hosts, see program.h; None if it is left to Python. */
static PyObject *calls_make_program(Calls *calls, PyObject *args)
{
    PyObject *arrays, *scratch, *steps;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyTuple_Type, &arrays, &PyTuple_Type, &scratch, &PyList_Type, &steps))
        return NULL;
    return calls->board != NULL ? Py_NewRef(Py_None) : program_new(calls->relay, calls->members.ops, arrays, scratch, steps);
}

/* Serve the public calls of a group from now on. */
static PyObject *calls_serve(Calls *calls, PyObject *args)
{
    PyObject *trail, *collected, *sequence, *owner;
    if (!PyArg_ParseTuple(args, "O!O!OO", &TrailType, &trail, &PyDict_Type, &collected, &sequence, &owner))
        return NULL;
    if (!PyIter_Check(sequence)) {
        PyErr_SetString(PyExc_TypeError, "there is no sequence");
        return NULL;
    }
    Py_XSETREF(calls->collected, Py_NewRef(collected));
    Py_XSETREF(calls->owner, Py_NewRef(owner));
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
static const size_t held[] = {offsetof(Calls, scratch),   offsetof(Calls, board),     offsetof(Calls, wire), offsetof(Calls, relay), offsetof(Calls, trail), offsetof(Calls, turn), offsetof(Calls, sequence),
                              offsetof(Calls, collected), offsetof(Calls, owner),       offsetof(Calls, members.ops),   offsetof(Calls, tell), offsetof(Calls, wait),
                              offsetof(Calls, learn),     offsetof(Calls, unreadable), offsetof(Calls, garbled), offsetof(Calls, failed), offsetof(Calls, broken)};
/* What is asked of `CallHooks`. */
static const Hook hooks[] = {{"tell", offsetof(Calls, tell)},
                             {"wait", offsetof(Calls, wait)},
                             {"learn", offsetof(Calls, learn)},
                             {"unreadable", offsetof(Calls, unreadable)},
                             {"garbled", offsetof(Calls, garbled)},
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
    FAST(gather),
    FAST(scatter),
    FAST(barrier),
    {"all_reduce_coalesced", (PyCFunction)(void (*)(void))calls_coalesced, METH_FASTCALL, NULL},
    {"known", (PyCFunction)calls_known, METH_VARARGS, "Return what carries out a public call, or None."},
    {"run", (PyCFunction)calls_run, METH_VARARGS, "Carry out a collective whose turn it is."},
    {"compare", (PyCFunction)calls_compare, METH_VARARGS, "Compare the calls of ranks on several hosts."},
    {"program", (PyCFunction)calls_make_program, METH_VARARGS, "Take the steps of a long call of several hosts."},
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
    static const char *const texts[NAMES] = {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "barrier"};
    PyDateTime_IMPORT;
    if (PyDateTimeAPI == NULL)
        return -1;
    for (int i = 0; i < NAMES; i++)
        if ((names[i] = PyUnicode_InternFromString(texts[i])) == NULL)
            return -1;
    return PyModule_AddType(module, &CallsType);
}
