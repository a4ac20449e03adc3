#include "program.h"
#include "arguments.h"
#include <string.h>

/* Memory beside the arrays begins at multiples of so many bytes. */
enum { PROGRAM_ALIGN = 64 };

/* Where something lies in the arrays of a call. */
typedef struct {
    int base;
    size_t offset;
} Place;

typedef enum { AT_BOARD, TRANSFERRED, COPIED, AVERAGED, COMBINED } What;

struct Step {
    What what;
    Doing doing; /* at the board; it holds no kind */
    Given given; /* ... and what is worked on, as it was when this was noted */
    Transfer transfer; /* over a wire, which is owned as the dtype is, likewise */
    Part to, from; /* of what is copied, or averaged in place, or reduced into the first; counted in bytes */
    Merge merge;
    bool left; /* whether what is reduced into another is the left operand */
    Kind kind;
    size_t item;
    int size; /* of how many ranks the average is */
    int places;
    Place *place; /* where all of that lies, in the order of program_list */
};

/* ------------------------------------------------------------------ what lies where */

enum { MOST_PLACES = 2 * MOST_PARTS + 4 };

/* One thing that a step works on: how its address is kept, and its length in bytes. */
typedef struct {
    unsigned char **bytes;
    PyArrayObject **owner; /* NULL where nobody asks for it */
    size_t nbytes;
} Item;

static void program_add(Item *items, int *count, Part *part, size_t item, PyArrayObject **owner)
{
    if (part->count > 0)
        items[(*count)++] = (Item){&part->bytes, owner, part->count * item};
}

/* List all that a step works on. */
static int program_list(Step *step, Item items[MOST_PLACES])
{
    int count = 0;
    Given *given = &step->given;
    Transfer *transfer = &step->transfer;
    Route *route = &given->route;
    switch (step->what) {
    case AT_BOARD:
        for (int i = 0; i < route->sends; i++)
            program_add(items, &count, &route->send[i].part, route->item, NULL);
        for (int i = 0; i < route->takes; i++)
            program_add(items, &count, &route->take[i].part, route->item, NULL);
        program_add(items, &count, &given->keep_to, route->item, NULL);
        program_add(items, &count, &given->keep_from, route->item, NULL);
        program_add(items, &count, &given->whole, route->item, NULL);
        break;
    case TRANSFERRED:
        for (int i = 0; i < MOST_PARCELS; i++) {
            program_add(items, &count, &transfer->out[i].part, transfer->item, &transfer->out[i].owner);
            program_add(items, &count, &transfer->into[i].part, transfer->item, &transfer->into[i].owner);
        }
        break;
    default:
        program_add(items, &count, &step->to, 1, NULL);
        program_add(items, &count, &step->from, 1, NULL);
    }
    return count;
}

/* The arrays that a program was noted with. */
typedef struct {
    Program *program;
    PyObject *arrays, *scratch; /* tuples */
    size_t starts[MOST_STEPS * MOST_PARCELS]; /* where each piece of scratch memory begins */
} Noted;

/* Each array, and then each piece of scratch memory. */
static PyObject *program_noted(const Noted *noted, Py_ssize_t i)
{
    Py_ssize_t arrays = PyTuple_GET_SIZE(noted->arrays);
    return i < arrays ? PyTuple_GET_ITEM(noted->arrays, i) : PyTuple_GET_ITEM(noted->scratch, i - arrays);
}

static bool program_holds(PyObject *array, const Item *item)
{
    const unsigned char *start = PyArray_DATA((PyArrayObject *)array), *end = start + PyArray_NBYTES((PyArrayObject *)array);
    return *item->bytes >= start && item->nbytes <= (size_t)(end - start) && *item->bytes + item->nbytes <= end;
}

/* Find where something lies; false if it lies in none of them. */
static bool program_place(const Noted *noted, const Item *item, Place *place)
{
    Py_ssize_t arrays = PyTuple_GET_SIZE(noted->arrays), count = arrays + PyTuple_GET_SIZE(noted->scratch), i = 0;
    while (i < count && !program_holds(program_noted(noted, i), item))
        i++;
    if (i == count)
        return false;
    size_t at = (size_t)(*item->bytes - (unsigned char *)PyArray_DATA((PyArrayObject *)program_noted(noted, i)));
    *place = i < arrays ? (Place){(int)i, at} : (Place){noted->program->bases, noted->starts[i - arrays] + at};
    return true;
}

