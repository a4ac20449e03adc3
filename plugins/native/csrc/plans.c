#include "plans.h"
#include "shared.h"
#include <string.h>

/* How many places there are at first and at the most; no more than half of them are taken. */
enum { FEWEST_PLACES = 8, MOST_PLACES = 512 };

static unsigned plans_hash_of(const Key *key)
{
    uint64_t mixed = (uint64_t)key->name * 31 + (uint64_t)key->option;
    mixed = mixed * 1000003 + (uint64_t)key->type;
    for (int i = 0; i < key->count; i++)
        mixed = (mixed ^ (uint64_t)key->numbers[i]) * 0x9E3779B97F4A7C15u;
    return (unsigned)(mixed >> 32);
}

/* The place of a plan, which is empty if it is not known; there are places. */
static Plan *plans_place(const Plans *plans, const Key *key)
{
    Plan *plan = &plans->table[plans_hash_of(key) % (unsigned)plans->places];
    while (plan->taken) {
        if (plan->key.name == key->name && plan->key.option == key->option && plan->key.type == key->type &&
            plan->key.count == key->count &&
            memcmp(plan->key.numbers, key->numbers, (size_t)key->count * sizeof *key->numbers) == 0)
            return plan;
        plan = plan == &plans->table[plans->places - 1] ? plans->table : plan + 1;
    }
    return plan;
}

/* ------------------------------------------------------------------ what is chosen at a board, as board/prepared.py does */

/* What tells apart ranks that go different ways, which must not go on: see `_salt` of board/call.py. */
static uint64_t plans_salt(Way way, int name)
{
    bool to_all = name == BROADCAST || name == ALL_GATHER;
    const char *text = way == MEET ? "Barrier" : way == ONE_SHOT ? "OneShot" : way == TWO_SHOT ? "TwoShot" : way == COMBINE ? "Combine" : to_all ? "ToAll" : "Move";
    uint64_t salt = 0;
    for (int i = 0; i < 8 && text[i] != '\0'; i++)
        salt |= (uint64_t)(unsigned char)text[i] << 8 * i;
    return salt;
}

static Way plans_choose(const Board *board, const Given *given)
{
    size_t nbytes = given->whole.count * given->route.item;
    switch (given->key.name) {
    case BARRIER: return MEET;
    case ALL_REDUCE:
    case REDUCE: return nbytes <= board->area_nbytes && nbytes * (size_t)(board->size - 1) <= ONE_SHOT_NBYTES ? ONE_SHOT : TWO_SHOT;
    case REDUCE_SCATTER: return COMBINE;
    default: return MOVE;
    }
}

/* From how many elements on a part is copied from its owner's memory; what is reduced is not. */
static size_t plans_fetch_count(const Board *board, const Given *given)
{
    if (board->pids == NULL || given->key.name == REDUCE_SCATTER)
        return SIZE_MAX;
    const Fetched *fetched = &board->fetched;
    size_t nbytes = given->key.name == BROADCAST ? fetched->all_nbytes : fetched->one_nbytes;
    return (nbytes + given->route.item - 1) / given->route.item;
}

/* The longest part that is cut into pieces, and FETCHES besides if any is not. */
static uint64_t plans_longest(const Board *board, const Given *given, size_t fetch_count)
{
    uint64_t longest = 0, fetches = 0;
    bool spares_own = given_is_each_its_own(given);
    for (int i = 0; i < (given->many > 0 ? given->many : 1); i++) {
        size_t count = given->many > 0 ? given->parts[i].count : given->whole.count;
        if (given->many > 0 && spares_own && i % board->size == board->rank)
            continue;
        if (count >= fetch_count)
            fetches = FETCHES;
        else if (count > longest)
            longest = count;
    }
    return longest | fetches;
}

