"""What a class says of itself (names, bases, annotations, what is abstract) is relied on: a class
that was changed between two calls is another one."""

import abc
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape
from anyshape.dispatch.dict_version_guards import MANY, dictionaries_are_numbered, mro_offset


def classes() -> Any:
    """Classes that nothing else knows of."""

    class World:
        class First:
            def kind(self) -> str:
                return "first"

        class Second:
            def kind(self) -> str:
                return "second"

        class Part(First):
            """A part."""

            size: int = 1

        class Abstract(abc.ABC):
            @abc.abstractmethod
            def run(self) -> None: ...

    world = World()
    world.part = World.Part()
    return world


def made(cls: type) -> str:
    try:
        return type(cls()).__name__
    except TypeError as error:
        return str(error)


def other_bases(world: Any) -> None:
    world.Part.__bases__ = (world.Second,)


def no_more_abstract(world: Any) -> None:
    world.Abstract.run = lambda self: None
    abc.update_abstractmethods(world.Abstract)


def renamed(name: str) -> Callable[[Any], None]:
    return lambda world: setattr(world.Part, name, "Renamed")


READS_AND_CHANGES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a method of a base": (lambda world: world.part.kind(), other_bases),
    "super": (lambda world: super(world.Part, world.part).kind(), other_bases),
    "bases": (lambda world: world.Part.__bases__[0].__name__, other_bases),
    "MRO": (lambda world: [base.__name__ for base in world.Part.__mro__], other_bases),
    "mro()": (lambda world: [base.__name__ for base in world.Part.mro()], other_bases),
    "isinstance": (lambda world: isinstance(world.part, world.First), other_bases),
    "issubclass": (lambda world: issubclass(world.Part, world.First), other_bases),
    "name": (lambda world: world.Part.__name__, renamed("__name__")),
    "qualified name": (lambda world: world.Part.__qualname__, renamed("__qualname__")),
    "module": (lambda world: world.Part.__module__, renamed("__module__")),
    "docstring": (lambda world: world.Part.__doc__, renamed("__doc__")),
    "text": (lambda world: repr(world.Part), renamed("__qualname__")),
    "formatted text": (lambda world: f"{world.Part}", renamed("__module__")),
    "text of a method": (
        lambda world: repr(world.First.kind).partition(" at ")[0],
        lambda world: setattr(world.First.kind, "__qualname__", "renamed"),
    ),
    "annotations": (
        lambda world: [*world.Part.__annotations__],
        lambda world: setattr(world.Part, "__annotations__", {"other": int}),
    ),
    "an annotation": (
        lambda world: [*world.Part.__annotations__],
        lambda world: world.Part.__annotations__.update(other=int),
    ),
    "names": (lambda world: "other" in dir(world.Part), renamed("other")),
    "names of a base": (
        lambda world: "other" in dir(world.Part),
        lambda world: setattr(world.First, "other", 1),
    ),
    "callable": (
        lambda world: callable(world.part),
        lambda world: setattr(world.First, "__call__", lambda self: 1),
    ),
    "abstract methods": (
        lambda world: sorted(world.Abstract.__abstractmethods__),
        no_more_abstract,
    ),
    "an instance of an abstract class": (lambda world: made(world.Abstract), no_more_abstract),
}


@pytest.mark.parametrize("what", READS_AND_CHANGES)
def test_class_that_was_changed_between_two_calls_says_something_else(what: str) -> None:
    read, change = READS_AND_CHANGES[what]
    world, x = classes(), torch.arange(3.0)

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return y * 2, read(world)

    fast = anyshape.compile(program, fullgraph=True)
    before = fast(x)[1]
    assert before == program(x)[1]
    change(world)
    after = fast(x)[1]
    assert after == program(x)[1]
    assert after != before, "the change must be seen"
    assert fast(x)[1] == after
    assert fast.stats().specializations == 2


def test_subclasses_made_between_two_calls_are_listed() -> None:
    world, x = classes(), torch.arange(3.0)
    fast = anyshape.compile(lambda x: (x + 1, len(world.First.__subclasses__())))
    kept = [fast(x)[1], type("Another", (world.First,), {}), fast(x)[1]]
    assert kept[0] == 1
    assert kept[2] == 2


def test_annotations_that_a_class_gets_when_it_is_asked_come_at_their_turn() -> None:
    def program(x: torch.Tensor, cls: Any) -> Any:
        y = x + 1
        cls.before = 1
        found = cls.__annotations__
        cls.after = 2
        found["size"] = int
        return y * 2, found

    x = torch.arange(3.0)
    fast = anyshape.compile(program, fullgraph=True)

    def seen(fn: Any) -> Any:
        cls = classes().Second
        _, found = fn(x, cls)
        assert found is cls.__annotations__
        return [name for name in vars(cls) if name != "kind"], found

    assert seen(fast) == seen(program)
    again = classes().Second
    fast(x, again)
    assert fast(x, again)[1] is again.__annotations__
    assert [*vars(again)].count("__annotations__") == 1


def test_bases_are_words_that_are_compared_in_c() -> None:
    if not dictionaries_are_numbered():
        pytest.skip("this Python gives dictionaries no numbers")
    assert mro_offset() is not None
    world, x = classes(), torch.arange(3.0)
    scope: dict[str, Any] = {f"name{i}": i for i in range(MANY)}
    total = " + ".join(scope)
    text = f"def program(x, part): return x + 1, {total}, part.kind()"
    exec(text, scope)
    fast = anyshape.compile(scope["program"], fullgraph=True)
    assert [fast(x, world.part)[2] for _ in range(3)] == ["first"] * 3
    other_bases(world)
    assert fast(x, world.part)[2] == "second"
    scope["name3"] = 100
    assert fast(x, world.part)[1] == scope["program"](x, world.part)[1]


class Named:
    """C takes its own name for it, whatever the class defines for its instances."""

    __name__ = property(lambda self: "of an instance")
    __qualname__ = "Other"

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return "text"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "read",
    [
        lambda o: type(o).__name__,
        lambda o: type(o).__qualname__,
        lambda o: type(o).__module__,
        lambda o: type(o).__doc__ is vars(type(o))["__doc__"],
        lambda o: (o.__name__, type(o).__name__, o.__doc__),
        lambda o: repr(type(o)),
    ],
)
def test_a_class_that_defines_what_c_says_of_classes(read: Callable[[Any], Any]) -> None:
    fast = anyshape.compile(lambda x, o: (x + 1, read(o)))
    for _ in range(2):
        assert fast(torch.ones(2), Named())[1] == read(Named())
    assert fast.stats().internal_errors == 0
