"""Names: LEGB, class scopes, nonlocal, global, exec with mappings, del, star imports."""

from __future__ import annotations

x = "module"


def case_legb():
    x = "enclosing"

    def f():
        return x

    class A:
        y = x
        x = "class"
        z = x

        def m(self):
            return x

    return f(), A.y, A.z, A().m(), len


def case_class_reads_global_not_class():
    class A:
        x = "class"
        f = lambda self: x

    return A().f()


def case_class_reads_free_variable_or_own():
    def outer(v):
        class A:
            if v:
                w = "own"
            copy = w if v else "none"
            free = v

        return A.copy, A.free

    return outer(1), outer(0)


def case_class_deref():
    def f():
        name = "cell"

        class A:
            before = name
            name = "class"
            after = name

            def g(self):
                return name

        return A.before, A.after, A().g()

    return f()


def case_nonlocal():
    def f():
        n = 0

        def g():
            nonlocal n
            n += 1

            def h():
                nonlocal n
                n *= 10

            h()

        g()
        g()
        return n

    return f()


def case_exec_namespaces():
    class Logged(dict):
        def __init__(self):
            self.log = []

        def __setitem__(self, k, v):
            self.log.append(("set", k))
            super().__setitem__(k, v)

        def __getitem__(self, k):
            self.log.append(("get", k))
            return super().__getitem__(k)

    ns = Logged()
    exec("a = 1\nb = a + 1\ndel a\nfor i in range(1): pass", {}, ns)
    return dict(ns), ns.log


def case_exec_defines_functions_and_classes():
    ns = {}
    exec(
        "def f(n):\n    return 1 if n == 0 else n * f(n - 1)\nclass K:\n    v = f(4)\nimport math as m",
        ns,
    )
    return ns["f"](5), ns["K"].v, ns["m"].pi > 3


def case_exec_annotations():
    ns = {}
    exec("x: int = 1\ny: 'str'", ns)
    return ns["__annotations__"], ns["x"]


def case_exec_delete_name():
    exec("del q", {})


def case_exec_missing_name():
    exec("q", {})


def case_exec_shadow_builtin():
    ns = {"len": lambda v: "mine"}
    exec("r = len([])", ns)
    return ns["r"]


def case_builtins_replaced():
    ns = {"__builtins__": {"abs": abs}}
    exec("r = abs(-1)", ns)
    try:
        exec("len([])", ns)
    except NameError as error:
        return ns["r"], str(error)


def case_comprehension_in_exec():
    ns = {"k": 2}
    exec("r = [i * k for i in range(3)]\ns = {i: (lambda: i)() for i in range(2)}", ns)
    return ns["r"], ns["s"]


def case_comprehension_class_scope():
    class A:
        n = 3
        sizes = [i for i in range(n)]
        try:
            bad = [n for _ in range(1)]
        except NameError:
            bad = "not visible"

    return A.sizes, A.bad


def case_loop_closure_in_comprehension():
    fs = [(lambda: i) for i in range(3)]
    gs = {i: (lambda i=i: i) for i in range(3)}
    return [f() for f in fs], [g() for g in gs.values()]


def case_nested_comprehension_with_outer_names():
    n = 2
    return [[n * a * b for b in range(n)] for a in range(n)], [
        x for x in (y for y in range(n)) if x < n
    ]


def case_locals_in_comprehension_and_function():
    a = 1
    names = sorted(locals())
    b = 2
    return names, sorted(k for k in locals() if k in "ab")


def case_star_target_names():
    first, *_, last = range(5)
    return first, last, _


def case_conditional_definition():
    if x == "module":

        def f():
            return "yes"

    else:

        def f():
            return "no"

    return f()


def case_global_in_nested_function():
    def f():
        def g():
            global fresh
            fresh = 9

        g()

    f()
    value = fresh
    globals().pop("fresh")
    return value


def case_dunder_names():
    return __name__.rpartition(".")[2], case_dunder_names.__module__ == __name__


def case_name_mangling():
    class A:
        __secret = 1

        def get(self):
            self.__own = 2
            return self.__secret + self.__own

    return A().get(), "_A__own" in vars(A()) or hasattr(A, "_A__secret")