static bool program_place_all(const Noted *noted, Step *step)
{
    Item items[MOST_PLACES];
    step->places = program_list(step, items);
    step->place = PyMem_Calloc((size_t)step->places + 1, sizeof *step->place);
    bool found = step->place != NULL;
    for (int i = 0; found && i < step->places; i++)
        found = program_place(noted, &items[i], &step->place[i]);
    return found;
}

/* Return a step with what a call works on in its places. */
static void program_move(Step *step, const Step *noted, const Works *works)
{
    Item items[MOST_PLACES];
    *step = *noted;
    int count = program_list(step, items);
    for (int i = 0; i < count; i++) {
        Place place = noted->place[i];
        *items[i].bytes = works->bases[place.base].part.bytes + place.offset;
        if (items[i].owner != NULL)
            *items[i].owner = works->bases[place.base].owner;
    }
}

/* ------------------------------------------------------------------ taking steps */

/* (kind, name, arguments) */
static bool program_take_at_board(Step *step, const Board *board, PyObject *ops, PyObject *from)
{
    PyObject *kind, *args;
    const char *name;
    if (!PyArg_ParseTuple(from, "OsO!", &kind, &name, &PyTuple_Type, &args) || board == NULL)
        return false;
    const Members members = {.rank = board->rank, .size = board->size, .ops = ops};
    const Taker *taker = given_taker(name);
    step->given.holds = 0;
    bool taken = taker != NULL && PyTuple_GET_SIZE(args) == taker->count && taker->take(&members, ((PyTupleObject *)args)->ob_item, &step->given) &&
                 plans_read(&step->doing, kind, board, &step->given) && plans_has_room(&step->doing, board, &step->given);
    step->doing.kind = NULL;
    given_drop(&step->given); /* what it is taken from is not needed later */
    return taken;
}

/* (wire, array, op), or (wire, sent, taken, op, nbytes) */
static bool program_take_transfer(Step *step, PyObject *from)
{
    PyObject *wire, *first, *second;
    const char *op;
    Py_ssize_t nbytes;
    bool taken = false;
    step->what = TRANSFERRED;
    if (PyTuple_GET_SIZE(from) == 3)
        taken = PyArg_ParseTuple(from, "O!Os", &WireType, &wire, &first, &op) && transfers_take_reduction(&step->transfer, (Wire *)wire, first, op);
    else if (PyArg_ParseTuple(from, "O!O!O!zn", &WireType, &wire, &PyTuple_Type, &first, &PyTuple_Type, &second, &op, &nbytes))
        taken = transfers_take_exchange(&step->transfer, (Wire *)wire, first, second, op, nbytes);
    for (int i = 0; taken && i < MOST_PARCELS; i++) /* where nothing is sent there is no place either */
        taken = (step->transfer.out[i].owner == NULL || step->transfer.out[i].part.count > 0) &&
                (step->transfer.into[i].owner == NULL || step->transfer.into[i].part.count > 0);
    if (!taken)
        memset(&step->transfer, 0, sizeof step->transfer);
    Py_XINCREF(step->transfer.wire);
    Py_XINCREF(step->transfer.dtype);
    return taken;
}

static bool program_take_bytes(Part *part, PyArrayObject *array)
{
    if (array != NULL)
        *part = (Part){PyArray_DATA(array), (size_t)PyArray_NBYTES(array)};
    return array != NULL;
}

/* (target, source) */
static bool program_take_copy(Step *step, PyObject *from)
{
    PyObject *target, *source;
    step->what = COPIED;
    return PyArg_ParseTuple(from, "OO", &target, &source) && program_take_bytes(&step->to, arguments_plain(target, true)) &&
           program_take_bytes(&step->from, arguments_plain(source, false)) && step->to.count == step->from.count;
}

/* (array, size) */
static bool program_take_average(Step *step, PyObject *from)
{
    PyObject *given;
    step->what = AVERAGED;
    if (!PyArg_ParseTuple(from, "Oi", &given, &step->size))
        return false;
    PyArrayObject *array = arguments_plain(given, true);
    int kind = array == NULL ? -1 : arguments_kind(array);
    step->kind = (Kind)kind;
    step->item = array == NULL ? 1 : (size_t)PyArray_ITEMSIZE(array);
    return kind >= 0 && kernels_accumulation_kind(AVG, step->kind) == step->kind && step->size > 0 && program_take_bytes(&step->to, array);
}

