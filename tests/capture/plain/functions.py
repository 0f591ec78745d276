"""Functions: parameters, defaults, closures, star calls, decorators, recursion."""

from __future__ import annotations

import functools


def both(a, /, b, c=3, *args, d, e=5, **kwargs):
    return a, b, c, args, d, e, kwargs


def case_all_kinds_of_parameters():
    more = {"x": 9, "e": 6}
    return (
        both(1, 2, d=4),
        both(1, b=2, d=4),
        both(1, 2, 3, 4, 5, d=6, z=7),
        both(*[1, 2], *(3, 4), d=5, **more),
        both(1, *[2], d=3, **{"a": 4}),
    )


def simple(a, b=2):
    return a, b


def keyword_only(*, a, b=1):
    return a, b


def positional_only(a, b, /):
    return a, b


def case_call_errors():
    calls = [
        lambda: simple(),
        lambda: simple(1, 2, 3),
        lambda: simple(1, a=2),
        lambda: simple(1, c=2),
        lambda: keyword_only(1),
        lambda: keyword_only(),
        lambda: keyword_only(c=1),
        lambda: positional_only(1, b=2),
        lambda: positional_only(a=1, b=2),
        lambda: both(),
        lambda: both(1, 2),
        lambda: simple(*3),
        lambda: simple(**3),
        lambda: simple(1, **{"a": 1}),
        lambda: simple(**{"a": 1}, **{"a": 2}),
        lambda: simple(**{1: 2}),
        lambda: int(3)(),
        lambda: print()(1),
    ]
    out = []
    for call in calls:
        try:
            out.append(call())
        except TypeError as error:
            out.append(str(error))
    return out


def case_missing_argument_traceback():
    return simple()


def case_defaults_are_shared():
    def f(x, seen=[]):
        seen.append(x)
        return seen

    f(1)
    f(2)
    return f(3), f.__defaults__


def case_closures():
    def counter():
        n = 0

        def up(by=1):
            nonlocal n
            n += by
            return n

        def peek():
            return n

        return up, peek

    up, peek = counter()
    up()
    up(5)
    return peek(), up.__closure__[0].cell_contents, counter()[1]()


def case_closure_of_argument():
    def outer(a, *b, **c):
        def inner():
            return a, b, c

        a += 1
        return inner

    return outer(1, 2, x=3)()


def case_nested_closures():
    def a(x):
        def b(y):
            def c(z):
                nonlocal x
                x += z
                return x, y, z

            return c

        return b

    f = a(1)(2)
    return f(3), f(4)


def case_free_variable_unbound():
    def inner():
        return later

    if len("") > 0:
        later = 1
    return inner()


def case_cell_deleted():
    x = 1

    def f():
        return x

    before = f()
    del x
    try:
        f()
    except NameError as error:
        return before, type(error).__name__, str(error)


def case_own_cell_unbound():
    def f():
        return x

    x = 1
    del x
    return x


def case_recursion():
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return [fib(i) for i in range(12)]


def case_decorators():
    def twice(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs), fn(*args, **kwargs)

        return wrapper

    def named(name):
        def decorate(fn):
            fn.label = name
            return fn

        return decorate

    @twice
    @named("x")
    def f(a, b=1):
        """Doc."""
        return a + b

    return f(1), f(1, b=5), f.__name__, f.__doc__, f.label, f.__wrapped__(0)


def case_function_attributes():
    def f(a: int, *, b: str = "x") -> float:
        """Doc."""

    f.note = 1
    return (
        f.__name__, f.__qualname__, f.__doc__, f.__annotations__, f.__kwdefaults__, f.__defaults__, f.note,
        f.__module__, f.__code__.co_varnames, f.__dict__,
    )  # fmt: skip


def case_methods_as_values():
    class A:
        def __init__(self, n):
            self.n = n

        def add(self, k):
            return self.n + k

    bound = A(3).add
    unbound = A.add
    return (
        bound(1),
        unbound(A(5), 1),
        list(map(A(10).add, range(3))),
        bound.__self__.n,
        bound.__func__ is unbound,
    )


def case_partial():
    add = functools.partial(simple, b=5)
    more = functools.partial(add, 7)
    method = functools.partialmethod

    class A:
        def set(self, value, scale=1):
            return value * scale

        double = method(set, scale=2)

    return add(1), more(), more(b=1), more.func is simple, more.args, A().double(4)


