"""Builtin functions that call back into the program or need its frames."""

from __future__ import annotations

import inspect
import operator
import sys


def case_sorted():
    words = ["pear", "fig", "apple", "kiwi"]
    nested = [(1, "b"), (0, "z"), (1, "a")]
    l = words[:]
    l.sort(key=len, reverse=True)
    m = [3, 1, 2]
    m.sort()
    return (
        sorted(words),
        sorted(words, key=len),
        sorted(words, key=lambda w: (-len(w), w)),
        sorted(nested, key=lambda t: t[0]),
        sorted(nested, reverse=True),
        l,
        m,
    )


def case_what_is_reversed_is_spread():
    def taken(*args):
        return args

    pairs, backwards = [(1, "a"), (2, "b")], reversed((1, 2, 3))
    found = [taken(*reversed(pair)) for pair in pairs]
    found.append((next(backwards), taken(*backwards), taken(*backwards)))
    return (
        found,
        taken(*reversed("ab")),
        list(reversed(b"ab")),
        max(taken(*reversed(p)) for p in pairs),
    )


def case_sorted_is_stable_when_reversed():
    data = [(1, "a"), (2, "b"), (1, "c"), (2, "d")]
    return sorted(data, key=lambda t: t[0], reverse=True)


def case_sorted_objects():
    class A:
        def __init__(self, n):
            self.n = n

        def __lt__(self, o):
            return self.n < o.n

        def __repr__(self):
            return f"A{self.n}"

    return (
        sorted([A(3), A(1), A(2)]),
        min([A(3), A(1)], key=lambda a: a.n),
        max(A(1), A(4), key=lambda a: a.n),
    )


def case_sorted_incomparable():
    return sorted([1, "a"])


def case_min_max():
    return (
        min(3, 1, 2), max([3, 1, 2]), min("abc", key=lambda c: -ord(c)), max([], default="none"), min({3: 1, 2: 5}), max((x for x in [1, 5, 2])),
        max([1, 2, 3], key=lambda x: x % 3), min([1.5, 1]), max("a", "b"), min(((i, -i) for i in range(3)), key=lambda t: t[1]),
    )  # fmt: skip


def case_min_empty():
    return min([])


def case_max_empty_generator():
    return max(x for x in ())


def case_any_all_short_circuit():
    log = []

    def note(x):
        log.append(x)
        return x

    return any(note(x) for x in (0, 1, 2)), all(note(x) for x in (1, 0, 2)), log, any([]), all([])


def case_sum():
    return (
        sum([1, 2, 3]),
        sum([[1], [2]], []),
        sum((x / 2 for x in range(4)), start=1),
        sum(()),
        sum([0.1] * 3) > 0.3,
    )


def case_sum_strings():
    return sum(["a", "b"], "")


def case_zip():
    return (
        list(zip([1, 2], "ab", (3, 4))), list(zip()), dict(zip("ab", range(2))), list(zip(*[(1, 2), (3, 4)])),
        list(zip((x for x in range(3)), [1, 2])), [a + b for a, b in zip([1, 2], [3, 4], strict=True)],
    )  # fmt: skip


def case_zip_strict_shorter():
    return list(zip([1, 2, 3], (x for x in range(2)), strict=True))


def case_zip_strict_longer():
    return list(zip((x for x in range(2)), [1, 2, 3], strict=True))


def case_enumerate_range_reversed():
    return (
        list(enumerate("ab", start=3)),
        list(range(10, 0, -3)),
        list(reversed([1, 2])),
        list(reversed(range(3))),
        len(range(5)),
        range(5)[1:3],
    )


def case_getattr_builtin():
    class A:
        x = 1

        @property
        def p(self):
            raise AttributeError("p")

        @property
        def q(self):
            return 2

    a = A()
    setattr(a, "y", 3)
    out = [
        getattr(a, "x"),
        getattr(a, "p", "default"),
        hasattr(a, "p"),
        getattr(a, "q", 0),
        hasattr(a, "q"),
        a.y,
    ]
    delattr(a, "y")
    return out, hasattr(a, "y"), vars(a)


def case_getattr_bad_name():
    return getattr(3, 5)


def case_isinstance_and_type():
    class A:
        pass

    class B(A):
        pass

    return (
        isinstance(B(), A),
        isinstance(B(), (int, A)),
        issubclass(B, A),
        type(B()) is B,
        type(B) is type,
        type(1) == int,
        B().__class__ is B,
    )


def case_dir_and_vars():
    class A:
        z = 1

        def __init__(self):
            self.a = 2

    x = 1
    names = dir()
    return (
        names,
        [n for n in dir(A()) if not n.startswith("_")],
        vars(A()),
        [n for n in vars(A) if not n.startswith("_")],
    )