/* (op, array, what is reduced into it, whether that is the left operand) */
static bool program_take_combination(Step *step, PyObject *from)
{
    const char *name;
    PyObject *total, *other;
    int left;
    step->what = COMBINED;
    if (!PyArg_ParseTuple(from, "sOOp", &name, &total, &other, &left))
        return false;
    PyArrayObject *to = arguments_plain(total, true), *more = arguments_plain(other, false);
    Op op = kernels_op_named(name);
    int kind = to == NULL ? -1 : arguments_kind(to);
    if (more == NULL || kind < 0 || arguments_kind(more) != kind || op == OPS || kernels_accumulation_kind(op, (Kind)kind) != (Kind)kind)
        return false;
    step->merge = kernels_merge_of(op, (Kind)kind);
    step->item = kernels_kind_nbytes((Kind)kind);
    step->left = left != 0;
    return step->merge != NULL && program_take_bytes(&step->to, to) && program_take_bytes(&step->from, more) && step->to.count == step->from.count;
}

/* Take a name and what that step has. */
static bool program_take_step(Step *step, const Board *board, PyObject *ops, PyObject *from)
{
    const char *name;
    PyObject *rest;
    if (!PyTuple_CheckExact(from) || !PyArg_ParseTuple(from, "sO!", &name, &PyTuple_Type, &rest))
        return false;
    if (strcmp(name, "collective") == 0)
        return program_take_at_board(step, board, ops, rest);
    if (strcmp(name, "transfer") == 0)
        return program_take_transfer(step, rest);
    if (strcmp(name, "combine") == 0)
        return program_take_combination(step, rest);
    return strcmp(name, "copy") == 0 ? program_take_copy(step, rest) : strcmp(name, "average") == 0 && program_take_average(step, rest);
}

/* Take arrays like those that the program works on; false if they are too many. */
static bool program_take_arrays(Noted *noted)
{
    Program *program = noted->program;
    Py_ssize_t arrays = PyTuple_GET_SIZE(noted->arrays), pieces = PyTuple_GET_SIZE(noted->scratch);
    if (arrays > MOST_BASES || pieces > MOST_STEPS * MOST_PARCELS)
        return false;
    for (Py_ssize_t i = 0; i < arrays + pieces; i++) {
        PyArrayObject *array = arguments_plain(program_noted(noted, i), true);
        if (array == NULL)
            return false;
        size_t nbytes = (size_t)PyArray_NBYTES(array);
        if (i < arrays)
            program->needs[i] = nbytes;
        else {
            noted->starts[i - arrays] = program->scratch_nbytes;
            program->scratch_nbytes += (nbytes + PROGRAM_ALIGN - 1) & ~(size_t)(PROGRAM_ALIGN - 1);
        }
    }
    program->bases = (int)arrays;
    return true;
}

