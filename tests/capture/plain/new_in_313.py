"""What 3.13 added or compiles in its own way, compiled from text where this Python knows it."""

from __future__ import annotations

import sys


def _run(source):
    if sys.version_info < (3, 13):
        return None
    space = {"__name__": "new_in_313"}
    exec(compile(source, "new_in_313", "exec", dont_inherit=True), space)
    return space.get("result")


def case_default_of_a_type_parameter():
    return _run(
        """
def first[T = int](items: list[T]) -> T:
    return items[0]
class Box[T = str]:
    pass
result = first([3]), first.__type_params__[0].__default__, Box.__type_params__[0].__default__
"""
    )


def case_what_a_class_knows_of_its_text():
    return _run(
        """
def made():
    class A:
        '''Told
        of.'''
        def __init__(self):
            self.x = 1
            self.y, self.z = 2, 3
        def f(self):
            self.x = self.w = 4
    return A
result = sorted(made().__static_attributes__), made().__firstlineno__, made().__doc__
"""
    )


def case_calls_with_names_and_nothing_before_them():
    return _run(
        """
def f(*args, **names):
    return args, names
class C:
    def m(self, *args, **names):
        return args, names
c = C()
result = (
    f(a=1), f(1, b=2), f(*(1, 2), c=3), f(**{'d': 4}), c.m(a=1), c.m(1, *(2,), **{'b': 2}, c=3),
    [f(a=1 if k else 2) for k in (0, 1)], dict(a=1), C.m(c, x=2), sorted([2, 1], reverse=True),
    (lambda **names: names)(z=1), f(a=f(b=f(c=1))),
)
"""
    )


def case_functions_with_every_attribute():
    return _run(
        """
def outer(free):
    def f(a: int = 1, *rest, k: str = 'k', **more) -> float:
        '''Told.'''
        return a, rest, k, more, free
    def g(): return free
    def h(b=free): return b
    def i(*, c=free): return c
    return f, g, h, i
f, g, h, i = outer(5)
result = f(), f(2, 3, k=4, z=5), g(), h(), i(), f.__doc__, f.__annotations__, f.__defaults__, f.__kwdefaults__
"""
    )


def case_truth_before_jumps_and_not():
    return _run(
        """
log = []
class T:
    def __init__(self, v): self.v = v
    def __bool__(self):
        log.append(self.v)
        return bool(self.v)
    def __eq__(self, other): return T(self.v == other.v)
    def __contains__(self, other): return T(1)
    def __repr__(self): return f'T{self.v}'
a, b = T(0), T(1)
result = [
    a and b, a or b, not a, not b, 1 if a else 2, a == b and b, not a == b, not not b, [x for x in (a, b) if x],
    a in b, a not in b, (a or b) and a, 2 if not (a or b) else 3, [1 for _ in (1, 2) if a == a or b],
]
while b:
    b.v = 0
assert a == a, 'not raised'
result = repr(result), log
"""
    )


def case_texts_of_values():
    return _run(
        """
class S(str):
    def __format__(self, spec): return 'F' + spec
class A:
    def __repr__(self): return 'A'
    def __str__(self): return S('s')
    def __format__(self, spec): return 'f' + spec
a, w = A(), 5
result = f'{a}', f'{a!r}', f'{a!s:>{w}}', f'{a:x}', f'{a!a:^7}', f'{1.5:.2f}{w}', f'{"x":>3}', f'{S("y")}', f'{w!r:>4}|'
"""
    )


def case_loops_over_generators_and_their_ends():
    return _run(
        """
def count(n):
    for i in range(n):
        yield i
    return 'end'
def pairs(n):
    for i in count(n):
        for j in count(i):
            if j == 2:
                break
            yield i, j
        else:
            yield 'whole', i
    ended = yield from count(1)
    yield ended
result = list(pairs(4)), [i for i in count(3)], next((i for i in count(5) if i > 2), None), max(count(4))
"""
    )


def case_many_locals_at_once():
    return _run(
        """
def f(a, b, c):
    a, b = b, a
    (a, b), *c = (b, a), a, c
    x = y = a
    del x
    try:
        return x, y
    except UnboundLocalError as error:
        return a, b, c, y, str(error)
result = f(1, 2, 3)
"""
    )


def case_super_and_its_attributes():
    return _run(
        """
class A:
    x = 1
    def f(self, *args, **names): return 'A', args, names
class B(A):
    def f(self, *args, **names): return super().f(*args, **names), super().f(1, k=2), super().x, super(B, self).f()
    @classmethod
    def g(cls): return super().__name__ if hasattr(super(), '__name__') else super().x
result = B().f(3, z=4), B.g()
"""
    )


def case_decorators_and_with():
    return _run(
        """
from contextlib import contextmanager
log = []
@contextmanager
def told(name):
    log.append(name)
    try:
        yield name
    except ValueError as error:
        log.append(str(error))
    finally:
        log.append('left ' + name)
def twice(f): return lambda *a: (f(*a), f(*a))
@twice
@lambda f: lambda x: f(x) + 1
def g(x): return x
with told('a') as a, told('b') as b:
    log.append((a, b))
    raise ValueError('caught')
result = g(1), log
"""
    )
