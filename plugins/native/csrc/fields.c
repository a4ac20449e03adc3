#include "fields.h"
#include <structmember.h>

Field field_of(PyObject *object, const char *name)
{
    PyObject *found = PyObject_GetAttrString((PyObject *)Py_TYPE(object), name);
    if (found == NULL)
        return -1;
    Field field = -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        const PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        field = member->type == T_OBJECT_EX ? member->offset : -1;
    }
    Py_DECREF(found);
    if (field < 0)
        PyErr_Format(PyExc_TypeError, "%s has no slot %s, as this version expects", Py_TYPE(object)->tp_name, name);
    return field;
}