def case_vars_of_int():
    return vars(3)


def case_callable_and_id():
    f = len
    return callable(f), callable(3), callable(int), id(f) == id(len)


def case_print():
    print("a", 1, [2], sep="-", end="!\n")
    print()
    print(*range(3))


def case_str_of_containers_with_objects():
    class A:
        def __repr__(self):
            return "A()"

        def __str__(self):
            return "str A"

    return (
        str([A()]),
        repr({"k": A()}),
        str((A(),)),
        f"{[A()]}",
        "%s" % A(),
        "{}".format(A()),
        str(A()),
    )


def case_conversions():
    return (
        int("12", 8),
        int(3.9),
        float("1e3"),
        str(b"a", "utf8"),
        bool([]),
        list("ab"),
        tuple([1]),
        set("aa"),
        dict(a=1),
        dict([("b", 2)]),
        bytes(3),
        chr(97),
        ord("a"),
        hex(255),
        bin(5),
        oct(8),
        ascii("é"),
        complex("1+2j"),
        memoryview(b"ab")[0],
    )


def case_int_error():
    return int("x")


def case_dict_from_bad_pairs():
    return dict([(1, 2), (3,)])


def case_dict_from_generators():
    return (
        dict((k, v) for k, v in [("a", 1)]),
        dict(((x, y) for x in "ab" for y in (1,)), c=3),
        {}.__class__((("a", 1),)),
    )


def case_dict_update_from_generator():
    d = {}
    d.update((k, len(k)) for k in ["a", "bb"])
    l = [0]
    l.extend(x for x in range(2))
    s = set()
    s.update((x for x in range(2)), [5])
    return d, l, s


def case_hash_and_round_and_pow():
    return (
        hash("a") == hash("a"),
        hash(1) == hash(1.0),
        round(3.7),
        pow(2, 3),
        pow(2, 3, 5),
        abs(-3),
        divmod(7, 2),
    )


def case_operator_functions():
    get = operator.itemgetter(1, 0)
    attr = operator.attrgetter("real", "imag")
    call = operator.methodcaller("upper")
    return (
        get("ab"),
        attr(3),
        call("x"),
        operator.add(1, 2),
        operator.contains([1], 1),
        operator.not_(0),
        operator.eq(1, 1),
        sorted({"b": 1, "a": 2}.items(), key=operator.itemgetter(1)),
    )


def case_frames():
    def inner():
        frame = sys._getframe()
        return (
            frame.f_code.co_name,
            frame.f_back.f_code.co_name,
            sys._getframe(1).f_locals["marker"],
            frame.f_lineno - frame.f_code.co_firstlineno,
        )

    marker = "here"
    return (
        inner(),
        inspect.currentframe().f_code.co_name,
        "case_frames" in sys._getframe().f_globals,
    )


def case_eval_uses_locals():
    a = 4
    exec("b = a + 1", globals(), found := {"a": a})
    return (
        eval("a * 2"),
        found,
        eval("[a for _ in range(2)]", {"a": 1}),
        eval("x + y", {"x": 1}, {"y": 2}),
    )


def case_eval_error():
    return eval("1 / 0")


def case_iter_next():
    it = iter([1, 2])
    return next(it), next(it), next(it, "end"), next(iter(()), None), list(iter({"a": 1}))


def case_slice_objects():
    s = slice(1, None, 2)
    return list(range(10))[s], s.indices(5), s.start, slice(3)


def case_map_over_classes():
    return (
        list(map(int, "123")),
        list(map(str.upper, "ab")),
        [*map(lambda *a: a, [1], [2])],
        list(map(len, ["a", "bb"])),
        dict(map(lambda k: (k, 1), "ab")),
    )


def case_input_free_builtins():
    return sorted(k for k in ("len", "print") if k in dir(__import__("builtins")))


def case_super_type_attributes():
    return (
        int.__add__(1, 2),
        str.join("-", ["a", "b"]),
        list.__len__([1]),
        dict.fromkeys("a", 1),
        object.__repr__(3)[:8],
        type.mro(bool),
        (5).__add__(6),
        [].__len__(),
        "a".__eq__("a"),
        int.from_bytes(b"\x01", "big"),
    )


def case_getattr_on_special():
    return (
        (3).__class__,
        [].__class__.__name__,
        None.__class__,
        (lambda: 1).__name__,
        len.__name__,
        int.__doc__[:3],
        [].append.__self__,
        type.__name__,
        type(type).__name__,
    )


def case_unhashable_key():
    return {[]: 1}


def case_formatting_callbacks():
    class A:
        def __format__(self, spec):
            return f"[{spec}]"

    return "{:x} {!s:>3}".format(A(), "a"), f"{A():{'y'}}", format(A(), "z"), "%5d|%-5s|" % (3, "a")
