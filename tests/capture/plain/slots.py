"""Every special method: each case calls one and shows which were called, in which order, with what result."""

from __future__ import annotations

import math
import operator

LOG: list = []


def logged(name):
    LOG.append(name)


class Number:
    """All operators, each of which logs its name."""

    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"N({self.n})"


class Sub(Number):
    """A subclass whose reflected methods take priority."""


_BINARY = "add sub mul truediv floordiv mod pow matmul lshift rshift and or xor divmod".split()
for _name in _BINARY:

    def _forward(self, other, *rest, _name=_name):
        logged(f"__{_name}__")
        return (
            NotImplemented
            if isinstance(other, str)
            else (_name, self.n, getattr(other, "n", other), *rest)
        )

    def _reflected(self, other, _name=_name):
        logged(f"__r{_name}__")
        return ("r" + _name, self.n, other)

    setattr(Number, f"__{_name}__", _forward)
    setattr(Number, f"__r{_name}__", _reflected)
    if _name != "divmod":

        def _in_place(self, other, _name=_name):
            logged(f"__i{_name}__")
            if other == "no":
                return NotImplemented
            self.n = ("i" + _name, other)
            return self

        setattr(Number, f"__i{_name}__", _in_place)
for _name in ("neg", "pos", "invert", "abs"):

    def _unary(self, _name=_name):
        logged(f"__{_name}__")
        return (_name, self.n)

    setattr(Number, f"__{_name}__", _unary)

    def _sub_reflected(self, other):
        logged("Sub.__radd__")
        return ("sub", other)

    Sub.__radd__ = _sub_reflected

_OPERATIONS = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.matmul, operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor, divmod,
)  # fmt: skip


def flush(*results):
    shown = list(LOG)
    LOG.clear()
    return shown, *results


def case_binary():
    a, b = Number(1), Number(2)
    return flush(
        a + b,
        a - 1,
        a * b,
        a / b,
        a // b,
        a % b,
        a**b,
        a @ b,
        a << b,
        a >> b,
        a & b,
        a | b,
        a ^ b,
        divmod(a, b),
    )


def case_binary_by_operator_module():
    return flush([op(Number(1), 2) for op in _OPERATIONS])


def case_reflected():
    b = Number(2)
    return flush(
        1 + b,
        1 - b,
        2 * b,
        1 / b,
        1 // b,
        1 % b,
        1**b,
        1 @ b,
        1 << b,
        1 >> b,
        1 & b,
        1 | b,
        1 ^ b,
        divmod(5, b),
    )


def case_reflected_of_sequences():
    return flush(
        [1] + Number(2), [1] * Number(2), "a" + Number(1), (1,) * Number(3), "%s" % Number(4)
    )


def case_not_implemented():
    return Number(1) + "text"


def case_not_implemented_sub():
    return Number(1) - "text"


def case_subclass_priority():
    return flush(Number(1) + Sub(2), Sub(1) + Number(2), Number(1) - Sub(2))


def case_inplace():
    out = []
    for op in (
        operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
        operator.imatmul, operator.ilshift, operator.irshift, operator.iand, operator.ior, operator.ixor,
    ):  # fmt: skip
        a = Number(1)
        out.append((op(a, 2) is a, a.n))
    a = b = Number(3)
    a += 4
    a -= 1
    a **= 2
    c = Number(1)
    c += Number(9) if False else 7
    return flush(out, a is b, a.n, c.n)


def case_inplace_falls_back():
    class A:
        def __iadd__(self, o):
            logged("__iadd__")
            return NotImplemented

        def __add__(self, o):
            logged("__add__")
            return "added"

    a = A()
    a += 1
    l = [1]
    l += "ab"
    try:
        l += 3
    except TypeError as error:
        text = str(error)
    return flush(a, l, text)


def case_inplace_unsupported():
    a = object()
    a -= 1


def case_unary():
    a = Number(5)
    return flush(-a, +a, ~a, abs(a), operator.neg(a))


def case_unary_unsupported():
    return -object()


class Ordered:
    def __init__(self, n):
        self.n = n


for _name in ("lt", "le", "eq", "ne", "gt", "ge"):

    def _compare(self, other, _name=_name):
        logged(f"__{_name}__")
        if not isinstance(other, Ordered):
            return NotImplemented
        return getattr(operator, _name)(self.n, other.n)

    setattr(Ordered, f"__{_name}__", _compare)


class OrderedSub(Ordered):
    pass


