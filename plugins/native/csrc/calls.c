/* How the calls of a group are carried out: whose turn it is, in which way, and what is left to Python. */
#include "arguments.h"
#include "calls.h"
#include "wording.h"
#include <string.h>

/* ------------------------------------------------------------------ the turn */

/* Take the group's turn if the call is plain and nobody is before it. A recorder may end before a call that is bound. */
static bool calls_enter(Calls *calls)
{
    return PyDict_GET_SIZE(calls->collected) == 0 && calls->trail->recorder != NULL && turn_take(calls->turn, (PyObject *)calls);
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
    if (calls->board == NULL)
        return doing->way == ALONG || doing->way == PROGRAM;
    return doing->way == PROGRAM || plans_has_room(doing, calls->board, given);
}

/* The reduce op or the root of a call; of one that is described, whose root is among its numbers, the former or None. */
static PyObject *calls_option_of(const Calls *calls, const Given *given)
{
    bool described = given->key.name >= NAMES;
    if (given_reduces(given) || (described && given->op != OPS))
        return Py_NewRef(PyTuple_GET_ITEM(calls->members.ops, given->op));
    return described ? Py_NewRef(Py_None) : PyLong_FromLong(given->key.option);
}

/* Ask Python about a kind of call, by its name, array, reduce op or root, and numbers. */
static PyObject *calls_ask(const Calls *calls, PyObject *hook, const Given *given)
{
    PyObject *numbers = PyTuple_New(given->key.count);
    for (int i = 0; numbers != NULL && i < given->key.count; i++)
        PyTuple_SET_ITEM(numbers, i, PyLong_FromSsize_t(given->key.numbers[i]));
    PyObject *array = given->array == NULL ? Py_None : (PyObject *)given->array;
    return PyObject_CallFunction(hook, "OONN", given_name(given->key.name), array, calls_option_of(calls, given), numbers);
}

PyObject *calls_kind_of(Calls *calls, const Given *given, const Doing *doing)
{
    if (doing->kind != NULL)
        return Py_NewRef(doing->kind);
    PyObject *kind = calls_ask(calls, calls->kind, given);
    Plan *plan = kind == NULL ? NULL : plans_known(&calls->plans, &given->key);
    if (plan != NULL)
        Py_XSETREF(plan->doing.kind, Py_NewRef(kind));
    return kind;
}

/* Whether a call is on one array in C order, or on parts: then it has no numbers but their shape or sizes. At a board a
   barrier has been prepared. */
static bool calls_is_plain(const Calls *calls, const Given *given)
{
    switch (given->key.name) {
    case BARRIER: return calls->board == NULL;
    case ALL_REDUCE:
    case BROADCAST: return given->key.count == PyArray_NDIM(given->array);
    case REDUCE: return given->key.count == 1 + PyArray_NDIM(given->array);
    default: return given->key.name < NAMES;
    }
}

/* Whether all parts that this rank has are of one size. */
static bool calls_is_even(const Given *given)
{
    for (int i = 0; i < given->many; i++)
        if (given->parts[i].count != given->whole.count)
            return false;
    return true;
}

/* How many bytes of a call between hosts decide whether they go along: those that all ranks know. */
static int64_t calls_known_nbytes(const Calls *calls, const Given *given)
{
    bool reduces = given_reduces(given);
    if (calls->wire != NULL && !reduces && given->key.name != BROADCAST)
        return 0; /* there goes to each rank what is short enough */
    size_t count = given->many > 0 ? 0 : given->whole.count;
    for (int i = 0; i < given->many; i++)
        count += given->parts[i].count;
    bool widens = calls->relay != NULL && reduces;
    return (int64_t)(count * (widens ? kernels_kind_nbytes(kernels_accumulation_kind(given->op, given->kind)) : given->route.item));
}

/* Whether the data of a call between hosts goes along with the comparison, and that of all ranks does. */
static bool calls_goes_along(Calls *calls, const Given *given)
{
    if (calls->relay != NULL && (given_is_each_its_own(given) || !calls_is_even(given)))
        return false;
    int64_t *most = &calls->along_nbytes[given->key.name];
    if (*most == UNASKED) {
        PyObject *said = PyObject_CallOneArg(calls->along, given_name(given->key.name));
        *most = said == NULL ? UNASKED : PyLong_AsLongLong(said);
        Py_XDECREF(said);
    }
    return calls_known_nbytes(calls, given) <= *most;
}

/* Whether the group's table allows a call on any machine: it has the dtypes of each call and reduce op. */
static bool calls_is_certain(const Calls *calls, const Given *given)
{
    PyObject *ops = PyDict_GetItemWithError(calls->certain, given_name(given->key.name));
    if (ops == NULL || given->array == NULL)
        return ops != NULL;
    PyObject *dtypes = PyMapping_GetItemString(ops, given_reduces(given) ? kernels_op_name(given->op) : "");
    PyObject *dtype = dtypes == NULL ? NULL : PyUnicode_FromString(wording_dtype(given->kind));
    bool found = dtype != NULL && PySequence_Contains(dtypes, dtype) == 1;
    Py_XDECREF(dtypes);
    Py_XDECREF(dtype);
    PyErr_Clear(); /* of an op that is not in the table */
    return found;
}

