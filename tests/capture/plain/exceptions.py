"""Exceptions: try, finally, chaining, groups, tracebacks, sys.exc_info."""

from __future__ import annotations

import sys
import traceback


def case_try_except_else_finally():
    log = []

    def f(x):
        try:
            log.append("try")
            if x == 1:
                raise ValueError(1)
            if x == 2:
                return "returned"
            if x == 3:
                raise KeyError(3)
        except ValueError as error:
            log.append(repr(error))
            return "caught"
        else:
            log.append("else")
        finally:
            log.append("finally")
        return "end"

    out = [f(0), f(1), f(2)]
    try:
        f(3)
    except (TypeError, KeyError) as error:
        out.append(repr(error))
    return out, log


def case_finally_overrides_return():
    def f():
        try:
            return 1
        finally:
            return 2

    def g():
        for i in range(3):
            try:
                continue
            finally:
                if i == 1:
                    break
        return i

    def h():
        try:
            raise ValueError
        finally:
            return "swallowed"

    return f(), g(), h()


def case_exception_variable_is_deleted():
    error = "before"
    try:
        raise ValueError
    except ValueError as error:
        pass
    return error


def case_raise_class_and_instance():
    out = []
    for e in (ValueError, ValueError("x"), KeyError(1, 2)):
        try:
            raise e
        except Exception as caught:
            out.append((type(caught), caught.args, caught is e))
    return out


def case_raise_non_exception():
    raise 3


def case_raise_class_not_exception():
    raise int


def case_reraise():
    try:
        raise ValueError("original")
    except ValueError:
        raise


def case_reraise_nothing():
    raise


def case_reraise_in_callee():
    def again():
        raise

    try:
        raise KeyError("k")
    except KeyError:
        again()


def case_raise_from():
    try:
        raise KeyError("cause")
    except KeyError as error:
        raise ValueError("effect") from error


def case_raise_from_none():
    try:
        raise KeyError("cause")
    except KeyError:
        raise ValueError("effect") from None


def case_raise_from_class():
    raise ValueError("effect") from KeyError


def case_raise_from_bad():
    raise ValueError("effect") from 3


def case_implicit_context():
    try:
        {}["k"]
    except KeyError:
        [][1]


def case_context_across_calls():
    def inner():
        raise TypeError("inner")

    try:
        raise KeyError("outer")
    except KeyError:
        inner()


def case_context_chain():
    out = []
    try:
        try:
            try:
                raise ValueError(1)
            except ValueError:
                raise ValueError(2)
        except ValueError:
            raise ValueError(3)
    except ValueError as error:
        while error is not None:
            out.append(error.args)
            error = error.__context__
    return out


def case_context_of_finally():
    try:
        raise KeyError(1)
    finally:
        raise ValueError(2)


def case_no_context_after_handling():
    try:
        raise KeyError(1)
    except KeyError:
        pass
    try:
        raise ValueError(2)
    except ValueError as error:
        return error.__context__


def case_context_not_self():
    try:
        raise ValueError("v")
    except ValueError as error:
        try:
            raise error
        except ValueError as again:
            return again is error, again.__context__


def case_custom_exception():
    class Mine(Exception):
        def __init__(self, code, *rest):
            super().__init__(f"code {code}", *rest)
            self.code = code

        def __str__(self):
            return f"<{self.code}>"

    class Default(Mine):
        def __init__(self):
            super().__init__(7)

    out = []
    for raiser in (lambda: Mine(3, "more"), Default):
        try:
            raise raiser() if raiser is not Default else Default
        except Mine as error:
            out.append((error.code, str(error), error.args))
    try:
        raise Default from ValueError("why")
    except Default as error:
        out.append(repr(error.__cause__))
    return out


def case_except_matching():
    class A(Exception):
        pass

    class B(A):
        pass

    out = []
    for e in (A(), B(), ValueError(), KeyboardInterrupt()):
        try:
            raise e
        except B:
            out.append("B")
        except (A, TypeError):
            out.append("A")
        except Exception:
            out.append("E")
        except:
            out.append("bare")
    return out


def case_except_bad_class():
    try:
        raise ValueError
    except "ValueError":
        pass


def case_except_bad_class_in_tuple():
    try:
        raise ValueError
    except (KeyError, 3):
        pass


def case_exc_info():
    out = [sys.exc_info(), sys.exception()]

    def inner():
        return sys.exc_info()[0], sys.exception().args

    try:
        raise ValueError("a")
    except ValueError:
        out.append(inner())
        try:
            raise KeyError("b")
        except KeyError:
            out.append(inner())
        out.append(inner())
    out.append(sys.exc_info())
    return out


def case_exc_info_in_generator():
    def gen():
        yield sys.exc_info()[0]
        try:
            raise KeyError
        except KeyError:
            yield sys.exc_info()[0]
        yield sys.exc_info()[0]

    g = gen()
    out = [next(g)]
    try:
        raise ValueError
    except ValueError:
        out.append(next(g))
        out.append(sys.exc_info()[0])
        out.append(next(g))
    return out, sys.exc_info()


def case_traceback_lines():
    def deep(n):
        if n == 0:
            raise ValueError("deep")
        deep(n - 1)

    try:
        deep(2)
    except ValueError as error:
        entries = traceback.extract_tb(error.__traceback__)
        return [(e.name, e.lineno, e.line) for e in entries]