def case_lru_cache():
    calls = []

    @functools.lru_cache(maxsize=None)
    def square(x):
        calls.append(x)
        return x * x

    return [square(i % 3) for i in range(7)], calls, square.cache_info().hits


def case_singledispatch():
    @functools.singledispatch
    def kind(x):
        return "object"

    @kind.register
    def _(x: int):
        return "int"

    @kind.register(list)
    def _(x):
        return "list"

    return kind(1), kind([]), kind("s"), kind(True)


def case_reduce_map_filter():
    return (
        functools.reduce(lambda a, b: a * b, range(1, 6)),
        functools.reduce(lambda a, b: a + b, [], 7),
        list(map(lambda a, b: a + b, [1, 2, 3], (10, 20))),
        list(filter(lambda x: x % 2, range(6))),
        list(filter(None, [0, 1, "", "a"])),
        list(map(str, range(3))),
    )


def case_reduce_of_nothing():
    return functools.reduce(lambda a, b: a, [])


def case_global_statement():
    global _counter
    _counter = 1
    _counter += 1
    bump()
    result = _counter
    del _counter
    try:
        return result, _counter
    except NameError as error:
        return result, str(error)


def bump():
    global _counter
    _counter *= 10


def case_delete_missing_global():
    global _never_set
    del _never_set


def case_locals_and_globals():
    a, b = 1, [2]

    def f():
        return a

    shown = locals()
    return sorted(k for k in shown), shown["a"], "case_locals_and_globals" in globals(), f()


def case_varargs_are_a_tuple():
    def f(*args, **kwargs):
        kwargs["new"] = 1
        return type(args), args, kwargs

    d = {"k": 1}
    return f(*[], **d), d, f(*(), **{})


def case_keyword_order():
    def f(**kw):
        return list(kw)

    return f(c=1, a=2, **{"b": 3, "z": 4})


def case_evaluation_order():
    log = []

    def t(x):
        log.append(x)
        return x

    both(t(1), t(2), *[t(3)], d=t(4), **{"q": t(5)})
    {t("k"): t("v")}
    [t(6)][t(0)]
    return log


def case_recursive_default_argument():
    fs = []
    for i in range(3):
        fs.append(lambda i=i: i * 10)
    return [f() for f in fs]


def case_annotations_with_closure():
    def outer():
        n = 2

        def inner(a: "n", *, k=n) -> "n":
            return a * n + k

        return inner

    f = outer()
    return f(3), f.__annotations__


def case_star_unpack_generator():
    def f(*a):
        return a

    return f(*(x * x for x in range(4))), f(*{1: 2}, *"ab"), f(*map(str, range(2)))


def case_mapping_object_as_kwargs():
    class M:
        def keys(self):
            return ["a", "b"]

        def __getitem__(self, key):
            return key * 2

    return simple(**M()), {**M()}, dict(M())


def case_calling_stored_function():
    class Holder:
        fn = staticmethod(lambda x: x + 1)
        table = {"double": lambda x: x * 2}

    h = Holder()
    h.own = lambda x: -x
    return h.fn(1), h.table["double"](4), h.own(3)


def case_immediately_raising_argument():
    def boom():
        raise ValueError("argument")

    return simple(boom(), 2)


def case_keywords_that_are_no_strings():
    class Text(str):
        pass

    class Holder:
        def __init__(self, **named):
            self.named = named

        def __call__(self, **named):
            return named

    class Plain:
        pass

    def takes(**named):
        return named

    said = []
    for fn in (takes, simple, Holder, Holder(), Holder().__init__, Plain, print, dict, int, max):
        for given in ({1: 2}, {"a": 1, (): 3}, {Text("a"): 1}, {"it's": 1}, {None: 1}):
            try:
                made = fn(**given)
                said.append(made if isinstance(made, dict) else type(made).__name__)
            except TypeError as error:
                said.append(str(error))
    for first, second in (({1: 2}, {1: 3}), ({"a'b": 2}, {"a'b": 3}), ({"z": 2}, {1: 3})):
        try:
            said.append(takes(**first, **second))
        except TypeError as error:
            said.append(str(error))
    return said
