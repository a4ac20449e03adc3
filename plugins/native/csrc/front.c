/* A public function whose plain calls do not run Python: a compiled shortcut of the group makes them. Every other call, and
   what the shortcut does not take, goes to the function itself, with the same arguments. */
#include "arguments.h"
#include "hooks.h"
#include <stddef.h>
#include <structmember.h>

enum { MOST_PARAMETERS = 12, MOST_HANDED = 8 };

/* A parameter of the function. */
typedef struct {
    PyObject *name;  /* held by the tuple of all */
    PyObject *usual; /* what it is where it is left out, held by the dict of all; NULL if it must be given */
    bool may_differ; /* in a plain call */
} Parameter;

/* What a shortcut is handed: what is given for a parameter; the same, which is a global rank, as a rank in the group; the
   group; or always the same. */
typedef struct {
    enum { ARGUMENT, RANK, GROUP, ALWAYS } what;
    int parameter;
    PyObject *always; /* held by the tuple of all */
} Handed;

/* Where objects of a type have an attribute: those with slots at an offset, others, and those of another type, by name. */
typedef struct {
    PyTypeObject *type; /* held by the tuple of all */
    PyObject *name;
    Py_ssize_t offset; /* 0 if there is no slot */
} Place;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *attributes, *weakrefs;
    PyObject *function, *name, *names, *usual, *taken, *world, *types, *failed, *made;
    Place first, shortcuts, ranks, shortcut; /* a world's default group, a group's shortcuts and ranks, and the function's own among shortcuts */
    int count, group, hands; /* of parameters; which of them is the group; of what is handed over */
    Py_ssize_t positional;
    Parameter parameters[MOST_PARAMETERS];
    Handed handed[MOST_HANDED];
} Front;

static PyObject *text_default, *text_shortcuts, *text_rank_of, *text_group;

/* ------------------------------------------------------------------ attributes of Python's objects */

static Place front_place(PyTypeObject *type, PyObject *name)
{
    Place place = {type, name, 0};
    PyObject *slot = PyObject_GetAttr((PyObject *)type, name);
    if (slot != NULL && Py_IS_TYPE(slot, &PyMemberDescr_Type) && ((PyMemberDescrObject *)slot)->d_member->type == T_OBJECT_EX)
        place.offset = ((PyMemberDescrObject *)slot)->d_member->offset;
    PyErr_Clear();
    Py_XDECREF(slot);
    return place;
}

/* An attribute, as a new reference; NULL, perhaps without an exception, if it has none. */
static PyObject *front_get(const Place *place, PyObject *object)
{
    if (place->offset == 0 || !Py_IS_TYPE(object, place->type))
        return PyObject_GetAttr(object, place->name);
    return Py_XNewRef(*(PyObject **)((char *)object + place->offset));
}

/* ------------------------------------------------------------------ what a call says */

/* The place of a parameter among all; their number if there is none of this name, which is interned, as theirs are. */
static int front_place_of(const Front *front, const PyObject *name)
{
    int place = 0;
    while (place < front->count && front->parameters[place].name != name)
        place++;
    return place;
}

/* Put the arguments of a call, or what stands for them, in the order of the parameters; false if it is not a plain call. */
static bool front_sort(const Front *front, PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **values)
{
    if (count > front->positional)
        return false;
    for (int i = 0; i < front->count; i++)
        values[i] = i < count ? args[i] : front->parameters[i].usual;
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        int place = front_place_of(front, PyTuple_GET_ITEM(names, i));
        if (place < count || place == front->count)
            return false;
        values[place] = args[count + i];
    }
    for (int i = 0; i < front->count; i++)
        if (values[i] == NULL || (values[i] != front->parameters[i].usual && !front->parameters[i].may_differ))
            return false;
    return true;
}

/* The group that a call means, which is held; NULL, perhaps with an exception set, if Python has to look. */
static PyObject *front_group(const Front *front, PyObject *given)
{
    if (given != Py_None)
        return Py_IS_TYPE(given, front->shortcuts.type) ? Py_NewRef(given) : NULL;
    PyObject *world = NULL;
    if (PyContextVar_Get(front->world, NULL, &world) < 0 || world == NULL)
        return NULL;
    PyObject *group = front_get(&front->first, world);
    Py_DECREF(world);
    return group;
}

/* The shortcut of a group, which is held, if it is compiled here: such ones look for the program's frame themselves, and do
   not count on that of the function. NULL, perhaps with an exception set, otherwise. */
static PyObject *front_shortcut(const Front *front, PyObject *group)
{
    PyObject *all = front_get(&front->shortcuts, group);
    PyObject *found = all == NULL ? NULL : front_get(&front->shortcut, all);
    Py_XDECREF(all);
    PyObject *of = found != NULL && PyCFunction_CheckExact(found) ? PyCFunction_GET_SELF(found) : NULL;
    if (of == NULL || !(Py_IS_TYPE(of, &CallsType) || Py_IS_TYPE(of, &MessagesType) || Py_IS_TYPE(of, &WireType)))
        Py_CLEAR(found);
    return found;
}

