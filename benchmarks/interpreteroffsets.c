// Prints where things lie in the structures of the CPython whose headers it is compiled with, in the names of
// daemon/collect/interpreter/offsets.py.
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#if PY_VERSION_HEX >= 0x03090000
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#else
#include <internal/pycore_pystate.h>
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_dict.h>
#include <internal/pycore_frame.h>
#endif
#define PRINT(name, type, member) printf("%s %zu\n", name, offsetof(type, member))

int main(void) {
    PRINT("main_interpreter", _PyRuntimeState, interpreters.main);
    PRINT("main_thread", _PyRuntimeState, main_thread);
    PRINT("next_thread", PyThreadState, next);
    PRINT("interpreter", PyThreadState, interp);
    PRINT("ident", PyThreadState, thread_id);
#if PY_VERSION_HEX >= 0x030b0000
    PRINT("threads", PyInterpreterState, threads.head);
    PRINT("previous", _PyInterpreterFrame, previous);
    PRINT("globals", _PyInterpreterFrame, f_globals);
    PRINT("values", _PyInterpreterFrame, localsplus);
    PRINT("variables", PyCodeObject, co_localsplusnames);
    PRINT("entries", PyDictKeysObject, dk_nentries);
    PRINT("indices", PyDictKeysObject, dk_indices);
#else
    PRINT("threads", PyInterpreterState, tstate_head);
    PRINT("code", PyFrameObject, f_code);
    PRINT("previous", PyFrameObject, f_back);
    PRINT("globals", PyFrameObject, f_globals);
    PRINT("values", PyFrameObject, f_localsplus);
    PRINT("variables", PyCodeObject, co_varnames);
    PRINT("cells", PyCodeObject, co_cellvars);
    PRINT("free", PyCodeObject, co_freevars);
    // Objects/dict-common.h is not installed: reference count, size, a function, usable and used entries, indices.
    printf("entries %zu\nindices %zu\n", 2 * sizeof(Py_ssize_t) + 2 * sizeof(void *), 5 * sizeof(Py_ssize_t));
#endif
#if PY_VERSION_HEX >= 0x030d0000
    PRINT("frame", PyThreadState, current_frame);
    PRINT("code", _PyInterpreterFrame, f_executable);
#elif PY_VERSION_HEX >= 0x030b0000
    PRINT("frame", PyThreadState, cframe);
    PRINT("frame_of_c", _PyCFrame, current_frame);
    PRINT("code", _PyInterpreterFrame, f_code);
#else
    PRINT("frame", PyThreadState, frame);
#endif
    PRINT("file", PyCodeObject, co_filename);
    PRINT("name", PyCodeObject, co_name);
    PRINT("first_line", PyCodeObject, co_firstlineno);
    PRINT("items", PyTupleObject, ob_item);
    printf("ascii %zu\ncompact %zu\n", sizeof(PyASCIIObject), sizeof(PyCompactUnicodeObject));
    PRINT("TYPE", PyObject, ob_type);
    PRINT("SIZE", PyVarObject, ob_size);
#if PY_VERSION_HEX >= 0x030c0000
    PRINT("DIGITS", PyLongObject, long_value.ob_digit);
#else
    PRINT("DIGITS", PyLongObject, ob_digit);
#endif
    PRINT("DICT_KEYS", PyDictObject, ma_keys);
    PRINT("DICT_VALUES", PyDictObject, ma_values);
    PRINT("CELL_VALUE", PyCellObject, ob_ref);
    PRINT("STRING_STATE", PyASCIIObject, state);
    return 0;
}
