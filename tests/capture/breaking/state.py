"""State that lies in more than one place when a segment ends: dicts of attributes, bound methods,
containers of subclasses, attributes of classes.
"""

from __future__ import annotations

from tests.capture.breaking.harness import native, program


class CachedByItself:
    """A descriptor that keeps what it gives in the dict of the object."""

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, owner, cls):
        held = owner.__dict__
        if held.get(self.name) is None:
            native(owner.x)
            owner.count += 1
            native(owner.x)
            held[self.name] = owner.count
        return held[self.name]


class Counting:
    given = CachedByItself()
    count = 0

    def __init__(self, x):
        native(x)
        self.x = x

    def doubled(self):
        return self.x * 2


@program()
def what_lies_in_a_dict_of_attributes(x):
    counting = Counting(x + 1)
    return counting.given, counting.given, sorted(counting.__dict__)


@program()
def one_bound_method_is_one_object(x):
    counting = Counting(x)
    method = counting.doubled
    alias = method
    native(x)
    return method is alias, method()


class Members(set):
    pass


MEMBERS = Members("ab")


@program()
def a_set_of_a_subclass_is_written_once(x):
    held = MEMBERS
    held ^= set("bc")
    native(x)
    held ^= set("bc")
    return sorted(MEMBERS), x + len(held)


@program()
def a_class_is_written_by_what_is_called_natively(x):
    class Base:
        count = 0

        def __new__(cls):
            Base.count += 1
            return super().__new__(cls)

    native(x)
    found = [Base.count]
    for _ in range(2):
        Base()
        native(x)
        found.append(Base.count)
    return found


class Secret:
    @property
    def __class__(self):
        raise RuntimeError


@program()
def an_object_that_does_not_say_its_class(x):
    secret = Secret()
    native(x)
    held = [secret]
    native(x)
    return type(held[0]).__name__, x + len(held)


HELD = {1: 2}


@program()
def what_c_code_refuses(x):
    native(x)
    found = []
    for read in (lambda: HELD[{}], lambda: HELD.get([]), lambda: str("a", x), lambda: {} in HELD):
        try:
            read()
        except TypeError as error:
            found.append(str(error))
    return found, x