def case_compare():
    a, b, s = Ordered(1), Ordered(2), OrderedSub(2)
    return flush(
        a < b,
        a <= b,
        a == b,
        a != b,
        a > b,
        a >= b,
        a == 1,
        a != 1,
        1 == a,
        a < s,
        s > a,
        a == s,
        operator.lt(a, b),
    )


def case_compare_unsupported():
    return Ordered(1) < 3


def case_compare_returns_objects():
    class E:
        def __eq__(self, o):
            return "equal?"

        def __lt__(self, o):
            return []

    e = E()
    return e == 1, e != 1, 1 == e, e < 2, 2 > e, not (e < 2), [1 if e == 1 else 2]


def case_none_is_compared_with_an_object():
    class A:
        def __eq__(self, o):
            logged("__eq__")
            return NotImplemented

        def __lt__(self, o):
            return "less"

    return flush(None == A(), None != A(), None > A(), None in [A()], A() in [None])


def case_default_eq_and_hash():
    class A:
        pass

    class B:
        def __eq__(self, o):
            return True

    a = A()
    try:
        hash(B())
    except TypeError as error:
        text = str(error)
    return a == a, a != a, a == A(), hash(a) == hash(a), text, B.__hash__


def case_hash():
    class H:
        def __hash__(self):
            logged("__hash__")
            return -1

        def __eq__(self, o):
            return True

    return flush(hash(H()), len({H(), H()}))


def case_hash_not_int():
    class H:
        def __hash__(self):
            return "x"

    return hash(H())


class Truth:
    def __init__(self, value):
        self.value = value

    def __bool__(self):
        logged("__bool__")
        return self.value


class Sized:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        logged("__len__")
        return self.n


def case_bool_and_len():
    out = []
    for x in (Truth(True), Truth(False), Sized(0), Sized(3)):
        out.append(
            (bool(x), not x, 1 if x else 2, (x and 1) == 1, (x or 1) == 1, operator.truth(x))
        )
        while not x:
            break
    return flush(out, len(Sized(4)), any([Truth(False), Sized(1)]), all([Truth(True), Sized(0)]))


def case_bool_wrong_type():
    return bool(Truth(1))


def case_if_bool_wrong_type():
    if Truth("x"):
        return 1


def case_len_negative():
    return len(Sized(-1))


def case_len_not_int():
    return len(Sized("x"))


def case_len_truth_negative():
    return 1 if Sized(-2) else 2


def case_len_missing():
    return len(object())


class Container:
    def __init__(self, *items):
        self.items = list(items)

    def __getitem__(self, key):
        logged("__getitem__")
        return self.items[key]

    def __setitem__(self, key, value):
        logged("__setitem__")
        self.items[key] = value

    def __delitem__(self, key):
        logged("__delitem__")
        del self.items[key]

    def __contains__(self, item):
        logged("__contains__")
        return [item] if item in self.items else []

    def __iter__(self):
        logged("__iter__")
        return iter(self.items)

    def __reversed__(self):
        logged("__reversed__")
        return iter(self.items[::-1])

    def __len__(self):
        logged("__len__")
        return len(self.items)

    def __length_hint__(self):
        logged("__length_hint__")
        return 3


def case_container():
    c = Container(1, 2, 3)
    c[0] = 10
    c[1:] = [5, 6, 7]
    del c[1]
    c[0] += 1
    return flush(
        c[0],
        c[-1],
        c[0:2],
        6 in c,
        99 not in c,
        99 in c,
        [x for x in c],
        list(reversed(c)),
        len(c),
        *c,
    )


def case_length_hint():
    class Hinted:
        def __length_hint__(self):
            logged("__length_hint__")
            return 7

    return flush(
        operator.length_hint(Hinted()),
        operator.length_hint([1, 2]),
        operator.length_hint(object(), 4),
    )


def case_sequence_protocol():
    class Seq:
        def __getitem__(self, i):
            if i >= 3:
                raise IndexError(i)
            return i * i

        def __len__(self):
            return 3

    s = Seq()
    a, b, c = s
    return (
        list(s),
        4 in s,
        5 in s,
        [x for x in s],
        list(reversed(s)),
        (a, b, c),
        list(zip(s, s)),
        dict(enumerate(s)),
        max(s),
        iter(s) is not None,
    )


def case_missing():
    class D(dict):
        def __missing__(self, key):
            logged("__missing__")
            return key + 1

    d = D({1: "one"})
    return flush(d[1], d[2], d.get(3), 2 in d, dict.__getitem__(d, 5))


