// Prints where things lie in the structures of the CPython whose headers it is compiled with, in the names of
// daemon/interpreter/offsets.py. The structures are defined in these files of CPython's Include folder:
//
// structure               3.8 to 3.10                         from 3.11 on
// _PyRuntimeState         internal/pycore_pystate.h (3.8),    internal/pycore_runtime.h, _runtime_structs.h (3.14)
//                         internal/pycore_runtime.h
// PyInterpreterState      internal/pycore_pystate.h (3.8),    internal/pycore_interp.h, _interp_structs.h (3.14)
//                         internal/pycore_interp.h
// PyThreadState           cpython/pystate.h                   cpython/pystate.h
// frame                   frameobject.h (3.8),                internal/pycore_frame.h, _interpframe_structs.h (3.14)
//                         cpython/frameobject.h
// PyCodeObject            code.h (3.8), cpython/code.h        cpython/code.h
// PyDictKeysObject        Objects/dict-common.h               internal/pycore_dict.h
// PyLongObject            longintrepr.h                       cpython/longintrepr.h
// PyASCIIObject           cpython/unicodeobject.h             cpython/unicodeobject.h
// PyBytesObject           cpython/bytesobject.h               cpython/bytesobject.h
// PyTypeObject            cpython/object.h                    cpython/object.h
#define Py_BUILD_CORE 1
#define NDEBUG 1
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
#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe_structs.h>
#endif
#define PRINT(name, type, member) printf("%s %zu\n", name, offsetof(type, member))

int main(void) {
    PRINT("main_interpreter", _PyRuntimeState, interpreters.main);
    PRINT("main_thread", _PyRuntimeState, main_thread);
#if PY_VERSION_HEX >= 0x030c0000
    PRINT("lock", PyInterpreterState, ceval.gil);
#else
    PRINT("lock", _PyRuntimeState, ceval.gil);
#endif
#if PY_VERSION_HEX >= 0x03090000 && PY_VERSION_HEX < 0x030e0000
    PRINT("collector", PyInterpreterState, gc);
    PRINT("_GENERATIONS", struct _gc_runtime_state, generations);
    PRINT("_YOUNGEST", struct _gc_runtime_state, generation0);
    PRINT("_COLLECTING", struct _gc_runtime_state, collecting);
#endif
    PRINT("next_thread", PyThreadState, next);
    PRINT("interpreter", PyThreadState, interp);
    PRINT("ident", PyThreadState, thread_id);
#if PY_VERSION_HEX >= 0x030b0000
    PRINT("threads", PyInterpreterState, threads.head);
    PRINT("previous", _PyInterpreterFrame, previous);
#if PY_VERSION_HEX >= 0x030d0000
    PRINT("instruction", _PyInterpreterFrame, instr_ptr);
#else
    PRINT("instruction", _PyInterpreterFrame, prev_instr);
#endif
    PRINT("first_instruction", PyCodeObject, co_code_adaptive);
    PRINT("globals", _PyInterpreterFrame, f_globals);
    PRINT("values", _PyInterpreterFrame, localsplus);
    PRINT("variables", PyCodeObject, co_localsplusnames);
    PRINT("entries", PyDictKeysObject, dk_nentries);
    PRINT("indices", PyDictKeysObject, dk_indices);
#else
    PRINT("threads", PyInterpreterState, tstate_head);
    PRINT("code", PyFrameObject, f_code);
    PRINT("previous", PyFrameObject, f_back);
    PRINT("instruction", PyFrameObject, f_lasti);
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
#if PY_VERSION_HEX >= 0x030a0000
    PRINT("line_table", PyCodeObject, co_linetable);
#else
    PRINT("line_table", PyCodeObject, co_lnotab);
#endif
    PRINT("TYPE_NAME", PyTypeObject, tp_name);
    PRINT("TYPE_FLAGS", PyTypeObject, tp_flags);
    printf("IS_TYPE %lu\n", Py_TPFLAGS_TYPE_SUBCLASS);
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
    PRINT("CELL_VALUE", PyCellObject, ob_ref);
    PRINT("STRING_STATE", PyASCIIObject, state);
    PRINT("BYTES", PyBytesObject, ob_sval);
    return 0;
}
