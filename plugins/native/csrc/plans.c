#include "plans.h"
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
    while (plan->doing.kind != NULL) {
        if (plan->key.name == key->name && plan->key.option == key->option && plan->key.type == key->type &&
            plan->key.count == key->count &&
            memcmp(plan->key.numbers, key->numbers, (size_t)key->count * sizeof *key->numbers) == 0)
            return plan;
        plan = plan == &plans->table[plans->places - 1] ? plans->table : plan + 1;
    }
    return plan;
}

Plan *plans_known(const Plans *plans, const Key *key)
{
    Plan *plan = plans->places == 0 ? NULL : plans_place(plans, key);
    return plan == NULL || plan->doing.kind == NULL ? NULL : plan;
}

void plans_forget(Plans *plans)
{
    Plan *table = plans->table;
    int places = plans->places;
    plans->table = NULL;
    plans->taken = plans->places = 0;
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
        if (old[i].doing.kind != NULL)
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
    plans->taken += plan->doing.kind == NULL;
    Py_XDECREF(plan->doing.kind);
    *plan = (Plan){.key = *key, .doing = *doing};
    return plan;
}