/* The rank in a group, which the group holds, of a global one; NULL, perhaps with an exception set, if Python has to look. */
static PyObject *front_rank(const Front *front, PyObject *group, PyObject *global)
{
    PyObject *ranks = PyLong_CheckExact(global) ? front_get(&front->ranks, group) : NULL;
    PyObject *found = ranks != NULL && PyDict_CheckExact(ranks) ? PyDict_GetItemWithError(ranks, global) : NULL;
    Py_XDECREF(ranks);
    return found;
}

static bool front_hand_over(const Front *front, PyObject *group, PyObject *const *values, PyObject **given)
{
    for (int i = 0; i < front->hands; i++) {
        const Handed *handed = front->handed + i;
        switch (handed->what) {
        case ARGUMENT: given[i] = values[handed->parameter]; break;
        case RANK: given[i] = front_rank(front, group, values[handed->parameter]); break;
        case GROUP: given[i] = group; break;
        case ALWAYS: given[i] = handed->always;
        }
        if (given[i] == NULL)
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------ calling */

/* End a call that has failed as the function does, with the error that is set. */
static void front_fail(const Front *front, PyObject *group)
{
    PyObject *error = arguments_raised();
    PyObject *told = PyObject_CallFunctionObjArgs(front->failed, group, error, front->name, NULL);
    if (told == NULL)
        Py_DECREF(error);
    else
        arguments_raise(error);
    Py_XDECREF(told);
}

/* What a call returns whose shortcut has returned something; NULL, without an exception, if that has done nothing. */
static PyObject *front_answer(const Front *front, PyObject **given, PyObject *answer)
{
    if (answer == Py_True)
        return Py_NewRef(Py_None);
    if (answer == Py_None || answer == Py_False)
        return NULL;
    if (!PyTuple_CheckExact(answer))
        return Py_NewRef(answer);
    given[front->hands] = answer;
    return PyObject_Vectorcall(front->made, given, (size_t)front->hands + 1, NULL);
}

/* Make a call by the group's shortcut; NULL, without an exception, if nothing was done. */
static PyObject *front_make(const Front *front, PyObject *group, PyObject *const *values)
{
    PyObject *given[MOST_HANDED + 1], *result = NULL, *shortcut = front_shortcut(front, group);
    if (shortcut != NULL && front_hand_over(front, group, values, given)) {
        PyObject *answer = PyObject_Vectorcall(shortcut, given, (size_t)front->hands, NULL);
        result = answer == NULL ? NULL : front_answer(front, given, answer);
        Py_XDECREF(answer);
        if (PyErr_Occurred())
            front_fail(front, group);
    } else {
        PyErr_Clear(); /* Python says what is wrong */
    }
    Py_XDECREF(shortcut);
    return result;
}

static PyObject *front_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    const Front *front = (Front *)self;
    PyObject *values[MOST_PARAMETERS], *result = NULL;
    if (front->function == NULL) { /* what the collector ends may call it once more */
        PyErr_SetString(PyExc_ReferenceError, "this function has been let go");
        return NULL;
    }
    if (front_sort(front, args, PyVectorcall_NARGS(count), names, values)) {
        PyObject *group = front_group(front, values[front->group]);
        if (group != NULL)
            result = front_make(front, group, values);
        else
            PyErr_Clear();
        Py_XDECREF(group);
    }
    return result != NULL || PyErr_Occurred() ? result : PyObject_Vectorcall(front->function, args, count, names);
}

/* ------------------------------------------------------------------ the type */

#define AT(member) offsetof(Front, member)

static const size_t held[] = {AT(attributes), AT(function), AT(name), AT(names), AT(usual), AT(taken), AT(world), AT(types), AT(failed), AT(made)};
enum { HELD = sizeof held / sizeof *held };

static bool front_refuse(const Front *front, PyObject *what)
{
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%U: nothing can stand in front of a function with %R", front->name, what);
    return false;
}

static bool front_take_parameters(Front *front)
{
    if (PyTuple_GET_SIZE(front->names) > MOST_PARAMETERS)
        return front_refuse(front, front->names);
    for (; front->count < PyTuple_GET_SIZE(front->names); front->count++) {
        PyObject *name = PyTuple_GET_ITEM(front->names, front->count);
        front->parameters[front->count] = (Parameter){.name = name, .usual = PyDict_GetItemWithError(front->usual, name)};
    }
    front->group = front_place_of(front, text_group);
    if (front->group == front->count)
        return front_refuse(front, front->names);
    front->parameters[front->group].may_differ = true;
    return true;
}

/* Take what is handed over: names of parameters, those of ranks of a type of their own; the groups' type; and anything else. */
static bool front_take_handed(Front *front)
{
    if (PyTuple_GET_SIZE(front->taken) > MOST_HANDED)
        return front_refuse(front, front->taken);
    for (; front->hands < PyTuple_GET_SIZE(front->taken); front->hands++) {
        PyObject *each = PyTuple_GET_ITEM(front->taken, front->hands);
        Handed *handed = front->handed + front->hands;
        *handed = (Handed){.what = each == (PyObject *)front->shortcuts.type ? GROUP : ALWAYS, .always = each};
        if (!PyUnicode_Check(each))
            continue;
        while (handed->parameter < front->count && PyUnicode_Compare(front->parameters[handed->parameter].name, each) != 0)
            handed->parameter++;
        if (handed->parameter == front->count)
            return front_refuse(front, each);
        handed->what = PyUnicode_CheckExact(each) ? ARGUMENT : RANK;
        front->parameters[handed->parameter].may_differ = true;
    }
    return true;
}

/* Front(function, names, positional, usual, taken, world, types, failed, made) */
static PyObject *front_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options))
{
    PyObject *function, *names, *usual, *taken, *world, *types, *failed, *made;
    PyTypeObject *world_type, *group_type, *shortcuts_type;
    Py_ssize_t positional;
    if (!PyArg_ParseTuple(args, "OO!nO!O!O!O!OO", &function, &PyTuple_Type, &names, &positional, &PyDict_Type, &usual, &PyTuple_Type, &taken,
                          &PyContextVar_Type, &world, &PyTuple_Type, &types, &failed, &made) ||
        !PyArg_ParseTuple(types, "O!O!O!", &PyType_Type, &world_type, &PyType_Type, &group_type, &PyType_Type, &shortcuts_type))
        return NULL;
    Front *front = (Front *)type->tp_alloc(type, 0);
    if (front == NULL)
        return NULL;
    front->vectorcall = front_call;
    front->function = Py_NewRef(function);
    front->names = Py_NewRef(names);
    front->usual = Py_NewRef(usual);
    front->taken = Py_NewRef(taken);
    front->world = Py_NewRef(world);
    front->types = Py_NewRef(types);
    front->failed = Py_NewRef(failed);
    front->made = Py_NewRef(made);
    front->positional = positional;
    front->name = PyObject_GetAttrString(function, "__name__");
    front->first = front_place(world_type, text_default);
    front->shortcuts = front_place(group_type, text_shortcuts);
    front->ranks = front_place(group_type, text_rank_of);
    if (front->name != NULL)
        front->shortcut = front_place(shortcuts_type, front->name);
    if (front->name == NULL || !front_take_parameters(front) || !front_take_handed(front))
        Py_CLEAR(front);
    return (PyObject *)front;
}

