"""Generators: send, throw, close, yield from, generator expressions, native consumers."""

from __future__ import annotations

import inspect
import itertools
import types


def case_simple():
    def gen(n):
        for i in range(n):
            got = yield i
            if got:
                yield ("got", got)
        return "end"

    g = gen(3)
    return (
        next(g),
        g.send("x"),
        next(g),
        list(g),
        list(gen(2)),
        [*gen(2)],
        tuple(gen(1)),
        sum(gen(4)),
    )


def case_send_first():
    def gen():
        yield 1

    gen().send(3)


def case_exhausted():
    def gen():
        yield 1
        return 2

    g = gen()
    out = [next(g)]
    for _ in range(2):
        try:
            next(g)
        except StopIteration as stop:
            out.append(stop.value)
    return out, next(g, "default")


def case_throw():
    log = []

    def gen():
        while True:
            try:
                x = yield len(log)
                log.append(x)
            except ValueError as error:
                log.append(repr(error))

    g = gen()
    next(g)
    out = [g.send("a"), g.throw(ValueError("in")), g.throw(ValueError), next(g)]
    try:
        g.throw(KeyError("out"))
    except KeyError as error:
        out.append(repr(error))
    return out, log, list(g)


def case_throw_unstarted():
    def gen():
        yield 1

    g = gen()
    try:
        g.throw(ValueError("early"))
    except ValueError as error:
        return str(error), list(g)


def case_throw_bad():
    def gen():
        yield 1

    gen().throw(3)


def case_close():
    log = []

    def gen():
        try:
            yield 1
            yield 2
        except GeneratorExit:
            log.append("exit")
            raise
        finally:
            log.append("finally")

    g = gen()
    next(g)
    g.close()
    g.close()
    h = gen()
    h.close()
    return log, list(g), list(h)


def case_close_ignored():
    def gen():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    g = gen()
    next(g)
    g.close()


def case_close_raises():
    def gen():
        try:
            yield 1
        finally:
            raise KeyError("from finally")

    g = gen()
    next(g)
    g.close()


def case_yield_from():
    def inner(n):
        got = []
        for i in range(n):
            got.append((yield i))
        return got

    def outer():
        a = yield from inner(2)
        b = yield from [10, 20]
        c = yield from "xy"
        return a, b, c

    g = outer()
    out = [next(g), g.send("s1"), g.send("s2"), next(g), next(g), next(g)]
    try:
        next(g)
    except StopIteration as stop:
        out.append(stop.value)
    return out


def case_yield_from_throw_and_close():
    log = []

    def inner():
        try:
            yield 1
        except ValueError as error:
            log.append(repr(error))
            yield "handled"
            return "inner result"
        finally:
            log.append("inner finally")

    def outer():
        try:
            result = yield from inner()
            yield result
            yield from inner()
        finally:
            log.append("outer finally")

    g = outer()
    out = [next(g), g.throw(ValueError("t")), next(g), next(g)]
    g.close()
    return out, log


def case_yield_from_throw_through():
    def inner():
        yield 1

    def outer():
        try:
            yield from inner()
        except KeyError as error:
            yield ("outer", repr(error))

    g = outer()
    next(g)
    return g.throw(KeyError("k")), list(g)


def case_yield_from_throw_into_list():
    def outer():
        try:
            yield from [1, 2]
        except KeyError:
            yield "caught"

    g = outer()
    next(g)
    return g.throw(KeyError), list(g)


def case_yield_from_throw_ends_delegate():
    def inner():
        try:
            yield 1
        except ValueError:
            return "value of inner"

    def outer():
        x = yield from inner()
        yield ("outer got", x)

    g = outer()
    next(g)
    return g.throw(ValueError), list(g)


def case_yield_from_object():
    class It:
        def __init__(self):
            self.sent = []

        def __iter__(self):
            return self

        def __next__(self):
            return "next"

        def send(self, value):
            self.sent.append(value)
            if value == "stop":
                raise StopIteration("stopped")
            return ("sent", value)

        def throw(self, *args):
            return ("thrown", len(args))

        def close(self):
            self.sent.append("closed")

    it = It()

    def outer():
        yield (yield from it)

    g = outer()
    out = [next(g), g.send(5), g.throw(ValueError("v")), next(g), g.send("stop")]
    h = outer()
    next(h)
    h.close()
    return out, it.sent


def case_yield_from_error():
    def inner():
        yield 1
        raise KeyError("inner")

    def outer():
        yield from inner()

    return list(outer())


def case_stop_iteration_inside():
    def gen():
        yield 1
        raise StopIteration("bad")

    return list(gen())


def case_stop_iteration_from_next_inside():
    def gen():
        it = iter([1])
        while True:
            yield next(it)

    return list(gen())


def case_generator_already_executing():
    def gen():
        yield next(g)

    g = gen()
    next(g)


def case_generator_expressions():
    data = [1, 2, 3]
    g = (x * y for x in data for y in data if x != y)
    first = next(g)
    return (
        first,
        list(g),
        sum(x for x in data),
        ",".join(str(x) for x in data),
        dict((x, x) for x in data),
        max((x for x in data), default=0),
    )


def case_generator_expression_binds_first_iterable_eagerly():
    g = (x for x in missing_name)
    return list(g)


def case_lazy():
    log = []

    def gen():
        for i in itertools.count():
            log.append(i)
            yield i

    pairs = zip(gen(), "abc")
    taken = list(itertools.islice(gen(), 3))
    mapped = map(lambda x: x * 2, gen())
    return list(pairs), taken, next(mapped), next(mapped), log


