"""C functions as Python calls them: built-in functions of numbers, for less than ctypes costs.

    void f(float *x, long n)   ->   call_f(self, arguments, count), for Python ``f(x, n)``

In: the name and the types of a C function. Out: the text of a C function that unpacks what Python
hands over, lets go of Python's lock meanwhile, and gives None or the status; and, from the loaded
library, the built-in function. It is written against CPython's stable interface, without headers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from anyshape.ir.code import ArgType, NativeFunction

CALLS_PRELUDE = """
extern unsigned long long PyLong_AsUnsignedLongLongMask(void *);
extern long PyLong_AsLong(void *);
extern double PyFloat_AsDouble(void *);
extern void *PyLong_FromLong(long);
extern void *PyErr_Occurred(void);
extern int PyErr_BadArgument(void);
extern void Py_IncRef(void *);
extern char _Py_NoneStruct[];
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);
"""
UNPACK: dict[ArgType, str] = {
    "pointer": "char *a{0} = (char *)PyLong_AsUnsignedLongLongMask(arguments[{0}]);",
    "int64": "long a{0} = PyLong_AsLong(arguments[{0}]);",
    "double": "double a{0} = PyFloat_AsDouble(arguments[{0}]);",
}
FAST_CALL = 0x0080  # METH_FASTCALL


class Method(ctypes.Structure):
    """CPython's ``PyMethodDef``; it must live as long as the function that is made of it."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def caller(name: str, function: NativeFunction) -> str:
    """The text of ``call_name``, which stands below that of a function of caller "made"."""
    count = len(function.argtypes)
    unpacked = "\n".join("    " + UNPACK[t].format(i) for i, t in enumerate(function.argtypes))
    casts = ("(void *)" if t == "pointer" else "" for t in function.argtypes)
    call = f"{name}({', '.join(f'{cast}a{i}' for i, cast in enumerate(casts))})"
    work = f"status = {call}" if function.returns_status else call
    result = "PyLong_FromLong(status)" if function.returns_status else "_Py_NoneStruct"
    owned = "" if function.returns_status else "Py_IncRef(_Py_NoneStruct);"
    return f"""
void *call_{name}(void *self, void **arguments, long count)
{{
    if (count != {count}) {{ PyErr_BadArgument(); return 0; }}
{unpacked}
    if (PyErr_Occurred()) return 0;
    long status = 0;
    void *state = PyEval_SaveThread();
    {work};
    PyEval_RestoreThread(state);
    {owned}
    return {result};
}}
"""


def built_in(library: ctypes.CDLL, name: str) -> Callable[..., Any]:
    """The function that Python calls; it holds on to its own definition."""
    address = ctypes.cast(library[f"call_{name}"], ctypes.c_void_p).value
    method = Method(name.encode(), address, FAST_CALL, None)
    make = ctypes.pythonapi["PyCFunction_NewEx"]
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.POINTER(Method), ctypes.py_object, ctypes.c_void_p]
    made: Callable[..., Any] = make(ctypes.byref(method), method, None)
    return made