PyObject *program_new(const Board *board, PyObject *ops, PyObject *arrays, PyObject *scratch, PyObject *steps)
{
    Py_ssize_t count = PyList_GET_SIZE(steps);
    if (count > MOST_STEPS)
        Py_RETURN_NONE;
    Program *program = (Program *)ProgramType.tp_alloc(&ProgramType, 0);
    if (program == NULL)
        return NULL;
    Noted noted = {.program = program, .arrays = arrays, .scratch = scratch};
    program->steps = PyMem_Calloc((size_t)count + 1, sizeof *program->steps);
    bool taken = program->steps != NULL && program_take_arrays(&noted);
    for (Py_ssize_t i = 0; taken && i < count; i++) {
        Step *step = &program->steps[program->count++];
        taken = program_take_step(step, board, ops, PyList_GET_ITEM(steps, i)) && program_place_all(&noted, step);
    }
    if (taken)
        return (PyObject *)program;
    Py_DECREF(program);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ------------------------------------------------------------------ carrying out */

bool program_fits(const Program *program, const Works *works)
{
    bool fits = works->count == program->bases;
    for (int i = 0; fits && i < works->count; i++)
        fits = works->bases[i].part.count * (size_t)PyArray_ITEMSIZE(works->bases[i].owner) == program->needs[i];
    return fits;
}

/* Make a collective of this host. It is a call of that one's group, but has no number where that is the group itself. */
static Ending program_meet(Step *step, const Relay *relay, Board *board, Call *call)
{
    uint64_t about[RECORD_WORDS];
    memcpy(about, step->doing.about, sizeof about);
    about[SEQUENCE] = 0;
    if (relay != NULL && !arguments_next_number(relay->sequence, &about[SEQUENCE]))
        return BROKEN;
    call->board = board;
    call->about = about;
    Ending ending = plans_go(&step->doing, call, &step->given);
    return ending == UNLIKE ? GARBLED : ending;
}

static Ending program_transfer(const Step *step, Call *call, int64_t *waited_ns)
{
    const Wire *wire = step->transfer.wire;
    int64_t before_ns = wire->waited_ns;
    Ending ending = transfers_run(&step->transfer, &call->deadline);
    *waited_ns += wire->waited_ns - before_ns;
    return ending;
}

/* Copy, average in place, or reduce; without the interpreter where that takes long. */
static void program_work(const Step *step)
{
    PyThreadState *let_go = step->to.count > LONG_NBYTES ? PyEval_SaveThread() : NULL;
    if (step->what == AVERAGED)
        kernels_average(step->to.bytes, step->kind, step->to.count / step->item, step->size);
    else if (step->what == COMBINED)
        step->merge(step->to.bytes, step->left ? step->from.bytes : step->to.bytes, step->left ? step->to.bytes : step->from.bytes, step->to.count / step->item);
    else if (step->to.bytes != step->from.bytes)
        memmove(step->to.bytes, step->from.bytes, step->to.count);
    if (let_go != NULL)
        PyEval_RestoreThread(let_go);
}

static Ending program_make(Step *step, const Relay *relay, Board *board, Call *call, int64_t *waited_ns)
{
    if (step->what == AT_BOARD)
        return program_meet(step, relay, board, call);
    if (step->what == TRANSFERRED)
        return program_transfer(step, call, waited_ns);
    program_work(step);
    return DONE;
}

/* Give the credit that is owed for all that has come: in one direction alone nothing takes it along. */
static bool program_pay(const Program *program)
{
    for (int i = 0; i < program->count; i++)
        if (program->steps[i].what == TRANSFERRED && !wire_pay(program->steps[i].transfer.wire))
            return false;
    return true;
}

Ending program_run(const Program *program, Relay *relay, Board *board, Call *call, const Works *works, int64_t *waited_ns)
{
    board = relay == NULL ? board : relay->board;
    if (board != NULL && !board_enter(board))
        return BROKEN;
    Ending ending = DONE;
    call->holds = true;
    for (int i = 0; ending == DONE && i < program->count; i++) {
        Step step;
        program_move(&step, &program->steps[i], works);
        ending = program_make(&step, relay, board, call, waited_ns);
    }
    if (board != NULL)
        board_leave(board);
    return ending == DONE && !program_pay(program) ? BROKEN : ending;
}

/* ------------------------------------------------------------------ the type */

static int program_traverse(Program *program, visitproc visit, void *arg)
{
    for (int i = 0; i < program->count; i++)
        Py_VISIT(program->steps[i].transfer.wire);
    return 0;
}

static int program_clear(Program *program)
{
    for (int i = 0; i < program->count; i++) {
        Py_CLEAR(program->steps[i].transfer.wire);
        Py_CLEAR(program->steps[i].transfer.dtype);
    }
    return 0;
}

static void program_free(Program *program)
{
    PyObject_GC_UnTrack(program);
    program_clear(program);
    for (int i = 0; i < program->count; i++)
        PyMem_Free(program->steps[i].place);
    PyMem_Free(program->steps);
    Py_TYPE(program)->tp_free((PyObject *)program);
}

PyTypeObject ProgramType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Program",
    .tp_basicsize = sizeof(Program),
    .tp_dealloc = (destructor)program_free,
    .tp_traverse = (traverseproc)program_traverse,
    .tp_clear = (inquiry)program_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
};

int program_add_types(PyObject *module)
{
    return PyModule_AddType(module, &ProgramType);
}
