"""What CPython's own tests have found: containers changed meanwhile, iterators made at once, slots
set to None, exceptions with all that they were raised of."""

from __future__ import annotations

import collections
import enum
import operator
import types


def case_slices_are_written_back():
    values = [1, 2, 3]
    alias = values
    alias[1:2] *= 2
    alias[1:2] += [1]
    return values


def case_containers_grow_while_they_are_filled():
    values, table, members, queue = [1, 2], {1: 1}, {1}, collections.deque([1])

    def lengths(container):
        for _ in range(3):
            yield len(container)

    def pairs():
        for index in range(3):
            yield len(table) + 10, index

    values.extend(lengths(values))
    values += lengths(values)
    values[1:1] = lengths(values)
    table.update(pairs())
    table |= pairs()
    members.update(n + 10 for n in lengths(members))
    members.difference_update(n + 10 for n in lengths(members))
    queue.extend(lengths(queue))
    queue.extendleft(lengths(queue))
    queue += lengths(queue)
    counts = collections.Counter()
    counts.update(lengths(counts))
    return values, table, members, queue, counts


class Clearing:
    def __init__(self, owner):
        self.owner = owner

    def __eq__(self, other):
        self.owner.clear()
        return True


def case_comparison_changes_the_list():
    values = []
    values.extend([Clearing(values), 1, 2])
    return values == [0, 1, 2], values


def case_sort_whose_key_changes_the_list():
    values = [3, 1, 2]
    seen = []

    def key(value):
        seen.append(len(values))
        values.append(value)
        return value

    try:
        values.sort(key=key)
    except ValueError as error:
        return str(error), values, seen


def case_sort_that_fails_leaves_the_elements():
    values = [3, 1, 2]
    try:
        values.sort(key=lambda value: 1 / (value - 1))
    except ZeroDivisionError as error:
        return str(error), values


def case_operators_that_are_not_of_a_set():
    members = {1}
    found = []
    for other in ({}, [], (), 3):
        try:
            members |= other
        except TypeError as error:
            found.append(str(error))
    members |= {5: 1}.keys()
    return found, members, members.__or__([1]), members.__ior__({})


class OnlySet:
    def __set__(self, obj, value):
        obj.__dict__["v"] = value


class WithOnlySet:
    v = OnlySet()


def case_descriptor_with_only_set():
    obj = WithOnlySet()
    before = type(obj.v).__name__
    obj.v = 3
    return before, obj.v, obj.__dict__


def case_iterators_refuse_at_once():
    made = (
        lambda: map(len, 3), lambda: filter(len, 3), lambda: zip(3), lambda: zip([1], 3),
        lambda: enumerate(3), lambda: enumerate([1], "a"), lambda: map(), lambda: map(len),
        lambda: filter(None), lambda: iter(3, 4), lambda: reversed(3),
    )  # fmt: skip
    found = []
    for make in made:
        try:
            found.append(type(make()).__name__)
        except TypeError as error:
            found.append(str(error))
    return found


class Long:
    def __len__(self):
        return 2**70


def case_lengths_past_the_limit():
    found = []
    for ask in (len, bool, operator.length_hint, list):
        try:
            found.append(ask(Long()))
        except (OverflowError, TypeError) as error:
            found.append((type(error).__name__, str(error)))
    return found


class Blocked:
    __ne__ = __radd__ = __iadd__ = None

    def __add__(self, other):
        return NotImplemented


def case_slots_that_are_none():
    found = []
    for operation in (operator.ne, operator.add, operator.iadd):
        for pair in ((Blocked(), 1), (1, Blocked()), (Blocked(), Blocked())):
            try:
                found.append(operation(*pair))
            except TypeError as error:
                found.append(str(error))
    return found


def raising(self):
    raise AttributeError("asked")


class Unaskable:
    __eq__ = property(raising)


def case_comparison_whose_lookup_fails():
    one = Unaskable()
    return one == one, one == Unaskable(), one != 3


def case_class_attributes_deleted_by_type():
    class Adds:
        pass

    type.__setattr__(Adds, "__add__", lambda self, other: "sum")
    before = Adds() + 1
    type.__delattr__(Adds, "__add__")
    try:
        return before, Adds() + 1
    except TypeError as error:
        return before, str(error)


def case_class_namespace_is_read_live():
    class Made:
        x = 1

    before = dict(Made.__dict__)
    Made.y = 2
    after = dict(Made.__dict__)
    again = type("Again", (), {k: v for k, v in after.items() if not k.startswith("__")})
    return sorted(set(after) - set(before)), again.y, "y" in vars(Made)


def case_modules_of_classes_made_by_type():
    class Meta(type):
        def __new__(cls, name, bases, namespace):
            return super().__new__(cls, name, bases, namespace)

    first = type("First", (), {})
    third = types.new_class("Third", (), {"metaclass": Meta})
    return first.__module__, Meta("Second", (), {}).__module__, third.__module__


