#define RANKWISE_MODULE
#include "native.h"

static int fill(PyObject *module)
{
    import_array1(-1);
    return recorder_add_types(module) < 0 || board_add_types(module) < 0 || calls_add_types(module) < 0 ? -1 : 0;
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
