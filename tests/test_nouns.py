"""`@frozen` and `@mutable` beside the dataclass that each stands for."""

import copy
import inspect
import pickle
import weakref
from dataclasses import InitVar, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

import anyshape
from anyshape import nouns
from anyshape.nouns import frozen, mutable


def same_fields_twice(decorate, expected):
    """The same class, made in both ways."""

    def bodies(decorator):
        @decorator
        class Point:
            x: int
            y: str = "y"
            parts: list = field(default_factory=list)
            hidden: int = field(default=0, repr=False, compare=False)
            counted: int = field(default=7, init=False)
            kept: dict = field(default_factory=dict, init=False, repr=False, compare=False)
            total: int = field(init=False)
            scale: float = field(default=1.0, kw_only=True)

            def __post_init__(self):
                object.__setattr__(self, "total", self.x + self.counted)

        return Point

    return bodies(decorate), bodies(expected)


BOTH = pytest.mark.parametrize(
    ("decorate", "expected"),
    [
        (frozen, dataclass(frozen=True, slots=True)),
        (frozen(eq=False), dataclass(frozen=True, slots=True, eq=False)),
        (mutable, dataclass(slots=True)),
        (mutable(eq=False), dataclass(slots=True, eq=False)),
    ],
    ids=["frozen", "frozen by identity", "mutable", "mutable by identity"],
)


@BOTH
def test_a_noun_is_the_dataclass_it_stands_for(decorate, expected):
    ours, theirs = same_fields_twice(decorate, expected)
    assert is_dataclass(ours) and ours.__match_args__ == theirs.__match_args__
    assert [f.name for f in fields(ours)] == [f.name for f in fields(theirs)]
    shown = []
    for kind in (ours, theirs):
        made = [
            kind(1),
            kind(1, "z"),
            kind(x=1, parts=[1], hidden=3),
            kind(2, "y", [], 5, scale=2.0),
            replace(kind(1), x=9),
            copy.copy(kind(3)),
        ]
        shown.append(
            (
                [repr(one) for one in made],
                [[a == b for b in made] for a in made],
                [one.kept for one in made],
                made[0] == kind(1),
                made[0] == object(),
                kind(1).parts is kind(1).parts,
                [(p.name, p.kind, p.default is p.empty) for p in parameters(kind)],
            )
        )
    assert shown[0] == shown[1]
    for arguments in ((), (1, 2, 3, 4, 5)):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            ours(*arguments)


@BOTH
def test_a_noun_with_some_fields_changed_is_made_anew(decorate, expected):
    ours, _ = same_fields_twice(decorate, expected)

    @decorate
    class Alone:
        size: int

    for noun, changes in (
        (ours(2, "z", [1], 3, scale=2.0), {"x": 5, "scale": 0.5}),
        (ours(2), {}),
        (Alone(1), {"size": 4}),
        (Alone(1), {}),
    ):
        made, wanted = nouns.replace(noun, **changes), replace(noun, **changes)
        assert repr(made) == repr(wanted) and made is not noun
        assert [getattr(made, f.name) for f in fields(made)] == [
            getattr(wanted, f.name) for f in fields(wanted)
        ]
    with pytest.raises(TypeError):
        nouns.replace(Alone(1), weight=2)


def parameters(kind):
    return inspect.signature(kind).parameters.values()


@BOTH
def test_a_noun_has_the_hash_of_the_dataclass_it_stands_for(decorate, expected):
    def bodies(decorator):
        @decorator
        class Pair:
            a: int
            b: str
            hidden: int = field(default=0, compare=False)
            unhashed: list = field(default_factory=list, hash=False)

        return Pair

    ours, theirs = bodies(decorate), bodies(expected)
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    if ours.__hash__ is not None:
        pairs = [
            (kind(1, "b"), kind(1, "b", 5, [3])) for kind in (ours, theirs)
        ]  # all of them live
        equal = [hash(one) == hash(other) for one, other in pairs]
        assert equal[0] == equal[1]
        assert (ours.__hash__ is object.__hash__) == (theirs.__hash__ is object.__hash__)


@BOTH
def test_what_a_class_defines_itself_is_kept(decorate, expected):
    def bodies(decorator):
        @decorator
        class Own:
            a: int

            def __init__(self, a):
                object.__setattr__(self, "a", a + 1)

            def __repr__(self):
                return f"<{self.a}>"

            def __eq__(self, other):
                return True

            def __hash__(self):
                return 5

        @decorator
        class Compared:
            a: int

            def __eq__(self, other):
                return self.a % 2 == other.a % 2

        return Own, Compared

    ours, theirs = bodies(decorate), bodies(expected)
    for own, compared in (ours, theirs):
        assert repr(own(1)) == "<2>" and own(1) == 3 and hash(own(1)) == 5
        assert compared(1) == compared(3)
    assert (ours[1].__hash__ is None) == (theirs[1].__hash__ is None)


