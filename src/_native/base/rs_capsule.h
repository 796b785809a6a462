/* Fetches a C function that another module of the package offers. */
#ifndef RS_CAPSULE_H
#define RS_CAPSULE_H
#include <Python.h>
#include "rs_bytes.h"

/* Return the pointer in the capsule `name`, which is `_api` of `module`; NULL with an exception. */
RS_UNUSED static void *rs_capsule_pointer(const char *module, const char *name)
{
    PyObject *imported = PyImport_ImportModule(module);
    if (imported == NULL) {
        return NULL;
    }
    PyObject *capsule = PyObject_GetAttrString(imported, "_api");
    Py_DECREF(imported);
    if (capsule == NULL) {
        return NULL;
    }
    void *pointer = PyCapsule_GetPointer(capsule, name);
    Py_DECREF(capsule);
    return pointer;
}

#endif
