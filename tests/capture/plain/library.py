"""The standard library, interpreted where it is Python and called where it is C."""

from __future__ import annotations

import bisect
import collections
import contextlib
import contextvars
import copy
import functools
import heapq
import inspect
import itertools
import json
import logging
import math
import os
import random
import re
import string
import textwrap
import types
import typing


def case_collections():
    c = collections.Counter("abracadabra")
    d = collections.defaultdict(list)
    for k, v in [("a", 1), ("b", 2), ("a", 3)]:
        d[k].append(v)
    q = collections.deque([1, 2, 3], maxlen=3)
    q.append(4)
    q.appendleft(0)
    q.rotate(1)
    o = collections.OrderedDict(a=1, b=2)
    o.move_to_end("a")
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    u = collections.UserDict(x=1)
    return c.most_common(2), dict(d), list(q), list(o), m["b"], dict(m), u["x"], c + c, c["z"]


def case_defaultdict_with_lambda():
    d = collections.defaultdict(lambda: [0])
    d["x"].append(1)
    d["y"]
    return dict(d)


def case_itertools():
    groups = [(k, list(g)) for k, g in itertools.groupby([1, 1, 2, 3, 3], key=lambda x: x % 2)]
    return (
        groups, list(itertools.chain.from_iterable([[1], [2]])), list(itertools.takewhile(lambda x: x < 3, itertools.count())),
        list(itertools.dropwhile(lambda x: x < 3, range(5))), list(itertools.starmap(lambda a, b: a * b, [(1, 2), (3, 4)])),
        list(itertools.combinations("abc", 2)), list(itertools.zip_longest([1], [2, 3], fillvalue=0)), list(itertools.repeat(1, 2)),
        [list(t) for t in itertools.tee([1, 2])], list(itertools.compress("abc", [1, 0, 1])), list(itertools.accumulate([1, 2, 3], lambda a, b: a * b)),
    )  # fmt: skip


def case_functools():
    class A:
        @functools.lru_cache
        def f(self, x):
            return x + 1

    @functools.cache
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    key = functools.cmp_to_key(lambda a, b: b - a)
    return A().f(1), fib(30), sorted([1, 3, 2], key=key), functools.partial(int, base=2)("101")


def case_json_re_string():
    data = {"a": [1, 2.5, None, True], "b": {"c": "é\n"}}
    text = json.dumps(data, sort_keys=True, indent=1)
    found = re.sub(r"(\d+)", lambda m: str(int(m.group(1)) * 2), "a1b22")
    return (
        json.loads(text) == data,
        text,
        found,
        re.findall(r"\w+", "ab cd"),
        re.match(r"(?P<x>a+)", "aab").groupdict(),
        string.Template("$x").substitute(x=1),
        textwrap.dedent("  a\n  b"),
    )


def case_json_custom_encoder():
    class Enc(json.JSONEncoder):
        def default(self, o):
            return sorted(o) if isinstance(o, set) else super().default(o)

    return json.dumps({"s": {2, 1}}, cls=Enc), json.loads(
        '{"a": 1}', object_hook=lambda d: list(d.items())
    )


def case_math_random_heapq():
    rng = random.Random(0)
    h = [3, 1, 2]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return (
        math.sqrt(16),
        math.prod([2, 3]),
        rng.randint(0, 9),
        rng.sample(range(10), 3),
        [heapq.heappop(h) for _ in range(4)],
        bisect.bisect([1, 3, 5], 3),
        heapq.nlargest(2, [1, 5, 3], key=lambda x: -x),
    )


def case_copy():
    class A:
        def __init__(self):
            self.x = [1]

    a = A()
    b, c = copy.copy(a), copy.deepcopy({"a": a, "l": [a, (a,)]})
    return (
        b.x is a.x,
        c["a"].x is a.x,
        c["l"][0] is c["a"],
        c["l"][1][0] is c["a"],
        copy.deepcopy([1, {2: {3}}]),
    )


def case_contextvars():
    var = contextvars.ContextVar("v", default=0)
    token = var.set(5)
    inside = var.get()
    var.reset(token)
    ctx = contextvars.copy_context()
    return inside, var.get(), ctx.run(lambda: var.get() + 1)


def case_inspect():
    def f(a, b: int = 2, *c, d=3, **e) -> str:
        """Doc."""

    sig = inspect.signature(f)
    bound = sig.bind(1, d=5)
    bound.apply_defaults()
    return (
        str(sig),
        bound.arguments,
        list(sig.parameters),
        sig.parameters["b"].annotation,
        inspect.isfunction(f),
        inspect.getdoc(f),
        inspect.unwrap(f) is f,
    )


def case_typing():
    def f(a: int, b: "str" = "") -> list[int]: ...

    class P(typing.Protocol):
        def run(self) -> int: ...

    @typing.runtime_checkable
    class R(typing.Protocol):
        def go(self): ...

    class G:
        def go(self):
            pass

    return (
        typing.get_type_hints(f),
        typing.Optional[int],
        typing.Union[int, str],
        typing.get_origin(list[int]),
        typing.get_args(dict[str, int]),
        isinstance(G(), R),
        isinstance(3, R),
    )


