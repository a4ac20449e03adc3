#define RANKWISE_MODULE
#include "collectives.h"
#include "lock.h"
#include "plans.h"
#include "rings.h"
#include "shared.h"
#include "swaps.h"

/* The version of what rankwise and this module call of each other; see rankwise.basics.native. It is here rather than in
   Python since it is about what was built: sources may be newer. */
enum { API_VERSION = 35 };
#ifndef SOURCES
#define SOURCES 0u /* what tells these sources from others; setup.py says it */
#endif

/* What Python has too, for where this module is not: rankwise_gloo_tcp compares all of it when it is loaded. */
static const struct {
    const char *name;
    unsigned long long value;
} constants[] = {
    {"GIVEN_UP", GIVEN_UP},           {"SLEEPERS", SLEEPERS},             {"GO", GO},                        {"RUNS_ON", RUNS_ON},
    {"COPY", COPY},
    {"SEQUENCE", SEQUENCE},           {"DIGEST", DIGEST},                 {"COUNT", COUNT},
    {"SENT", SENT},                   {"RECEIVED", RECEIVED},             {"LONGEST", LONGEST},
    {"TURN", TURN},                   {"RECORD_STRIDE", RECORD_STRIDE},   {"FETCHES", FETCHES},
    {"COMMON", COMMON},               {"IN_PLACE", IN_PLACE},            {"PLACES", PLACES},
    {"ALIGN", CACHE_LINE},            {"MEET", MEET},                     {"ONE_SHOT", ONE_SHOT},
    {"TWO_SHOT", TWO_SHOT},           {"MOVE", MOVE},                     {"COMBINE", COMBINE},
    {"ALONG", ALONG},                 {"PROGRAM", PROGRAM},
    {"ONE_SHOT_NBYTES", ONE_SHOT_NBYTES},

    {"MAX_RANKS", MOST_PEERS},        {"HEADER_NBYTES", HEADER_NBYTES},   {"CONTROL_NBYTES", CONTROL_NBYTES},
    {"HEAD", HEAD},                   {"WANTS_ROOM", WANTS_ROOM},         {"TAIL", TAIL},
    {"AWAKE", AWAKE},                 {"AT_BELL", AT_BELL},               {"AT_WORD", AT_WORD},
    {"WRAP", WRAP},                   {"MESSAGE", MESSAGE},               {"OFFER", OFFER},
    {"RECEIPT", RECEIPT},             {"CREDIT", CREDIT},                 {"PIECE", PIECE},
    {"READABLE", READABLE},           {"FINGERPRINT_TAG", FINGERPRINT_TAG}, {"HEAD_TAG_NBYTES", HEAD_TAG_NBYTES},
};

static int module_add_constants(PyObject *module)
{
    PyObject *all = PyDict_New();
    for (size_t i = 0; all != NULL && i < sizeof constants / sizeof *constants; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(constants[i].value);
        if (value == NULL || PyDict_SetItemString(all, constants[i].name, value) < 0)
            Py_CLEAR(all);
        Py_XDECREF(value);
    }
    int added = all == NULL ? -1 : PyModule_AddObjectRef(module, "CONSTANTS", all);
    Py_XDECREF(all);
    return added;
}

static int module_fill(PyObject *module)
{
    import_array1(-1);
    bool added = recorder_add_types(module) == 0 && board_add_types(module) == 0 && rings_add_types(module) == 0 &&
                 turn_add_types(module) == 0 && calls_add_types(module) == 0 && front_add_types(module) == 0 && messages_add_types(module) == 0 && state_add_types(module) == 0 && PyModule_AddType(module, &EngineLockType) == 0 &&
                 wire_add_types(module) == 0 && relay_add_types(module) == 0 && program_add_types(module) == 0 && tls_add_types(module) == 0 && shared_add_functions(module) == 0 && module_add_constants(module) == 0 &&
                 PyModule_AddIntConstant(module, "API_VERSION", API_VERSION) == 0 &&
                 PyModule_AddIntConstant(module, "SOURCES", (long)SOURCES) == 0;
    return added ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_fill},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* types and names are static */
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_USED}, /* what guards the recorder's ring */
#endif
    {0},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "rankwise_native._native",
    .m_doc = "What rankwise does in C: the flight recorder, and collectives at the board.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
