"""Control flow: loops, comprehensions, match, with, import."""

from __future__ import annotations

import contextlib


def case_for_else():
    out = []
    for n in range(2, 10):
        for x in range(2, n):
            if n % x == 0:
                break
        else:
            out.append(n)
    else:
        out.append("end")
    return out


def case_while_else_continue():
    n, out = 0, []
    while n < 10:
        n += 1
        if n % 2:
            continue
        if n == 8:
            break
        out.append(n)
    else:
        out.append("never")
    return out


def case_nested_loops_with_finally():
    out = []
    for i in range(3):
        try:
            for j in range(3):
                if j == 1:
                    continue
                if i == 1:
                    break
                out.append((i, j))
        finally:
            out.append(i)
    return out


def case_comprehensions():
    data = range(6)
    n = 2
    return (
        [x * n for x in data if x % 2],
        {x: [y for y in range(x)] for x in data if x},
        {x % 3 for x in data},
        list(x + y for x in data if x for y in (10, 20) if x != y),
        [[i * j for j in range(3)] for i in range(3)],
        [x for x in [x for x in data]],
    )


def case_comprehension_scope():
    x = "outer"
    inner = [x for x in range(3)]
    fs = [lambda: x for x in range(3)]
    gs = [lambda y=y: (x, y) for y in range(2)]
    return x, inner, [f() for f in fs], [g() for g in gs]


def case_comprehension_restores_unbound():
    [x for x in range(2)]
    try:
        return x
    except NameError as error:
        return type(error).__name__


