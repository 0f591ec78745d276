"""What C code does with objects of Python's, found by CPython's own tests: it goes on behind an
exception, it asks for methods of the class alone, it warns."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import operator
import sys
import warnings


class Refusal(Exception):
    pass


def raised(fn, *args, **kwargs):
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        return type(error), str(error)


def case_iterators_go_on_behind_an_exception():
    def refuse_two(value):
        if value == 2:
            raise Refusal
        return value

    def taken(iterator):
        found = []
        for _ in range(5):
            try:
                found.append(next(iterator, "end"))
            except Refusal:
                found.append("refused")
        return found

    class Items:
        def __getitem__(self, index):
            if index > 3:
                raise IndexError
            return refuse_two(index)

    return (
        taken(map(refuse_two, [1, 2, 3])),
        taken(filter(refuse_two, [1, 2, 3])),
        taken(zip(map(refuse_two, [1, 2, 3]), "abc")),
        taken(enumerate(map(refuse_two, [1, 2, 3]))),
        taken(itertools.starmap(refuse_two, [(1,), (2,), (3,)])),
        taken(iter(Items())),
    )


def case_an_iterator_advanced_while_it_runs():
    def inner(value):
        if value == 1:
            return next(iterator) * 10
        return value

    iterator = map(inner, [1, 2, 3])
    return list(iterator)


def case_an_iterator_by_items_stands_where_it_is_put():
    class Unlimited:
        def __getitem__(self, index):
            return index

    iterator = iter(Unlimited())
    kind = type(iterator).__name__
    iterator.__setstate__(sys.maxsize - 1)
    return next(iterator), raised(next, iterator), raised(next, iterator), kind


def case_comparing_elements_changes_the_lists():
    class Clears:
        def __init__(self, other):
            self.other = other

        def __eq__(self, other):
            self.other.clear()
            return NotImplemented

    first, second, third = [], [], []
    first.append(Clears(second))
    second.append(Clears(first))
    third.append(Clears(third))
    return first == second, third == [1]


def case_slots_that_are_none_or_raise():
    class Hint:
        def __length_hint__(self):
            raise TypeError("not now")

    class Item(tuple):
        __class_getitem__ = None

    class Shown:
        def __init__(self, cls):
            self.cls = cls

        @property
        def __class__(self):
            if self.cls is None:
                raise Refusal
            return self.cls

    return (
        operator.length_hint(Hint(), 7),
        raised(operator.getitem, Item, int),
        [isinstance(Shown(bool), cls) for cls in (bool, int, str, (str, int), Shown)],
        isinstance(Shown(dict), collections.abc.Mapping),
        raised(isinstance, Shown(None), bool),
        raised(isinstance, Shown(None), Shown),
    )


def case_numbers_of_subclasses():
    class Whole(int):
        pass

    class Real(float):
        pass

    class Number:
        def __int__(self):
            return Whole(1)

        def __index__(self):
            return Whole(2)

        def __float__(self):
            return Real(3.0)

    class Truncated:
        def __trunc__(self):
            return Number()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = int(Number()), operator.index(Number()), float(Number())
        try:
            made += (int(Truncated()),)
        except TypeError:  # of later versions of Python
            pass
    return made, [type(value) for value in made]


def case_numbers_that_c_asks_for():
    asked = []

    class Index:
        def __index__(self):
            asked.append("__index__")
            return 255

    return hex(Index()), oct(Index()), bin(Index()), chr(Index()), asked


def case_what_is_its_own_copy():
    values, members = (1, [2]), frozenset({1})
    return tuple(values) is values, frozenset(members) is members, tuple([1]) is not values


def case_arguments_too_many():
    ordered = collections.OrderedDict()
    return raised(ordered.update, [("a", 1)], None), raised({}.update, (), ())


def case_attributes_of_an_ordered_dict():
    ordered = collections.OrderedDict(a=1)
    ordered.x = ["x"]
    made = copy.copy(ordered)
    made.__dict__.update(y=2)
    return made.x is ordered.x, vars(made), hasattr(made, "y"), copy.deepcopy(made).x


def case_partials_with_odd_names():
    made = functools.partial(dict, 1)
    made.keywords[1234] = "value"
    again = copy.copy(made)
    return repr(made), raised(made), again.args is made.args, again.keywords == made.keywords


def case_names_of_a_mapping():
    class Names:
        def __init__(self):
            self.held = {"a": 1}

        def __getitem__(self, name):
            return self.held[name]

        def __setitem__(self, name, value):
            self.held[name] = value

        def keys(self):
            return list("xyz")

    names = Names()
    exec("b = a + len([1]); c: int = b", {}, names)
    found = {name: value for name, value in names.held.items() if name != "__annotations__"}
    return (
        found,
        names.held["__annotations__"],
        eval("dir()", {}, names),
        raised(eval, "d", {}, names),
    )


def case_globals_of_a_subclass():
    class Scope(dict):
        def __getitem__(self, name):
            raise Refusal

    return raised(exec, "x", Scope(x=1)), raised(exec, "x", {"__builtins__": Scope(x=1)})


def case_a_builtin_of_the_programs_own():
    import builtins

    builtins.of_the_program = 3
    try:
        return of_the_program
    finally:
        del builtins.of_the_program


def case_super_without_what_it_needs():
    def deleted(x):
        del x
        super()

    class A:
        def empty(self):
            nonlocal __class__
            del __class__
            super()

    return raised(deleted, 1), raised(A().empty)


def case_what_is_sent_to_what_takes_nothing():
    class Broken:
        def __iter__(self):
            return self

        def __next__(self):
            return 1

        def __getattr__(self, name):
            raise Refusal(name)

    def over(values):
        yield from values

    first, second = over(range(3)), over(Broken())
    return next(first), raised(first.send, 1), next(second), raised(second.send, 1)


def case_names_of_a_generator():
    def make():
        yield 1

    generator = make()
    texts = [raised(setattr, generator, n, 1) for n in ("__name__", "__qualname__", "other")]
    return texts, raised(delattr, generator, "__name__"), raised(setattr, map(len, ""), "x", 1)


def case_whose_attribute_is_missing():
    class Hooked:
        def __getattr__(self, name):
            raise AttributeError

        @property
        def broken(self):
            raise AttributeError("inside")

    hooked = Hooked()
    found = []
    for read in (lambda: hooked.a, lambda: hooked.b(), lambda: hooked.broken):
        try:
            read()
        except AttributeError as error:
            found.append((error.name, error.obj is hooked))
    return found


def case_in_place_on_containers_of_subclasses():
    class Members(set):
        pass

    class Values(list):
        pass

    members, values = Members("ab"), Values([1])
    alias, other = members, values
    members ^= set("bc")
    values += [2]
    values *= 2
    return alias is members, sorted(alias), other is values, other, type(alias), type(other)


def case_where_a_frame_was_left():
    def leaves():
        try:
            raise Refusal
        except TypeError:
            pass

    try:
        leaves()
    except Refusal as error:
        traceback = error.__traceback__.tb_next
        return traceback.tb_frame.f_lineno - traceback.tb_lineno


def case_groups_that_c_makes_hold_what_they_were_made_of():
    said = []

    def told(error):
        said.append((repr(error), [type(arg).__name__ for arg in error.args]))

    try:
        try:
            raise ValueError("alone")
        except* ValueError as group:
            told(group)
            raise
    except Exception as error:
        told(error)
    try:
        try:
            raise ExceptionGroup("many", (ValueError(1), TypeError(2)))
        except* ValueError as group:
            told(group)
            raise KeyError(1) from None
    except Exception as error:
        told(error)
    return said
