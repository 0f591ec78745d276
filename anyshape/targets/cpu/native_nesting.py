"""Loops and branches that native code runs: which can be, and what their C is.

    loop(n, (x,), (w,), body)   ->   for (turn = 0; turn < n; turn++) body(x or y, w, turn, y or x)

A body is a C function of its own: its one native region. What a loop carries lies in two buffers by
turns, the result and a spare one, such that the last turn writes the result. What a body returns as
it was handed in, or twice, is copied there. A step stays with the host where a body needs Python,
or where a size differs by turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anyshape.ir.buffers import Buffer, BufferRef, StepArg, references
from anyshape.ir.dtypes import DType, int64
from anyshape.ir.graph import row_major
from anyshape.ir.program import (
    Allocate,
    Body,
    Branch,
    Free,
    Loop,
    NativeNested,
    NativeRegion,
    Nested,
    View,
    ViewCall,
)
from anyshape.ir.scalars import Scalar
from anyshape.nouns import frozen, replace
from anyshape.ops.layout import dense_order, numel
from anyshape.symbolic import AllOf, AnyOf, Dim, Expr, Relation, Symbol
from anyshape.symbolic.atoms import Atom

SPARE, MEMORY = "spare", "memory"


@frozen
class NativeBody:
    """A body as native code calls it.

    ``region`` is all that it does to buffers, None where it does nothing; ``handed`` are its inputs
    that are numbers, by name, the number of the turn first; ``heads`` those that are buffers.
    ``made`` are the buffers that it writes, by their position among what it returns, ``copied`` the
    others there: which buffer each has the contents of. ``numbers`` come behind them.
    """

    region: NativeRegion | None
    handed: tuple[str, ...]
    heads: tuple[str, ...]
    made: Mapping[int, str]
    copied: Mapping[int, str]
    numbers: tuple[Dim, ...]

    @property
    def around(self) -> tuple[Symbol, ...]:
        """The sizes that it reads, and is not handed."""
        own = self.region.symbols if self.region is not None else ()
        used = dict.fromkeys(
            (*own, *(s for n in self.numbers for s in sorted(_symbols(n), key=str)))
        )
        return tuple(symbol for symbol in used if symbol.name not in self.handed)

    @property
    def slot_sizes(self) -> tuple[tuple[Dim, ...], ...]:
        return self.region.slot_sizes if self.region is not None else ()


def native_body(body: Body) -> NativeBody | None:
    """None where the body is more than one native region and the memory of what it returns."""
    program = body.program
    allocated, regions, views = set(), [], {}
    for step in program.steps:
        match step:
            case Allocate(over=None):
                allocated.add(step.buffer)
            case NativeRegion():
                regions.append(step)
            case View() | ViewCall() if _all_of(program.buffers, step):
                views[step.output] = step.base
            case Free():
                pass
            case _:
                return None
    returned = tuple(references(program.outputs))
    numbers = tuple(map(_whole_number, program.outputs[len(returned) :]))
    if len(regions) > 1 or None in numbers:
        return None
    if regions and regions[0].scalars:
        return None
    heads = tuple(name for name in program.inputs if name in program.buffers)
    made: dict[int, str] = {}
    copied: dict[int, str] = {}
    for position, name in enumerate(views.get(name, name) for name in returned):
        if name in allocated and name not in made.values():
            made[position] = name
        else:
            copied[position] = name
    if allocated != {*made.values()} or not {*heads, *made.values()}.issuperset(copied.values()):
        return None
    handed = tuple(name for name in program.inputs if name not in program.buffers)
    region = regions[0] if regions else None
    return NativeBody(
        region, handed, heads, made, copied, tuple(n for n in numbers if n is not None)
    )


def _whole_number(output: StepArg) -> Dim | None:
    """The number, if it is made of others by sums and products alone."""
    if isinstance(output, bool) or not isinstance(output, int | Expr):
        return None
    atoms = (atom for monomial in _terms(output) for atom in monomial)
    return output if all(isinstance(atom, Symbol) for atom in atoms) else None


def _terms(number: Dim) -> Mapping[tuple[Atom, ...], int]:
    return number.terms if isinstance(number, Expr) else {}


def _all_of(buffers: Mapping[str, Buffer], view: View | ViewCall) -> bool:
    """Is the view all of the base's memory, row by row? The base may lie in another order."""
    one, other = buffers[view.output], buffers[view.base]
    dense = dense_order(other.shape, other.strides) is not None
    packed = one.strides == row_major(one.shape)
    return dense and packed and one.dtype == other.dtype and numel(one.shape) == numel(other.shape)