/* Choose how to do a public call, if the group's table allows it: nothing else is left to be checked. Between hosts that is
   chosen here only if its data goes along. */
static bool calls_choose(Calls *calls, const Given *given, Doing *doing)
{
    if (calls->trail == NULL || !calls_is_plain(calls, given) || (calls->board == NULL && !calls_goes_along(calls, given)))
        return false;
    PyObject *text = wording_of(given, PyUnicode_AsUTF8(given_name(given->key.name))), *digest = NULL;
    PyObject *array = given->array == NULL ? Py_None : (PyObject *)given->array;
    if (text != NULL && calls_is_certain(calls, given))
        digest = PyObject_CallOneArg(calls->digest, text);
    else if (text != NULL)
        digest = PyObject_CallFunction(calls->allow, "OONO", given_name(given->key.name), array, calls_option_of(calls, given), text);
    Py_XDECREF(text);
    bool allowed = digest != NULL && digest != Py_None;
    if (allowed && calls->board != NULL)
        plans_make(doing, calls->board, given, PyLong_AsUnsignedLongLong(digest));
    else if (allowed)
        plans_make_along(doing, calls->members.rank, calls->members.size, given, PyLong_AsUnsignedLongLong(digest));
    Py_XDECREF(digest);
    return allowed && !PyErr_Occurred();
}

/* Choose how to do a call, or ask Python for a kind that it has prepared. */
static Plan *calls_learn(Calls *calls, const Given *given)
{
    Doing learnt;
    PyObject *kind = NULL;
    bool found = calls_choose(calls, given, &learnt);
    if (!found && !PyErr_Occurred()) {
        kind = calls_ask(calls, calls->learn, given);
        found = kind != NULL && kind != Py_None && plans_read(&learnt, kind, calls->board, given);
    }
    if (found && !calls_knows(calls, given, &learnt))
        learnt.way = NEVER;
    Plan *plan = found ? plans_keep(&calls->plans, &given->key, &learnt) : NULL;
    if (plan == NULL)
        Py_XDECREF(kind);
    return plan;
}

/* ------------------------------------------------------------------ carrying out */

/* Why a call has ended like that; NULL where the calls differ, which all ranks find out together. */
static PyObject *calls_reason(const Calls *calls, Ending ending)
{
    if (ending == UNLIKE)
        return NULL;
    PyObject *error = ending == BROKEN ? NULL : PyObject_CallNoArgs(calls->garbled);
    return error == NULL ? arguments_raised() : error;
}

PyObject *calls_explain(Calls *calls, PyObject *hook, const Given *given, const Doing *doing, uint64_t sequence, Ending ending, PyObject *deadline)
{
    PyObject *error = calls_reason(calls, ending);
    PyObject *kind = given == NULL ? Py_NewRef(Py_None) : calls_kind_of(calls, given, doing);
    PyObject *told = kind == NULL ? NULL : PyObject_CallFunction(hook, "OKOO", kind, (unsigned long long)sequence, error == NULL ? Py_None : error, deadline);
    Py_XDECREF(kind);
    Py_XDECREF(error);
    if (told == Py_None) {
        PyErr_SetString(PyExc_SystemError, "a call that has failed was not explained");
        Py_CLEAR(told);
    }
    return told;
}

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
    if (calls->relay != NULL)
        return (doing->program != NULL || !given_is_each_its_own(given)) && relay_fits(calls->relay, doing->way == PROGRAM ? NULL : given);
    if (doing->way == PROGRAM || calls->wire == NULL)
        return true;
    bool can_reduce = !given_reduces(given) || kernels_merge_of(given->op, kernels_accumulation_kind(given->op, given->kind)) != NULL;
    return can_reduce && swaps_fit(calls->wire, given);
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
    Ending ending = program_run(program, calls->relay, calls->board, call, &works, &waited_ns);
    if (calls->relay != NULL)
        relay_note_waits(calls->relay, waited_ns);
    else if (calls->wire != NULL)
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

/* Compare the calls of all ranks; what goes along, or can be done at the board right away, is done then. A program follows. */
static Ending calls_open(Calls *calls, const Doing *doing, Given *given, Call *call)
{
    bool alone = doing->way == PROGRAM;
    if (calls->relay != NULL)
        return relay_run(calls->relay, call, call->about, alone ? NULL : given, NULL);
    if (calls->wire != NULL) {
        Swap swap = {.wire = calls->wire, .about = call->about, .deadline = &call->deadline};
        return alone ? swaps_compare(&swap) : swaps_along(&swap, given);
    }
    if (!board_enter(calls->board))
        return BROKEN;
    call->lends = !alone;
    Ending ending = alone ? collectives_meet(call) : plans_go(doing, call, given);
    if (call->written_to)
        given_keep(given);
    call->lends = false;
    board_leave(calls->board);
    return ending;
}