static int front_traverse(Front *front, visitproc visit, void *arg)
{
    return held_visit(front, held, HELD, visit, arg);
}

static int front_clear(Front *front)
{
    held_clear(front, held, HELD);
    return 0;
}

static void front_free(Front *front)
{
    PyObject_GC_UnTrack(front);
    if (front->weakrefs != NULL)
        PyObject_ClearWeakRefs((PyObject *)front);
    front_clear(front);
    Py_TYPE(front)->tp_free((PyObject *)front);
}

/* For programs it is a function: it shows as one, is a method where it is found in a class, and is pickled by its name. */
static PyObject *front_repr(Front *front)
{
    return PyUnicode_FromFormat("<function %U at %p>", front->name, front);
}

static PyObject *front_bind(PyObject *front, PyObject *instance, PyObject *Py_UNUSED(type))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(front) : PyMethod_New(front, instance);
}

static PyObject *front_reduce(Front *front, PyObject *Py_UNUSED(unused))
{
    return Py_NewRef(front->name);
}

static PyObject *front_copy(PyObject *front, PyObject *Py_UNUSED(memo))
{
    return Py_NewRef(front);
}

static PyMethodDef methods[] = {
    {"__reduce__", (PyCFunction)front_reduce, METH_NOARGS, NULL},
    {"__copy__", front_copy, METH_NOARGS, NULL},
    {"__deepcopy__", front_copy, METH_O, NULL},
    {0},
};

static PyGetSetDef attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {0},
};

static PyTypeObject FrontType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankwise_native.Front",
    .tp_basicsize = sizeof(Front),
    .tp_new = front_new,
    .tp_vectorcall_offset = offsetof(Front, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)front_free,
    .tp_traverse = (traverseproc)front_traverse,
    .tp_clear = (inquiry)front_clear,
    .tp_repr = (reprfunc)front_repr,
    .tp_descr_get = front_bind,
    .tp_dictoffset = offsetof(Front, attributes),
    .tp_weaklistoffset = offsetof(Front, weakrefs),
    .tp_methods = methods,
    .tp_getset = attributes,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
};

int front_add_types(PyObject *module)
{
    text_default = PyUnicode_InternFromString("default");
    text_shortcuts = PyUnicode_InternFromString("shortcuts");
    text_rank_of = PyUnicode_InternFromString("rank_of");
    text_group = PyUnicode_InternFromString("group");
    bool there = text_default != NULL && text_shortcuts != NULL && text_rank_of != NULL && text_group != NULL;
    return there ? PyModule_AddType(module, &FrontType) : -1;
}