@frozen
class Base:
    a: int
    b: int = 2


@frozen
class Derived(Base):
    c: int = 3


def test_a_derived_noun_has_the_fields_of_its_base_first():
    assert Derived(1, c=5) == Derived(1, 2, 5) != Base(1)
    assert repr(Derived(1)) == "Derived(a=1, b=2, c=3)"
    match Derived(1):
        case Derived(a, b, c):
            assert (a, b, c) == (1, 2, 3)


def test_nouns_are_pickled_and_have_no_dict():
    assert pickle.loads(pickle.dumps(Derived(1))) == Derived(1)
    assert copy.deepcopy(Derived(1)) == Derived(1)
    assert not hasattr(Derived(1), "__dict__")


def test_an_object_that_holds_itself_is_printed_and_weakly_referenced():
    @mutable(eq=False, weakref_slot=True)
    class Cell:
        inside: object = None

    cell = Cell()
    cell.inside = cell
    assert repr(cell).endswith("Cell(inside=...)")
    assert weakref.ref(cell)() is cell


def test_methods_are_made_where_they_are_used_and_compiled_once_for_equally_many_fields():
    def bodies():
        @frozen
        class One:
            first: int
            second: int = 2

        @frozen
        class Two:
            left: str
            right: str = "r"

        return One, Two

    def compiled():
        return nouns._compiled.cache_info().misses

    def used(one, two):
        return {one(1): 1}[one(1)], {two("l"): 2}[two("l")]

    before = compiled()
    kinds = bodies()
    assert compiled() == before
    assert used(*kinds) == (1, 2)
    found = compiled()
    one, two = bodies()
    assert used(one, two) == (1, 2) and compiled() == found <= before + 3
    assert one.__init__.__code__ != two.__init__.__code__
    assert (one(first=1).second, two(left="l").right) == (2, "r")
    assert "'first'" in pytest.raises(TypeError, one).value.args[0]


def test_a_method_that_a_derived_class_asks_for_first_is_that_of_the_class_that_has_it():
    @frozen
    class First:
        a: int

    @frozen
    class More(First):
        b: int

        def __init__(self, a, b):
            super().__init__(a)
            object.__setattr__(self, "b", b)

    class Plain(First):
        pass

    # Zero-argument super() means the class without slots, as in every dataclass with slots.
    More.__init__.__closure__[0].cell_contents = More
    assert repr(More(1, 2)).endswith("More(a=1, b=2)") and Plain(3).a == 3
    assert [kind.__init__.__qualname__.split(".")[-2] for kind in (First, Plain, More)] == [
        "First",
        "First",
        "More",
    ]
    assert Plain(3) == Plain(3) != First(3) and hash(Plain(3)) == hash(First(3))


def test_nouns_and_plain_dataclasses_are_copied_and_derived_alike():
    @dataclass
    class Plain:
        a: int = 1
        kind: ClassVar[str] = "plain"
        b: list = field(default_factory=list)

    @mutable
    class Noun(Plain):
        c: int = 3

    @dataclass
    class PlainAgain(Noun):
        d: int = 4

    @dataclass
    class Changed(mutable(type("Counted", (), {"__annotations__": {"n": "int"}, "n": 0}))):
        m: int = 1

    for kind, names in ((Plain, "ab"), (Noun, "abc"), (PlainAgain, "abcd")):
        values = {name: number for number, name in enumerate(names, 7)}
        for copied in (nouns.replace(kind(**values), a=0), replace(kind(**values), a=0)):
            assert {name: getattr(copied, name) for name in names} == {**values, "a": 0}
        assert [one.name for one in fields(kind)] == [*names]
    assert nouns.replace(Changed(5), m=2) == Changed(5, 2)


def test_what_a_noun_cannot_have_is_refused():
    class Initial:
        a: InitVar[int]

    class Shared:
        a: object = []

    class Order:
        a: int = 1
        b: int

    class Kept:
        kind: ClassVar[str] = "kept"
        a: int = 1

    with pytest.raises(TypeError, match="Initial.a: a noun has fields and class variables alone"):
        frozen(Initial)
    with pytest.raises(ValueError, match="Shared.a would be shared"):
        frozen(Shared)
    with pytest.raises(TypeError, match="a field without a default behind one that has one"):
        frozen(Order)(b=1)
    assert frozen(Kept).kind == "kept" and [f.name for f in fields(frozen(Kept))] == ["a"]


def test_classes_of_the_compiler_are_nouns():
    package = Path(anyshape.__file__).parent
    users = {  # what users make and hold is frozen at run time, too
        package / "options.py",
        package / "targets/triton/compile_worker.py",  # a script that imports nothing of ours
        *package.glob("moe/*.py"),
        *package.glob("attention/*.py"),
    }
    for path in {*package.rglob("*.py")} - users:
        text = path.read_text(encoding="utf-8")
        assert "dataclass(slots" not in text and "dataclass(frozen=True, slots" not in text, path