def case_exec_and_eval_of_dictionaries():
    scope = {"n": 2}
    exec("m = n + 1", scope)
    found = [scope["m"], "__builtins__" in scope, eval("n * m", scope)]
    for call in (lambda: eval(), lambda: exec(), lambda: eval("1", [])):
        try:
            call()
        except TypeError as error:
            found.append(type(error).__name__)
    return found


def case_texts_of_recursive_containers():
    values, table = [1], {}
    values.append(values)
    table["t"] = (table, values)
    return repr(values), str(table), ascii((values, table)), f"{values}"


def case_object_that_calls_itself():
    class CallsItself:
        pass

    CallsItself.__call__ = CallsItself()
    try:
        CallsItself()()
    except RecursionError:
        return "recursion"


class Colour(enum.Enum):
    RED = 1


def case_metaclass_that_guards_its_attributes():
    try:
        Colour.RED = 2
    except AttributeError as error:
        return str(error), list(Colour)


def case_what_is_thrown_into_generators_has_the_context_of_their_own():
    def chain(error):
        return repr(error), repr(error.__context__), repr(error.__cause__)

    def plain():
        try:
            yield 1
        finally:
            pass

    def handling():
        try:
            raise IndexError(5)
        except IndexError:
            yield 1

    def delegating(inner):
        yield from inner

    found = []
    try:
        raise KeyError(1)
    except KeyError:
        for make in (plain, handling, lambda: delegating(handling())):
            for advances in (0, 1, 3):
                for thrown in (ValueError(2), ValueError, StopIteration(3)):
                    made = make()
                    for _ in range(advances):
                        next(made, None)
                    try:
                        made.throw(thrown)
                    except (Exception, StopIteration) as error:
                        found.append(chain(error))
    return found


def case_a_stack_of_exits_keeps_the_order_of_contexts():
    import contextlib

    @contextlib.contextmanager
    def raising(error):
        try:
            yield
        finally:
            raise error

    errors = [Exception(n) for n in range(4)]
    try:
        with contextlib.ExitStack() as stack:
            for error in errors[:3]:
                stack.enter_context(raising(error))
            raise errors[3]
    except Exception as error:
        chain = [error]
        while chain[-1].__context__ is not None:
            chain.append(chain[-1].__context__)
        return [errors.index(found) for found in chain]


def case_slots_of_attributes_are_whatever_the_class_names():
    class Stored(dict):
        __setattr__ = dict.__setitem__
        __delattr__ = dict.__delitem__

    class Read(dict):
        __getattribute__ = dict.__getitem__

    class Missing(dict):
        __getattr__ = dict.__getitem__

    stored, read, missing = Stored(), Read(k=3), Missing(k=4)
    stored.y = 42
    stored.z = 43
    del stored.z
    said = []
    for refused in (lambda: read.q, lambda: missing.q, lambda: type.__getattribute__(list, type)):
        try:
            refused()
        except Exception as error:
            said.append(repr(error))
    return dict.items(stored), read.k, missing.k, said


def case_what_is_left_of_a_reversed_sequence():
    class Numbers:
        def __init__(self, *lengths):
            self.lengths = list(lengths)

        def __len__(self):
            return self.lengths.pop() if self.lengths else 1 // 0

        def __getitem__(self, index):
            return index * 2

    backwards = reversed(Numbers(3, 4, 4, 4))
    found = [type(backwards), operator.length_hint(backwards), next(backwards)]
    found += [operator.length_hint(backwards), operator.length_hint(backwards)]
    try:
        operator.length_hint(backwards)
    except ZeroDivisionError as error:
        found.append(repr(error))
    return found, [value for value in backwards], operator.length_hint(backwards, 7)


def case_an_own_access_is_asked_when_an_object_is_reduced():
    asked = []

    class Asking:
        __slots__ = ("spam", "absent", "__dict__")

        def __getattribute__(self, name):
            asked.append(name)
            return super().__getattribute__(name)

    class Hiding(Asking):
        def __getattribute__(self, name):
            if name == "__reduce__":
                raise AttributeError(name)
            return super().__getattribute__(name)

        def __reduce__(self):
            return "never"

    class Telling(Asking):
        def __reduce__(self):
            return "told"

        def __getstate__(self):
            return "a state"

    class Stating(Asking):
        def __getstate__(self):
            return "a state"

    found = []
    for kind in (Asking, Hiding, Telling, Stating):
        made = kind()
        made.spam, made.egg = 1, 2
        answer = made.__reduce_ex__(4)
        found.append(answer if answer == "told" else (answer[0].__name__, *answer[2:]))
    return found, asked


def case_names_of_slots_are_asked_for_when_an_object_is_reduced():
    class Named:
        __slotnames__ = ["spam"]

        def __getattr__(self, name):
            if name == "spam":
                return 42
            raise AttributeError(name)

    return Named().__reduce_ex__(2)[2]