def case_format_exc():
    try:
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise RuntimeError("wrapped") from error
    except RuntimeError:
        return traceback.format_exc().replace(__file__, "FILE")


def case_traceback_grows_through_frames():
    def f():
        raise ValueError

    def g():
        try:
            f()
        except ValueError as error:
            error.add_note("noted")
            raise

    g()


def case_traceback_of_reraised_object():
    saved = None

    def f():
        raise ValueError("once")

    try:
        f()
    except ValueError as error:
        saved = error
    raise saved


def case_with_traceback():
    try:
        raise ValueError
    except ValueError as error:
        raise error.with_traceback(None)


def case_native_exception_lines():
    return [int(x) for x in ("1", "two")]


def case_exception_in_comprehension():
    return {k: 1 // k for k in (1, 0)}


def case_exception_in_callback():
    return sorted([1, 2], key=lambda x: 1 // (x - 2))


def case_except_star():
    out = []

    def run(make):
        try:
            try:
                raise make()
            except* ValueError as group:
                out.append(("V", [repr(e) for e in group.exceptions]))
            except* (TypeError, KeyError) as group:
                out.append(("T", [repr(e) for e in group.exceptions]))
            else:
                out.append("else")
            finally:
                out.append("finally")
        except BaseException as rest:
            out.append(repr(rest))

    run(lambda: ExceptionGroup("g", [ValueError(1), TypeError(2), OSError(3)]))
    run(
        lambda: ExceptionGroup(
            "g", [ValueError(1), ExceptionGroup("h", [ValueError(2), KeyError(3)])]
        )
    )
    run(lambda: ValueError("naked"))
    run(lambda: OSError("other"))
    return out


def case_except_star_no_exception():
    out = []
    try:
        out.append(1)
    except* ValueError:
        out.append(2)
    else:
        out.append(3)
    return out


def case_except_star_raises():
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError:
        raise KeyError("new")


def case_except_star_reraise():
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), ValueError(3)])
    except* ValueError:
        raise


def case_except_star_group_class():
    try:
        raise ValueError
    except* ExceptionGroup:
        pass


def case_assertion_rewriting_free():
    try:
        assert False, ("a", 1)
    except AssertionError as error:
        return error.args


def case_nested_handlers_restore():
    log = []
    try:
        raise ValueError(1)
    except ValueError:
        for _ in range(2):
            try:
                raise KeyError(2)
            except KeyError:
                log.append(sys.exc_info()[0].__name__)
                continue
        log.append(sys.exc_info()[0].__name__)
    return log


def case_return_in_except_restores():
    def f():
        try:
            raise ValueError
        except ValueError:
            return sys.exc_info()[0]

    return f(), sys.exc_info()[0]


def case_stop_iteration_value():
    try:
        next(iter([]))
    except StopIteration as stop:
        first = stop.value

    def gen():
        return 5
        yield

    try:
        next(gen())
    except StopIteration as stop:
        return first, stop.value


def case_system_exit():
    raise SystemExit(3)


def case_attribute_error_has_name():
    class A:
        pass

    try:
        A().missing
    except AttributeError as error:
        return error.name, type(error.obj).__name__


def case_name_error_has_name():
    try:
        undefined_name
    except NameError as error:
        return error.name, str(error)


def case_error_in_finally_of_loop():
    for i in range(2):
        try:
            raise ValueError(i)
        except ValueError:
            if i:
                raise KeyError(i)


def case_recursion_error_free():
    def f(n):
        try:
            if n:
                f(n - 1)
            raise ValueError(n)
        except ValueError as error:
            if n < 3:
                return error.args
            raise

    return f(5)


def case_warnings():
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("careful", UserWarning)
    return [(str(w.message), w.category.__name__) for w in caught]


def case_warning_as_error():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.warn("becomes an error", RuntimeWarning)


def case_cause_that_is_no_exception():
    class Nothing(BaseException):
        def __new__(cls, *args):
            return None

    try:
        raise IndexError from Nothing
    except (TypeError, IndexError) as error:
        return type(error).__name__, str(error).replace(repr(Nothing), ""), error.__cause__


def case_a_naked_exception_caught_by_except_star_lends_its_group_no_traceback():
    found = []
    try:
        try:
            raise KeyError("naked")
        except* KeyError as group:
            found.append((group.__traceback__, group.exceptions[0].__traceback__ is not None))
            raise LookupError("new")
    except LookupError as error:
        found.append((type(error.__context__).__name__, error.__context__.__traceback__))
    try:
        try:
            raise KeyError("again")
        except* KeyError:
            raise
    except ExceptionGroup as group:
        found.append((str(group), group.__traceback__))
    return found


def _absence(read):
    try:
        return read()
    except AttributeError as error:
        return str(error), error.name, error.obj is not None


def case_what_errors_of_absent_attributes_say():
    class Slotted:
        __slots__ = ("a", "b")

    class Plain:
        @property
        def bare(self):
            raise AttributeError("bare")

    slotted, plain = Slotted(), Plain()
    slotted.b = 1
    del slotted.b
    reads = (
        lambda: slotted.a,
        lambda: slotted.b,
        lambda: slotted.a(),
        lambda: getattr(slotted, "a"),
        lambda: object.__getattribute__(slotted, "a"),
        lambda: delattr(slotted, "a"),
        lambda: plain.bare,
        lambda: plain.absent,
        lambda: delattr(plain, "absent"),
        lambda: object.__delattr__(plain, "absent"),
    )
    return [_absence(read) for read in reads]