def case_logging():
    records = []

    class Handler(logging.Handler):
        def emit(self, record):
            records.append((record.levelname, record.getMessage()))

    logger = logging.Logger("test")
    logger.addHandler(Handler())
    logger.warning("x %s", 1)
    logger.debug("y")
    logger.setLevel(logging.ERROR)
    logger.info("hidden")
    return records


def case_types():
    ns = types.SimpleNamespace(a=1)
    ns.b = 2
    del ns.a
    proxy = types.MappingProxyType({"k": 1})
    mod = types.ModuleType("m")
    mod.x = 1
    method = types.MethodType(lambda self, y: (self, y), "me")
    cls = types.new_class("C", (), {}, lambda d: d.update(z=3))
    return ns, proxy["k"], mod.x, method(1), cls.z, types.FunctionType((lambda: 5).__code__, {})()


def case_lazy_module():
    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            if name == "late":
                self.late = 7
                return 7
            raise AttributeError(f"module has no {name}")

    m = Lazy("lazy")
    return m.late, m.late, vars(m)["late"], hasattr(m, "never")


def case_module_getattr():
    m = types.ModuleType("m")
    m.__getattr__ = lambda name: name.upper()
    return m.abc, m.__name__


def case_os_path():
    return (
        os.path.basename("/a/b.txt"),
        os.path.splitext("b.tar.gz"),
        os.fspath("x"),
        os.environ.get("NO_SUCH_VARIABLE", "d"),
    )


def case_contextlib_more():
    class C(contextlib.ContextDecorator):
        def __enter__(self):
            print("enter")

        def __exit__(self, *a):
            print("exit")

    @C()
    def f():
        print("body")
        return 1

    with contextlib.redirect_stdout(None):
        pass
    with contextlib.closing(types.SimpleNamespace(close=lambda: print("closed"))):
        pass
    return f()


def case_exitstack_suppresses():
    log = []
    with contextlib.ExitStack() as stack:
        stack.push(lambda *a: log.append(a[0]) or True)
        stack.callback(lambda: log.append("cb"))
        raise ValueError("swallowed")
    return log


def case_weakref_dict():
    import weakref

    class A:
        pass

    a = A()
    d = weakref.WeakKeyDictionary()
    d[a] = 1
    return d[a], a in d, len(d)


def case_thread():
    import threading

    out = []
    t = threading.Thread(
        target=lambda: out.append(threading.current_thread() is not threading.main_thread())
    )
    t.start()
    t.join()
    return out


def case_pickle():
    import pickle

    return pickle.loads(pickle.dumps({"a": [1, (2, 3)], "c": collections.OrderedDict(x=1)}))


def case_fractions_decimal():
    from decimal import Decimal
    from fractions import Fraction

    return (
        Fraction(1, 3) + Fraction(1, 6),
        Decimal("0.1") + 2,
        Fraction(3, 4) < 1,
        1 + Fraction(1, 2),
        sum([Fraction(1, 2)] * 3),
        round(Fraction(7, 2)),
    )


def case_datetime():
    import datetime

    d = datetime.date(2024, 2, 28) + datetime.timedelta(days=2)
    return d, d.isoformat(), d > datetime.date(2024, 1, 1), f"{d:%d/%m}"


def case_string_io_and_csv():
    import csv
    import io

    f = io.StringIO()
    csv.writer(f).writerows([[1, "a,b"], [2, "c"]])
    return f.getvalue(), list(csv.reader(io.StringIO("x,y\n1,2\n")))


def case_argparse():
    import argparse

    p = argparse.ArgumentParser()
    p.add_argument("--n", type=int, default=3)
    p.add_argument("name")
    return vars(p.parse_args(["--n", "5", "x"]))


def case_unittest_mock_free_doctest_free():
    import difflib

    return difflib.get_close_matches("appel", ["ape", "apple", "peach"]), list(
        difflib.unified_diff(["a"], ["b"], lineterm="")
    )


def case_ast_and_dis():
    import ast
    import dis

    tree = ast.parse("x = 1 + 2")
    return (
        ast.dump(tree),
        [type(n).__name__ for n in ast.walk(tree)],
        len(list(dis.get_instructions(case_os_path))) > 5,
    )


def case_operator_overload_via_abc():
    from collections.abc import Mapping, MutableMapping, Sequence, Set

    class M(MutableMapping):
        def __init__(self):
            self.d = {}

        def __getitem__(self, k):
            return self.d[k]

        def __setitem__(self, k, v):
            self.d[k] = v

        def __delitem__(self, k):
            del self.d[k]

        def __iter__(self):
            return iter(self.d)

        def __len__(self):
            return len(self.d)

    class S(Sequence):
        def __getitem__(self, i):
            return [5, 6, 7][i]

        def __len__(self):
            return 3

    m = M()
    m["a"] = 1
    m.update(b=2, c=3)
    del m["c"]
    return (
        dict(m),
        {**m},
        m.pop("a"),
        m.get("q", 0),
        "b" in m,
        list(m.items()),
        list(S()),
        S().index(6),
        7 in S(),
        list(reversed(S())),
        isinstance(m, Mapping),
        issubclass(S, Set),
        m == {"b": 2},
    )