/* Up to how many bytes a call at a board is noted while the others come: what it does before takes no longer than that. */
enum { MOST_NOTED_LATE_NBYTES = 4096 };

/* What the recorder notes of a call that begins. */
typedef struct {
    Calls *calls;
    const Given *given;
} Beginning;

static void calls_begin(void *what)
{
    const Beginning *beginning = what;
    PyArrayObject *array = beginning->given->array;
    PyObject *dtype = array == NULL ? NULL : (PyObject *)PyArray_DESCR(array);
    npy_intp nbytes = array == NULL ? 0 : PyArray_NBYTES(array);
    trail_begin(beginning->calls->trail, given_name(beginning->given->key.name), dtype, nbytes, 0);
}

bool calls_carry_out(Calls *calls, const Doing *doing, Given *given, uint64_t sequence, PyObject *deadline, PyObject *hook,
                            Meanwhile begin, PyObject **again)
{
    uint64_t about[RECORD_WORDS];
    memcpy(about, doing->about, sizeof about);
    about[SEQUENCE] = sequence;
    Call call = {.board = calls->board, .about = about, .await = calls->wait, .holds = true, .deadline = Py_NewRef(deadline), .begin = begin};
    if (calls->board == NULL || given->whole.count * given->route.item > MOST_NOTED_LATE_NBYTES)
        collectives_begin(&call);
    Ending ending = calls_open(calls, doing, given, &call);
    bool apart = ending == APART;
    if (apart)
        ending = doing->program == NULL ? UNLIKE : calls_keep_apart(calls, doing);
    if (ending == DONE && (apart || doing->way == PROGRAM))
        ending = calls_follow(calls, doing, given, &call);
    collectives_begin(&call);
    *again = ending == DONE ? NULL : calls_explain(calls, hook, given, doing, sequence, ending, call.deadline);
    Py_DECREF(call.deadline);
    return ending == DONE;
}

/* Make a public call, whose turn it is. */
static bool calls_make(Calls *calls, const Doing *doing, Given *given, PyObject *timeout)
{
    Beginning beginning = {calls, given};
    Meanwhile begin = {calls_begin, &beginning};
    uint64_t sequence;
    bool done;
    int64_t waited_ns = *calls->waited_ns;
    PyObject *until = Py_NewRef(timeout);
    do { /* once; and again where the ranks' memory orders differ */
        PyObject *again = NULL;
        done = arguments_next_number(calls->sequence, &sequence) && calls_carry_out(calls, doing, given, sequence, until, calls->broken, begin, &again);
        begin = (Meanwhile){0};
        Py_DECREF(until);
        until = again;
    } while (until != NULL);
    if (!done)
        return false;
    trail_end(calls->trail, *calls->waited_ns - waited_ns);
    return true;
}

void calls_drop(Doing *doing)
{
    doing->way = NEVER;
    Py_CLEAR(doing->kind);
    Py_CLEAR(doing->program);
}

bool calls_find(Calls *calls, const Given *given, Doing *doing)
{
    Plan *plan = plans_known(&calls->plans, &given->key);
    if (plan == NULL)
        plan = calls_learn(calls, given);
    if (plan == NULL || plan->doing.way == NEVER)
        return false;
    *doing = plan->doing;
    Py_XINCREF(doing->kind);
    bool known = doing->kind == NULL || (doing->way != PROGRAM && calls->relay == NULL);
    if (!known) { /* of several hosts a program may follow where not all have sent their data along */
        doing->program = PyObject_GetAttrString(doing->kind, "program");
        if (doing->program == Py_None)
            Py_CLEAR(doing->program);
        known = doing->program == NULL ? doing->way == ALONG && !PyErr_Occurred() : PyObject_TypeCheck(doing->program, &ProgramType);
    }
    if (known && calls_fits(calls, doing, given))
        return true;
    calls_drop(doing);
    return false;
}

/* Whether what was given can be done here, as was found before or is found now. */
static bool calls_knows_how(Calls *calls, const Given *given, Found *found)
{
    if (found->doing.way != NEVER && found->forgotten == calls->plans.forgotten)
        return calls_fits(calls, &found->doing, given);
    calls_drop(&found->doing);
    if (!calls_find(calls, given, &found->doing))
        return false;
    found->forgotten = calls->plans.forgotten;
    return true;
}

bool calls_do(Calls *calls, Given *given, Found *found, PyObject *timeout)
{
    if (!calls_enter(calls))
        return false;
    bool done = calls_knows_how(calls, given, found) && calls_make(calls, &found->doing, given, timeout);
    PyObject *error = !done && PyErr_Occurred() ? arguments_raised() : NULL;
    if (!calls_leave(calls) && error == NULL)
        error = arguments_raised();
    bool well = error == NULL;
    arguments_raise(error);
    return well && done;
}
