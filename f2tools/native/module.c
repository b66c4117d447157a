/* The module itself: the functions of all files under one name, and the number that says which core it is. */
#include "core.h"

static PyMethodDef *const FILES[] = {
    checksum_methods, counts_methods, merge_methods, pairing_methods, records_methods, sequential_methods, hostfiles_methods,
    words_methods, dentries_methods, tally_methods, placing_methods, inodes_methods, archive_methods,
    fuse_methods, attributes_methods, intervals_methods, plainfiles_methods, listed_methods, nodes_methods, blocks_methods,
    marks_methods, live_methods,
};

static int fill(PyObject *module)
{
    checksum_begin();
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
        if (PyModule_AddFunctions(module, FILES[i]) < 0)
            return -1;
    return PyModule_AddIntConstant(module, "CORE", CORE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "f2tools.native._core",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
