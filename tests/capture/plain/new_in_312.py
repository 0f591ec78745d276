"""Syntax that 3.12 added, compiled from text where this Python knows it."""

from __future__ import annotations

import sys


def _run(source):
    if sys.version_info < (3, 12):
        return None
    space = {"__name__": "new_in_312"}
    exec(compile(source, "new_in_312", "exec", dont_inherit=True), space)
    return space.get("result")


def case_generic_function_and_class():
    return _run(
        """
def first[T](items: list[T]) -> T:
    return items[0]

class Box[T, *Ts, **P]:
    def __init__(self, v):
        self.v = v

    def get(self):
        return self.v

result = first([3]), Box(4).get(), [p.__name__ for p in Box.__type_params__], first.__type_params__[0].__name__
"""
    )


def case_type_alias():
    return _run("type Pair[T] = tuple[T, T]\nresult = Pair.__name__, Pair[int].__origin__.__name__")


def case_bounded_type_parameter():
    return _run(
        "def f[T: int](x: T):\n    return x + 1\nresult = f(1), f.__type_params__[0].__bound__"
    )


def case_generic_class_scope():
    return _run(
        """
def outer(n):
    class A[T]:
        size = n
        table = [n * i for i in range(n)]
        def f(self): return n, __class__.__name__
    return A
result = outer(2).size, outer(2).table, outer(3)().f()
"""
    )


def case_class_scope_comprehension_inlined():
    return _run(
        """
x = 'global'
class A:
    x = 'class'
    y = [x for _ in range(1)]
    z = [i for i in range(2)]
    keep = [locals().get('i', 'none')]
result = A.y, A.z, A.keep
"""
    )


def case_nested_fstring_quotes():
    return _run("d = {'k': 1}\nresult = f'{d['k']} {f'{d['k']:>{3}}'}'")


def case_inlined_comprehension_shadows_and_restores():
    return _run(
        """
def f():
    i = 'kept'
    a = [i for i in range(3)]
    try:
        [1 // i for i in (1, 0)]
    except ZeroDivisionError:
        pass
    b = [(lambda: i)() for i in range(2)]
    return i, a, b
result = f()
"""
    )


def case_inlined_comprehension_with_cell():
    return _run(
        """
def f():
    fs = [lambda: (i, j) for i in range(2) for j in range(2)]
    i = 5
    return [g() for g in fs], i
result = f()
"""
    )


def case_super_attribute():
    return _run(
        """
class A:
    x = 1
    def f(self): return 'A.f'
class B(A):
    def f(self): return super().f(), super().x, super(B, self).f()
    def g(self):
        try:
            super().nope
        except AttributeError as e:
            return str(e)
result = B().f(), B().g()
"""
    )


def case_super_shadowed():
    return _run(
        """
def super(*args): return 'mine'
class A:
    def f(self): return super(), super(1, 2).upper(), __class__ is A
result = A().f()
"""
    )


def case_slices():
    return _run("l = list(range(6))\nl[1:3] = [9]\nresult = l[1:], l[:-1], l")


def case_generic_method_reads_class_and_global_names():
    return _run(
        """
class A:
    Own = str
    def m[T](self, a: int, b: Own) -> T:
        return a
result = A().m(3, 'x'), A.m.__annotations__['a'], A.m.__annotations__['b']
"""
    )