def case_comprehension_exception_restores():
    x = 5
    try:
        [1 // x for x in (1, 0)]
    except ZeroDivisionError:
        pass
    return x


def case_comprehension_in_class():
    class A:
        names = ["a", "b"]
        upper = [n.upper() for n in names]
        pairs = {n: i for i, n in enumerate(names)}

    return A.upper, A.pairs


def classify(value):
    match value:
        case 0 | 1:
            return "small"
        case int(n) if n > 100:
            return f"big {n}"
        case int():
            return "int"
        case str() as s:
            return f"str {s}"
        case []:
            return "empty"
        case [x]:
            return f"one {x}"
        case [x, [y, *rest], *_]:
            return f"nested {x} {y} {rest}"
        case (1.5, *others):
            return f"tuple {others}"
        case {"type": "a", "value": v, **rest}:
            return f"dict {v} {sorted(rest)}"
        case {"type": kind}:
            return f"kind {kind}"
        case None:
            return "none"
        case True:
            return "never"
        case Point(x=0, y=y):
            return f"on axis {y}"
        case Point(x, y=5):
            return f"five {x}"
        case Point(a, b):
            return f"point {a} {b}"
        case _:
            return "other"


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


def case_match():
    subjects = [
        0, 1, 7, 1000, "s", [], [3], [1, [2, 3, 4], 5], (1.5, 2), {"type": "a", "value": 1, "z": 2}, {"type": "b"},
        {"other": 1}, None, True, Point(0, 2), Point(1, 5), Point(1, 2), object, b"x", {1}, 2.5, (1, 2, 3),
    ]  # fmt: skip
    return [classify(s) for s in subjects]


def case_match_keys_missing():
    out = []
    for d in ({"a": 1}, {"a": 1, "b": 2}, {"b": 3, "c": {"d": 4}}):
        match d:
            case {"a": x, "b": y}:
                out.append((x, y))
            case {"c": {"d": z}}:
                out.append(z)
            case {"a": x}:
                out.append(x)
    return out


def case_match_too_many_positional():
    match Point(1, 2):
        case Point(a, b, c):
            return a


def case_match_not_a_class():
    thing = 3

    class Holder:
        attr = thing

    match 3:
        case Holder.attr():
            return 1


def case_match_value_and_singleton():
    class Color:
        RED = "r"

    out = []
    for v in ("r", "g", False, None):
        match v:
            case Color.RED:
                out.append(1)
            case False:
                out.append(2)
            case None:
                out.append(3)
            case other:
                out.append(other)
    return out


def case_match_mapping_subclass():
    from collections import OrderedDict, defaultdict

    out = []
    for d in (OrderedDict(a=1), defaultdict(int), defaultdict(int, a=2)):
        match d:
            case {"a": x}:
                out.append(x)
            case {}:
                out.append("no a")
    return out


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(
            ("exit", None if kind is None else kind.__name__, str(value), tb is not None)
        )
        return self.swallow


def case_with():
    log = []
    with Manager(log) as m, Manager(log):
        log.append(m is not None)
    with Manager(log, swallow=True):
        raise ValueError("gone")
    try:
        with Manager(log):
            raise KeyError("kept")
    except KeyError as error:
        log.append(repr(error))
    return log


def case_with_return_and_break():
    log = []

    def f():
        with Manager(log):
            return "value"

    for _ in range(2):
        with Manager(log):
            if log:
                break
    return f(), log


def case_with_not_a_manager():
    with 3:
        pass


def case_with_no_exit():
    class Half:
        def __enter__(self):
            return self

    with Half():
        pass


def case_with_exit_raises():
    class Bad:
        def __enter__(self):
            return 1

        def __exit__(self, *args):
            raise RuntimeError("from exit")

    with Bad():
        raise ValueError("first")


def case_contextlib():
    log = []

    @contextlib.contextmanager
    def managed(name):
        log.append(f"in {name}")
        try:
            yield name.upper()
        except ValueError as error:
            log.append(f"caught {error}")
        finally:
            log.append(f"out {name}")

    with managed("a") as a, managed("b") as b:
        log.append((a, b))
    with managed("c"):
        raise ValueError("x")
    with contextlib.ExitStack() as stack:
        log.append([stack.enter_context(managed(n)) for n in "de"])
        stack.callback(log.append, "callback")
    with contextlib.suppress(KeyError):
        {}["k"]
    with contextlib.nullcontext(5) as five:
        log.append(five)

    @managed("f")
    def decorated(x):
        log.append(x)
        return x + 1

    return decorated(1), decorated(2), log


def case_with_native_manager():
    import io
    import threading

    lock = threading.Lock()
    with lock, io.StringIO("text") as f:
        inside = lock.locked(), f.read()
    return inside, lock.locked(), f.closed


def case_imports():
    import json as j
    import os.path
    from collections import OrderedDict as O
    from collections import abc, deque
    from math import floor, pi

    return (
        j.dumps({"a": [1, 2]}),
        os.path.join("a", "b"),
        O(a=1),
        list(deque([1])),
        abc.Iterable.__name__,
        floor(pi),
    )


def case_import_missing():
    import no_such_module_at_all


def case_import_missing_name():
    from math import no_such_name


def case_import_star():
    namespace = {}
    exec("from math import *\nresult = floor(pi) + int(sqrt(16))", namespace)
    return namespace["result"], "_" in namespace


def case_relative_import():
    from . import harness

    return harness.__name__


def case_exec_and_eval():
    x = 3
    space = {"y": 4}
    exec("z = y + 1\ndef f(a):\n    return a * z", space)
    local = {}
    exec("w = 1\nfor i in range(3):\n    w += i", {}, local)
    return (
        eval("x * 2"),
        eval("y + z", space),
        space["f"](3),
        local,
        eval(compile("1 + 1", "s", "eval")),
    )


def case_exec_syntax_error():
    exec("def (")


def case_interactive_expression():
    code = compile("1 + 1; 'text'; None", "<stdin>", "single")
    exec(code, {})


def case_try_in_loop():
    out = []
    for i in range(4):
        try:
            if i == 0:
                continue
            if i == 1:
                raise ValueError(i)
            if i == 3:
                break
            out.append(i)
        except ValueError as e:
            out.append(repr(e))
        else:
            out.append("else")
        finally:
            out.append("finally")
    return out


def case_deep_recursion_of_frames():
    def depth(n):
        return 0 if n == 0 else 1 + depth(n - 1)

    return depth(300)


def case_lambda_and_conditional():
    return (lambda a, *b, c=1, **d: (a, b, c, d))(1, 2, c=3, e=4), [(lambda: i)() for i in range(2)]


def case_global_loop_variable_after():
    for i, (a, b) in enumerate([(1, 2), (3, 4)]):
        pass
    return i, a, b


def case_match_args_wrong():
    out = []

    class NotTuple:
        __match_args__ = ["a"]

    class NotString:
        __match_args__ = (1,)

    class Twice:
        __match_args__ = ("a", "a")
        a = 1

    def two(subject):
        match subject:
            case NotTuple(x) | NotString(x):
                return x
            case Twice(x, y):
                return x, y
            case Point(x, x=y):
                return x, y
            case int(x, y):
                return x

    for subject in (NotTuple(), NotString(), Twice(), Point(1, 2), 3):
        try:
            out.append(two(subject))
        except TypeError as error:
            out.append(str(error))
    return out


def case_match_builtin_classes():
    out = []
    for subject in (1, "s", [1], {"a": 1}, b"x", 2.5, True, (1,), frozenset({1})):
        match subject:
            case bool(x):
                out.append(("bool", x))
            case int(x) | str(x) | float(x):
                out.append(("plain", x))
            case list(x) | tuple(x) | dict(x) | frozenset(x):
                out.append(("container", x))
            case bytes():
                out.append("bytes")
    return out