def as_native_nested(
    step: Nested, buffers: Mapping[str, Buffer]
) -> tuple[NativeNested, Mapping[str, Buffer]] | None:
    """The step as native code does it, with the buffers that it makes; None where it cannot, or is
    neither a loop nor a branch. In its bodies native regions are formed as far as that goes."""
    if not isinstance(step, Loop | Branch):
        return None
    native = [native_body(body) for body in step.bodies]
    number, *_ = step.given
    found = [body for body in native if body is not None]
    if len(found) < len(native) or not _is_number(number, buffers, whole=isinstance(step, Loop)):
        return None
    if any(_whole_number(first) is None for first in first_numbers(step)):
        return None
    given = tuple(references(step.given[1:]))
    known = {s for name in given for dim in buffers[name].shape for s in _symbols(dim)}
    bodies = tuple(zip(step.bodies, found, strict=True))
    agree = (_agrees(step, *pair, known, given, buffers) for pair in bodies)
    if any(buffers[name].device != "cpu" for name in (*given, *step.outputs)) or not all(agree):
        return None
    spares = tuple(f"{name}_{SPARE}" for name in step.outputs if isinstance(step, Loop))
    made = {name: replace(buffers[name], role="temp") for name in step.outputs}
    made |= {
        spare: replace(made[name], name=spare)
        for name, spare in zip(step.outputs, spares, strict=False)
    }
    numbers = tuple(f"{number.name}_{MEMORY}" for number in step.numbers)
    made |= {name: Buffer(name, int64, "cpu", (), (), "temp") for name in numbers}
    handed = tuple(replace(body, around=one.around) for body, one in bodies)
    return NativeNested(replace(step, bodies=handed), spares, numbers), made


def first_numbers(step: Loop | Branch) -> tuple[StepArg, ...]:
    """What the numbers are that a loop carries, before it turns."""
    carried = step.given[1] if isinstance(step, Loop) else ()
    assert isinstance(carried, tuple)
    return tuple(arg for arg in carried if not isinstance(arg, BufferRef))


def _agrees(
    step: Loop | Branch,
    body: Body,
    native: NativeBody,
    known: set[Symbol],
    given: Sequence[str],
    buffers: Mapping[str, Buffer],
) -> bool:
    """Are the body's sizes known where it is called, and its buffers laid out as what it is handed
    and what it gives?"""
    inner = body.program.buffers
    around = known | {*body.around}
    rooms = {s for room in native.slot_sizes for dim in room for s in _symbols(dim)}
    if not ({*native.around} <= around and rooms <= around):
        return False
    results = zip(step.outputs, references(body.program.outputs), strict=True)
    return all(
        _alike(buffers[outer], inner[name]) for outer, name in zip(given, native.heads, strict=True)
    ) and all(
        _alike(buffers[outer], inner[name]) and inner[name].strides == row_major(inner[name].shape)
        for outer, name in results
    )


def _alike(one: Buffer, other: Buffer) -> bool:
    a, b = ((x.dtype, x.device, x.shape, x.strides, x.capacity) for x in (one, other))
    return a == b and one.capacity is None


