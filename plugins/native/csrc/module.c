#define RANKWISE_MODULE
#include "native.h"

/* The version of what rankwise and this module call of each other; see rankwise.basics.native. It is here rather than in
   Python since it is about what was built: sources may be newer. */
enum { API_VERSION = 7 };

static int fill(PyObject *module)
{
    import_array1(-1);
    bool added = recorder_add_types(module) == 0 && board_add_types(module) == 0 && rings_add_types(module) == 0 &&
                 turn_add_types(module) == 0 && calls_add_types(module) == 0 && messages_add_types(module) == 0 &&
                 PyModule_AddIntConstant(module, "API_VERSION", API_VERSION) == 0;
    return added ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill},
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