def case_iterator():
    class It:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            logged("__iter__")
            return self

        def __next__(self):
            logged("__next__")
            if self.n == 0:
                raise StopIteration("done")
            self.n -= 1
            return self.n

    i = It(3)
    a = next(i)
    rest = [*i]
    x, y = It(2)
    total = 0
    for v in It(3):
        total += v
    return flush(
        a,
        rest,
        next(i, "default"),
        x,
        y,
        total,
        list(map(str, It(2))),
        dict(zip("ab", It(2))),
        sum(It(3)),
        1 in It(3),
        sorted(It(3)),
    )


def case_iterator_exhausted():
    class It:
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration(5)

    return next(It())


def case_iterator_error_in_loop():
    class It:
        def __iter__(self):
            return self

        def __next__(self):
            raise ValueError("inside next")

    for _ in It():
        pass


def case_not_iterable():
    for _ in 3:
        pass


def case_iter_returns_non_iterator():
    class A:
        def __iter__(self):
            return 3

    return list(A())


def case_iter_set_to_none():
    class A:
        __iter__ = None

    return list(A())


def case_contains_set_to_none():
    class A:
        __contains__ = None

    return 1 in A()


def case_conversions():
    class C:
        def __int__(self):
            logged("__int__")
            return 3

        def __float__(self):
            logged("__float__")
            return 2.5

        def __complex__(self):
            logged("__complex__")
            return 1j

        def __index__(self):
            logged("__index__")
            return 2

        def __bytes__(self):
            logged("__bytes__")
            return b"x"

        def __str__(self):
            logged("__str__")
            return "str"

        def __repr__(self):
            logged("__repr__")
            return "repr"

        def __format__(self, spec):
            logged(f"__format__")
            return f"<{spec}>"

        def __round__(self, digits=None):
            logged("__round__")
            return ("round", digits)

        def __trunc__(self):
            logged("__trunc__")
            return 9

        def __floor__(self):
            logged("__floor__")
            return 8

        def __ceil__(self):
            logged("__ceil__")
            return 7

        def __dir__(self):
            logged("__dir__")
            return ["b", "a"]

        def __sizeof__(self):
            logged("__sizeof__")
            return 100

    c = C()
    return flush(
        int(c), float(c), complex(c), operator.index(c), bytes(c), str(c), repr(c), format(c, "s"), f"{c}", f"{c!r:>6}", f"{c:x}",
        round(c), round(c, 2), math.trunc(c), math.floor(c), math.ceil(c), dir(c), [0, 1, 2, 3][c], range(5)[c], "abc"[c],
        hex(c), "%s %r" % (c, c), list(range(c)), [1, 2, 3, 4][c:], c.__sizeof__(), ascii(c), print(c),
    )  # fmt: skip


def case_index_only_conversions():
    class I:
        def __index__(self):
            return 4

    return (
        int(I()),
        float(I()),
        complex(I()),
        bin(I()),
        [0] * I(),
        "abcdefg"[I() :],
        chr(I()),
        round(2.55555, I()),
    )


def case_bad_conversions():
    class Bad:
        def __int__(self):
            return "x"

        def __float__(self):
            return 1

        def __str__(self):
            return 1

        def __repr__(self):
            return 2

        def __index__(self):
            return 1.5

        def __format__(self, spec):
            return 3

    out = []
    for act in (
        int,
        float,
        str,
        repr,
        operator.index,
        format,
        lambda b: [1][b],
        lambda b: f"{b}",
        len,
        abs,
        hash,
        lambda b: b(),
    ):
        try:
            out.append(act(Bad()) if act is not hash else "hashable")
        except TypeError as error:
            out.append(str(error))
    return out


def case_default_str_is_repr():
    class A:
        def __repr__(self):
            return "A!"

    return str(A()), f"{A()}", f"{A()!s:>4}", format(A()), [A()], "%s" % A()


def case_default_format_with_spec():
    class A:
        pass

    return format(A(), ">5")


def case_call():
    class F:
        def __call__(self, *args, **kwargs):
            logged("__call__")
            return args, kwargs

    f = F()
    return flush(f(), f(1, *[2], k=3), list(map(f, [1])), callable(f), callable(3))


def case_call_attribute_on_instance_is_ignored():
    class A:
        pass

    a = A()
    a.__call__ = lambda: 1
    return a()


def case_context_manager():
    class M:
        def __enter__(self):
            logged("__enter__")
            return 5

        def __exit__(self, *args):
            logged("__exit__")
            return True

    with M() as m:
        raise ValueError
    return flush(m)