/* Mix the count of one pair: see `_pair` of collective/fingerprint.py of the core. */
static uint64_t plans_pair(int source, int target, size_t count)
{
    uint64_t mixed = (uint64_t)source * 0x9E3779B97F4A7C15u + (uint64_t)target * 0xC2B2AE3D27D4EB4Fu + count * 0x165667B19E3779F9u;
    mixed = (mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9u;
    return mixed ^ mixed >> 29;
}

/* What stands for all counts that this rank sends, and receives, where each pair agrees for itself. */
static void plans_sum(int rank, int size, const Given *given, uint64_t about[RECORD_WORDS])
{
    int name = given->key.name;
    if (name == GATHER)
        about[SENT] = plans_pair(rank, given->root, given->whole.count);
    if (name == SCATTER)
        about[RECEIVED] = plans_pair(given->root, rank, given->whole.count);
    for (int i = 0; given_is_each_its_own(given) && i < given->many; i++) { /* of an all_to_all first what goes */
        if (name == GATHER || i >= size)
            about[RECEIVED] += plans_pair(i % size, rank, given->parts[i].count);
        else
            about[SENT] += plans_pair(rank, i, given->parts[i].count);
    }
}

void plans_make_along(Doing *doing, int rank, int size, const Given *given, uint64_t digest)
{
    *doing = (Doing){.way = ALONG};
    doing->about[DIGEST] = digest;
    doing->about[COUNT] = given->whole.count;
    plans_sum(rank, size, given, doing->about);
}

void plans_make(Doing *doing, const Board *board, const Given *given, uint64_t digest)
{
    Way way = plans_choose(board, given);
    plans_make_along(doing, board->rank, board->size, given, digest ^ plans_salt(way, given->key.name));
    doing->way = way;
    if (way == MOVE || way == COMBINE) {
        doing->fetch_count = plans_fetch_count(board, given);
        doing->about[LONGEST] = plans_longest(board, given, doing->fetch_count);
    }
}

/* ------------------------------------------------------------------ what a kind says of itself */

/* Take the record and the way of a kind that Python has prepared. */
static void plans_take(Doing *doing, PyObject *kind, PyObject *about)
{
    PyObject *way = PyObject_GetAttrString(kind, "way");
    long number = way == NULL ? NEVER : PyLong_AsLong(way);
    Py_XDECREF(way);
    doing->way = number > NEVER && number < WAYS ? (Way)number : NEVER;
    if (!PyErr_Occurred() && (!PyTuple_CheckExact(about) || PyTuple_GET_SIZE(about) != RECORD_WORDS - 1))
        PyErr_SetString(PyExc_TypeError, "a kind of call has another record");
    for (int i = 1; i < RECORD_WORDS && !PyErr_Occurred(); i++)
        doing->about[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(about, i - 1));
}

bool plans_read(Doing *doing, PyObject *kind, const Board *board, const Given *given)
{
    *doing = (Doing){.way = NEVER};
    PyObject *about = PyObject_GetAttrString(kind, "about");
    if (about != NULL && board != NULL && given->key.name < NAMES)
        plans_make(doing, board, given, PyLong_AsUnsignedLongLong(about));
    else if (about != NULL)
        plans_take(doing, kind, about);
    Py_XDECREF(about);
    doing->kind = kind;
    return !PyErr_Occurred();
}

/* ------------------------------------------------------------------ at the board */

bool plans_has_room(const Doing *doing, const Board *board, const Given *given)
{
    Way way = doing->way;
    if (given->key.name >= NAMES || way == MEET) /* of others the way has been chosen by their name */
        return given->key.name < NAMES;
    bool reduces = way != MOVE;
    if (reduces && (board->size < 2 || kernels_merge_of(given->op, kernels_accumulation_kind(given->op, given->kind)) == NULL))
        return false;
    size_t item = kernels_kind_nbytes(given->kind);
    switch (way) {
    case ONE_SHOT: return given->whole.count <= board->area_nbytes / item;
    case TWO_SHOT: return board_slot_nbytes(board, board->size) >= item;
    default: return board_slot_nbytes(board, given->route.slots) >= given->route.item;
    }
}

/* What this rank tells of the memory in which the outcome of an `all_gather` or a `broadcast` lies. */
static uint64_t plans_word_of(const Board *board, const Given *given)
{
    if (given->key.name == BROADCAST)
        return shared_word_of(&given->whole, 1, given->route.item, true);
    Part parts[MOST_PARTS] = {0};
    parts[board->rank] = given->keep_to;
    for (int i = 0; i < given->route.takes; i++)
        parts[given->route.take[i].peer] = given->route.take[i].part;
    return shared_word_of(parts, board->size, given->route.item, given->keep_to.bytes == given->keep_from.bytes);
}

/* Tell of memory in common, in the place of the longest part. */
static void plans_tell(Call *call, uint64_t word)
{
    if (word != 0)
        call->about[LONGEST] = word;
}

/* Copy data; ranks may have the outcome in common, and then tell so. */
static Ending plans_move(Call *call, Given *given)
{
    Route *route = &given->route;
    route->common = given->key.name == ALL_GATHER || given->key.name == BROADCAST;
    route->word = route->common && call->board->size <= MOST_PARTS ? plans_word_of(call->board, given) : 0;
    plans_tell(call, route->word);
    return collectives_move(call, route, given->keep_to, given->keep_from);
}

/* Reduce for all in the ranks' arrays themselves where these are in memory in common, and of a dtype that is summed as it is. */
static Ending plans_reduce(Call *call, const Given *given, const Reduced *reduced)
{
    Blocks blocks = {0};
    if (given->key.name == ALL_REDUCE && kernels_accumulation_kind(given->op, given->kind) == given->kind)
        blocks = shared_blocks_of(given->whole, kernels_kind_nbytes(given->kind));
    plans_tell(call, blocks.word);
    return reductions_two_shot(call, reduced, blocks.word == 0 ? NULL : &blocks);
}

Ending plans_go(const Doing *doing, Call *call, Given *given)
{
    bool takes = given->root < 0 || given->root == call->board->rank;
    given->route.fetch_count = doing->way == MOVE ? doing->fetch_count : SIZE_MAX;
    /* The others may send more than this rank knows. */
    given->route.told = given_is_each_its_own(given);
    given->route.longest = doing->about[LONGEST];
    given->route.common = false;
    given->route.word = 0;
    Reduced reduced = {given->whole.bytes, given->whole.count, given->op, given->kind, takes, takes && given->root >= 0};
    switch (doing->way) {
    case MEET: return collectives_meet(call);
    case ONE_SHOT: return reductions_one_shot(call, &reduced);
    case TWO_SHOT: return plans_reduce(call, given, &reduced);
    case MOVE: return plans_move(call, given);
    default: return reductions_combine(call, &given->route, given->keep_from.bytes, given->whole.bytes, given->op, given->kind);
    }
}

/* ------------------------------------------------------------------ those that are known */

Plan *plans_known(const Plans *plans, const Key *key)
{
    Plan *plan = plans->places == 0 ? NULL : plans_place(plans, key);
    return plan == NULL || !plan->taken ? NULL : plan;
}

void plans_forget(Plans *plans)
{
    Plan *table = plans->table;
    int places = plans->places;
    plans->table = NULL;
    plans->taken = plans->places = 0;
    plans->forgotten++;
    for (int i = 0; i < places; i++)
        Py_XDECREF(table[i].doing.kind);
    PyMem_Free(table);
}

/* Have room for one plan more; a program that makes ever new calls begins anew. */
static bool plans_make_room(Plans *plans)
{
    if (2 * plans->taken < plans->places)
        return true;
    if (plans->places == MOST_PLACES)
        plans_forget(plans);
    int places = plans->places, more = places == 0 ? FEWEST_PLACES : 2 * places;
    Plan *old = plans->table, *table = PyMem_Calloc((size_t)more, sizeof *table);
    if (table == NULL)
        return false;
    plans->table = table;
    plans->places = more;
    for (int i = 0; i < places; i++)
        if (old[i].taken)
            *plans_place(plans, &old[i].key) = old[i];
    PyMem_Free(old);
    return true;
}

Plan *plans_keep(Plans *plans, const Key *key, const Doing *doing)
{
    if (!plans_make_room(plans)) {
        PyErr_NoMemory();
        return NULL;
    }
    Plan *plan = plans_place(plans, key);
    plans->taken += !plan->taken;
    Py_XDECREF(plan->doing.kind);
    *plan = (Plan){.taken = true, .key = *key, .doing = *doing};
    return plan;
}