def case_native_consumers():
    def gen(n=3):
        yield from range(n)

    return (
        list(itertools.chain(gen(), gen(2))), list(itertools.accumulate(gen(4))), set(gen()), frozenset(gen()), sorted(gen(), reverse=True),
        list(enumerate(gen(), 5)), bytes(gen()), list(zip(gen(), gen(2))), max(gen()), min(gen()), any(gen()), all(gen()), 2 in gen(),
        [*gen(), *gen(1)], {**dict.fromkeys(gen())}, "".join(str(i) for i in gen()), list(itertools.product(gen(2), "ab")),
        list(filter(None, gen())), list(reversed(list(gen()))), dict(zip("ab", gen())), list(itertools.pairwise(gen())),
    )  # fmt: skip


def case_inspection():
    def gen():
        yield 1

    g = gen()
    before = inspect.getgeneratorstate(g)
    next(g)
    during = inspect.getgeneratorstate(g)
    list(g)
    return (
        before, during, inspect.getgeneratorstate(g), g.__name__, g.gi_code.co_name, isinstance(g, types.GeneratorType),
        inspect.isgenerator(g), inspect.isgeneratorfunction(gen), type(g).__name__, g.gi_frame, hasattr(g, "__next__"), iter(g) is g,
    )  # fmt: skip


def case_generator_method_and_class():
    class Tree:
        def __init__(self, v, *kids):
            self.v, self.kids = v, kids

        def __iter__(self):
            yield self.v
            for k in self.kids:
                yield from k

    t = Tree(1, Tree(2, Tree(3)), Tree(4))
    return list(t), sum(t), sorted(t, reverse=True), max(t), [x for x in t if x % 2]


def case_try_finally_with_yield():
    log = []

    def gen():
        try:
            yield 1
            yield 2
        finally:
            log.append("cleanup")

    for x in gen():
        log.append(x)
    for x in gen():
        break
    log.append("after break")
    return log


def case_error_through_generator():
    def gen():
        yield 1
        raise ValueError("in generator")

    total = 0
    for x in gen():
        total += x


def case_generator_with_handled_exception():
    def gen():
        try:
            raise KeyError("k")
        except KeyError:
            yield "inside"
            yield "still"

    out = []
    for x in gen():
        out.append(x)
        try:
            raise ValueError
        except ValueError as error:
            out.append(error.__context__)
    return out


def case_recursive_generators():
    def permutations(items):
        if len(items) < 2:
            yield list(items)
        else:
            for i in range(len(items)):
                for rest in permutations(items[:i] + items[i + 1 :]):
                    yield [items[i], *rest]

    return list(permutations("abc"))


def case_iter_with_sentinel():
    values = iter([1, 2, 3, 0, 5])
    return list(iter(lambda: next(values), 0)), list(values)


def case_coroutine_runs_natively():
    async def f(x):
        return x * 2

    c = f(4)
    try:
        c.send(None)
    except StopIteration as stop:
        return stop.value


def case_asyncio():
    import asyncio

    async def work(n):
        await asyncio.sleep(0)
        return n

    async def main():
        return await asyncio.gather(*(work(i) for i in range(3)))

    return asyncio.run(main())


def case_walrus_and_yield_expression():
    def gen():
        total = 0
        while (x := (yield total)) is not None:
            total += x

    g = gen()
    next(g)
    return g.send(1), g.send(5), next(g, "stopped")


def case_lambda_generator():
    g = (lambda: (yield 1))()
    return next(g), next(g, None)


def case_close_and_what_the_generator_returns():
    def gen(how):
        try:
            yield 1
        except GeneratorExit:
            if how == "raises":
                raise ValueError("left")
            return how

    def closed(g):
        next(g)
        try:
            return g.close(), g.close()
        except ValueError as error:
            return str(error)

    def outer():
        result = yield from gen("inner")
        return "outer", result

    fresh = gen("never")
    return (
        closed(gen("ended")),
        closed(gen("raises")),
        closed(gen(None)),
        fresh.close(),
        closed(outer()),
    )


def case_throw_of_parts_warns():
    import warnings

    def gen():
        try:
            yield 1
        except ValueError as error:
            yield error.args

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        thrown = []
        for what in ((ValueError, "a"), (ValueError,), (ValueError("b"), None, None)):
            g = gen()
            next(g)
            thrown.append(g.throw(*what))
    return thrown, [(str(w.message), w.category) for w in told]


def case_contexts_of_what_is_thrown_through_delegates():
    def inner(how):
        try:
            yield
        except BaseException:
            if how == "raises":
                raise OSError("c")
            if how == "ends":
                return "value"
            raise

    class Plain:
        def __iter__(self):
            return self

        def __next__(self):
            return 1

        def close(self):
            raise LookupError("d")

    def outer(delegate):
        try:
            raise KeyError("a")
        except Exception:
            return (yield from delegate)

    def chain(error):
        found = []
        while error is not None and len(found) < 6:
            found.append((type(error).__name__, error.args))
            error = error.__context__
        return found

    told = []
    for make in (lambda: inner("raises"), lambda: inner("ends"), lambda: inner("again"), Plain):
        for thrown in (ValueError("b"), GeneratorExit()):
            for delegate in (make, lambda: outer(make())):
                g = outer(delegate())
                next(g)
                try:
                    g.throw(thrown)
                except BaseException as error:
                    told.append(chain(error))
    return told