def case_attribute_slots():
    class A:
        def __getattr__(self, name):
            logged("__getattr__")
            return name

        def __setattr__(self, name, value):
            logged("__setattr__")

        def __delattr__(self, name):
            logged("__delattr__")

    class B:
        def __getattribute__(self, name):
            logged("__getattribute__")
            return name.upper()

    a = A()
    a.x = 1
    del a.y
    setattr(a, "z", 1)
    delattr(a, "z")
    return flush(a.q, getattr(a, "w"), B().abc, getattr(B(), "x", 1), hasattr(B(), "y"))


def case_descriptor_slots():
    class D:
        def __set_name__(self, owner, name):
            logged("__set_name__")

        def __get__(self, obj, owner=None):
            logged("__get__")
            return 1

        def __set__(self, obj, value):
            logged("__set__")

        def __delete__(self, obj):
            logged("__delete__")

    class A:
        d = D()

    a = A()
    a.d = 1
    del a.d
    return flush(a.d, A.d)


def case_class_slots():
    class Meta(type):
        @classmethod
        def __prepare__(mcs, name, bases):
            logged("__prepare__")
            return {}

        def __instancecheck__(cls, obj):
            logged("__instancecheck__")
            return True

        def __subclasscheck__(cls, sub):
            logged("__subclasscheck__")
            return True

    class A(metaclass=Meta):
        def __new__(cls):
            logged("__new__")
            return super().__new__(cls)

        def __init__(self):
            logged("__init__")

        def __init_subclass__(cls):
            logged("__init_subclass__")

        def __class_getitem__(cls, key):
            logged("__class_getitem__")
            return key

    class B(A):
        pass

    class E:
        def __mro_entries__(self, bases):
            logged("__mro_entries__")
            return ()

    class F(E()):
        pass

    return flush(B() is not None, isinstance(3, A), issubclass(int, A), A[3], F.__bases__)


def case_pow_three_arguments():
    class P:
        def __pow__(self, e, m=None):
            return ("pow", e, m)

    return pow(P(), 2), pow(P(), 2, 3), pow(2, 5, 7), P() ** 4


def case_divmod_and_round_builtin():
    return divmod(7, 3), divmod(-7.5, 2), round(2.5), round(2.675, 2), round(-1.5), round(1234, -2)


def case_round_missing():
    return round(object())


def case_copy_slots():
    import copy

    class C:
        def __copy__(self):
            logged("__copy__")
            return "copied"

        def __deepcopy__(self, memo):
            logged("__deepcopy__")
            return "deep"

        def __reduce__(self):
            logged("__reduce__")
            return (int, ("7",))

    class Q:
        def __reduce__(self):
            logged("__reduce__")
            return (int, ("7",))

    class R:
        def __reduce_ex__(self, protocol):
            logged("__reduce_ex__")
            return (str, (8,))

        def __getstate__(self):
            return {}

    return flush(
        copy.copy(C()), copy.deepcopy(C()), copy.copy(R()), copy.deepcopy([R()]), copy.copy(Q())
    )


SPECIAL_METHODS = frozenset(
    """
    __add__ __sub__ __mul__ __truediv__ __floordiv__ __mod__ __pow__ __matmul__ __lshift__ __rshift__ __and__ __or__ __xor__ __divmod__
    __radd__ __rsub__ __rmul__ __rtruediv__ __rfloordiv__ __rmod__ __rpow__ __rmatmul__ __rlshift__ __rrshift__ __rand__ __ror__ __rxor__
    __rdivmod__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __imatmul__ __ilshift__ __irshift__ __iand__ __ior__
    __ixor__ __neg__ __pos__ __invert__ __abs__ __lt__ __le__ __eq__ __ne__ __gt__ __ge__ __hash__ __bool__ __len__ __length_hint__
    __getitem__ __setitem__ __delitem__ __contains__ __missing__ __iter__ __next__ __reversed__ __int__ __float__ __complex__ __index__
    __bytes__ __str__ __repr__ __format__ __round__ __trunc__ __floor__ __ceil__ __dir__ __sizeof__ __call__ __enter__ __exit__ __getattr__
    __getattribute__ __setattr__ __delattr__ __get__ __set__ __delete__ __set_name__ __prepare__ __instancecheck__ __subclasscheck__ __new__
    __init__ __init_subclass__ __class_getitem__ __mro_entries__ __copy__ __deepcopy__ __reduce__ __reduce_ex__
    """.split()
)  # fmt: skip