def _symbols(dim: Dim) -> frozenset[Symbol]:
    return frozenset(dim.symbols) if isinstance(dim, Expr) else frozenset()


# --- trips and predicates ---

C_TYPES: Mapping[str, str] = {
    "bool": "unsigned char",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
}
"""What C reads a trip count or a predicate as, by dtype."""


def _is_number(arg: StepArg, buffers: Mapping[str, Buffer], *, whole: bool) -> bool:
    """Can C read it as a number? ``whole``: as one without a fraction."""
    match arg:
        case BufferRef():
            buffer = buffers[arg.name]
            one = all(size == 1 for size in buffer.shape) or (whole and len(buffer.shape) == 1)
            one = one and buffer.device == "cpu" and buffer.capacity is None
            return (
                one
                and c_type(buffer.dtype) is not None
                and not (whole and buffer.dtype.is_floating)
            )
        case bool() | int() | Expr():
            return True
        case Scalar():
            return arg.kind == "int"
        case Relation() | AllOf() | AnyOf():
            return not whole
    return False


def c_type(dtype: DType) -> str | None:
    """The C type of a number that decides, None where C does not read it."""
    return C_TYPES.get(dtype.name)


# --- C ---


def loop_lines(
    trips: str,
    number: str,
    given: Sequence[str],
    made: Sequence[str],
    spares: Sequence[str],
    sizes: Sequence[str],
    first: Sequence[str],
    done: Sequence[str],
) -> list[str]:
    """``done`` runs the body on ``from`` and ``to``, the buffers of a turn, whose number is
    ``number``, and on the numbers ``now``, of which it makes ``next``. ``sizes`` are the bytes of
    the buffers carried, ``first`` the numbers before the first turn."""
    arrays = {"given": given, "made": made, "spare": spares}
    return [
        f"const long trips = {trips};",
        *(f"char *const {name}[] = {{{', '.join((*of, '0'))}}};" for name, of in arrays.items()),
        f"long now[] = {{{', '.join((*first, '0'))}}}, next[{len(first) + 1}];",
        "for (long turn = 0; turn < trips && !status; turn++) {",
        "    char *const *to = (trips - turn) & 1 ? made : spare;",
        "    char *const *from = turn == 0 ? given : to == made ? spare : made;",
        f"    const long number = {number};",
        *(f"    {line}" for line in done),
        *(f"    now[{number}] = next[{number}];" for number in range(len(first))),
        "}",
        "if (trips <= 0) {",
        *(
            f"    if ({size}) __builtin_memcpy(made[{number}], given[{number}], {size});"
            for number, size in enumerate(sizes)
        ),
        "}",
    ]


def number_lines(number: Dim, target: str, name: Callable[[Symbol], str]) -> list[str]:
    """Sets ``target`` to the number; ``status`` says that it has more than 64 bits."""
    constant = number.constant if isinstance(number, Expr) else int(number)
    lines = ["{", f"    long term, total = {constant}L;"]
    for monomial, coefficient in _terms(number).items():
        lines.append(f"    term = {coefficient}L;")
        for atom in monomial:
            assert isinstance(atom, Symbol)
            lines.append(f"    status |= __builtin_mul_overflow(term, {name(atom)}, &term);")
        lines.append("    status |= __builtin_add_overflow(total, term, &total);")
    return [*lines, f"    {target} = total;", "}"]


def in_arena(rooms: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The lines, which set ``status``, with memory for the arena of what they call."""
    room = " + ".join(rooms) or "0"
    return [
        f"const long room = {room};",
        "char *arena = room ? aligned_alloc(64, room) : 0;",
        "long status = room && !arena;",
        *lines,
        "free(arena);",
        "if (status) return status;",
    ]


def room_text(sizes: Sequence[str]) -> str:
    """How large a slot of an arena is."""
    if len(sizes) == 1:
        return sizes[0]
    return f"anyshape_largest({len(sizes)}, (const long[]){{{', '.join(sizes)}}})"
