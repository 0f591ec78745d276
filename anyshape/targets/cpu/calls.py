"""C functions as Python calls them: built-in functions of numbers, for less than ctypes costs.

    void f(float *x, long n)   ->   call_nothing_pi(address of f, arguments, count), for ``f(x, n)``

In: the types of a C function. Out: the text of a C function that unpacks what Python hands over,
lets go of Python's lock meanwhile, calls what it is bound to, and gives None or the status; and,
where both lie, the built-in function. It is written against CPython's stable interface,
without headers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from anyshape.ir.code import ArgType, NativeFunction
from anyshape.nouns import frozen

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
WORDS: dict[ArgType, str] = {"pointer": "void *", "int64": "long", "double": "double"}
FAST_CALL = 0x0080  # METH_FASTCALL


class Method(ctypes.Structure):
    """CPython's ``PyMethodDef``; it must live as long as the function that is made of it."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Address(int):
    """Where a C function lies; it is what the built-in function made of it is bound to, and holds
    on to that one's definition."""

    definition: Method


@frozen
class Caller:
    """The C function behind built-in ones, by name: of all functions of these types, or of one that
    has its own."""

    name: str
    argtypes: tuple[ArgType, ...] = ()
    returns_status: bool = False

    @classmethod
    def of(cls, name: str, function: NativeFunction) -> Caller:
        """That of the C function of this name."""
        if function.caller == "own":
            return cls(f"call_{name}")
        kinds = "".join(argtype[0] for argtype in function.argtypes)
        kind = "status" if function.returns_status else "nothing"
        return cls(f"call_{kind}_{kinds}", function.argtypes, function.returns_status)

    @property
    def function(self) -> NativeFunction:
        """One that functions of the same types share, as they do not call each other."""
        return NativeFunction(self.text(), caller="none", few_passes=True)

    def text(self) -> str:
        """Of one that functions of the same types share: ``self`` is the address of each."""
        count = len(self.argtypes)
        unpacked = "\n".join("    " + UNPACK[t].format(i) for i, t in enumerate(self.argtypes))
        types = ", ".join(WORDS[t] for t in self.argtypes) or "void"
        given = ", ".join(f"a{i}" for i in range(count))
        status, result = "", "_Py_NoneStruct"
        if self.returns_status:
            status, result = "long status = ", "PyLong_FromLong(status)"
        owned = "" if self.returns_status else "Py_IncRef(_Py_NoneStruct);"
        return f"""
void *{self.name}(void *self, void **arguments, long count)
{{
    if (count != {count}) {{ PyErr_BadArgument(); return 0; }}
    {"long" if self.returns_status else "void"} (*function)({types}) =
        (void *)PyLong_AsUnsignedLongLongMask(self);
{unpacked}
    if (PyErr_Occurred()) return 0;
    void *state = PyEval_SaveThread();
    {status}function({given});
    PyEval_RestoreThread(state);
    {owned}
    return {result};
}}
"""


def built_in(name: str, address: int, caller: int) -> Callable[..., Any]:
    """The function of Python for the C function of this name and address; ``caller`` is where the
    function behind it lies."""
    bound = Address(address)
    bound.definition = Method(name.encode(), caller, FAST_CALL, None)
    make = ctypes.pythonapi["PyCFunction_NewEx"]
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.POINTER(Method), ctypes.py_object, ctypes.c_void_p]
    made: Callable[..., Any] = make(ctypes.byref(bound.definition), bound, None)
    return made
