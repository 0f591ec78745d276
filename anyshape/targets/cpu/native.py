"""A native region as C: one small function a different step, and a plan of numbers that says
which runs on what.

In: a ``NativeRegion`` of a program. Out: a ``PrintedRegion``. Equal steps, of equal layers say,
share one function: they differ in the operands they are handed, slots of one array of pointers
``v`` (table entries, buffers, tensor handles) and of numbers ``n`` (``region_numbers.py``). The
plan is data, which one function follows that is every native region (``native_prelude.py:
RUN_REGION``): the C compiler sees each different step once, and no size. Nothing that differs
between processes (addresses) is in a text, so that the disk cache serves it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyshape.ir.buffers import Buffer, BufferRef, SizeInMemory, StepArg, TensorArg, references
from anyshape.ir.code import ArgType, NativeFunction, PrintedRegion, Reference
from anyshape.ir.dtypes import DType, float64
from anyshape.ir.loops import Kernel, PointerParam, ScalarParam, SizeParam
from anyshape.ir.program import (
    Assertion,
    Body,
    Call,
    Free,
    Launch,
    LibraryCall,
    Loop,
    NativeNested,
    NativeRegion,
    Program,
    View,
)
from anyshape.ir.scalars import Operand, Scalar, ScalarInput
from anyshape.ops.layout import numel
from anyshape.schedule.arena import size_bytes
from anyshape.symbolic import AllOf, AnyOf, Dim, Expr, Relation, Symbol
from anyshape.targets.cpu.native_nesting import (
    C_TYPES,
    first_numbers,
    in_arena,
    loop_lines,
    native_body,
    number_lines,
    room_text,
)
from anyshape.targets.cpu.native_prelude import RUN_REGION
from anyshape.targets.cpu.native_regions import is_float
from anyshape.targets.cpu.region_numbers import RegionNumbers

DELETE = "aoti_torch_delete_tensor_object"
FROM_BLOB = "aoti_torch_create_tensor_from_blob"
EMPTY = "aoti_torch_empty_strided"
DISPATCH = "aoti_torch_call_dispatcher"
SHARE = "aoti_torch_new_tensor_handle"
SOME = "torch_new_stable_ivalue"
RESULT = ("aoti_torch_get_data_ptr", "aoti_torch_get_strides", EMPTY, "aoti_torch_copy_", DELETE)
CHECK_FAILED, LIBRARY_FAILED = 2, 3

Slot = tuple[str, int]
"""("table" | "pointer" | "handle", number): a slot of ``v``; ("number", index): one of ``n``."""
Base = int | Slot
"""Memory that addresses are near: the arena, an outer buffer, one of its own, or another slot."""
ARENA = 0
ENTRY = NativeFunction(RUN_REGION, returns_status=True, caller="own")


def emit_native_region(
    region: NativeRegion,
    program: Program,
    kernel_names: Mapping[Kernel, str],
    placeholder: str,
    *,
    hollow: bool = False,
    separate: bool = False,
) -> PrintedRegion:
    """Prints the steps of the native region as C, each under the name ``placeholder``, and says
    what the entries of its table are.

    ``hollow`` is for measuring: an operator called by name only allocates what it would return, and
    nothing fails. ``separate`` is for tests: each buffer has memory of its own instead of a slot in
    the arena or in memory that is lent, so that an access past its end is seen.
    """
    return _Printer(region, program.buffers, kernel_names, placeholder, hollow, separate).emit()


@dataclass(slots=True)
class _Part:
    """One step as text over ``v[a[i]]`` and ``n[a[i]]``, and the slots that these are."""

    lines: list[str] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)

    def __call__(self, slot: Slot) -> str:
        if slot not in self.slots:
            self.slots.append(slot)
        return f"{'n' if slot[0] == 'number' else 'v'}[a[{self.slots.index(slot)}]]"


@dataclass(slots=True, eq=False)
class _Printer:
    region: NativeRegion
    buffers: Mapping[str, Buffer]
    kernel_names: Mapping[Kernel, str]
    placeholder: str
    hollow: bool
    separate: bool
    table: dict[Reference, int] = field(default_factory=lambda: {("plan", 0): 0})
    parts: dict[str, int] = field(default_factory=dict)  # text -> number
    plans: list[tuple[int, ...]] = field(default_factory=list)  # its own, and those of bodies
    pointers: dict[str, Slot] = field(default_factory=dict)  # by buffer
    # By base and offset.
    pointer_slots: dict[tuple[Base | str, int], Slot] = field(default_factory=dict)
    setup: dict[Slot, tuple[Base, int]] = field(default_factory=dict)  # known from the start
    late: set[Slot] = field(default_factory=set)  # pointers that a step sets
    roots: dict[Slot, str] = field(default_factory=dict)  # late pointer -> whose memory it is in
    handles: dict[tuple[object, ...], Slot] = field(default_factory=dict)
    numbers: RegionNumbers = field(default_factory=RegionNumbers)
    scalars: dict[Operand, str | Slot] = field(default_factory=dict)
    rows: list[tuple[Slot, tuple[Slot, ...]]] = field(default_factory=list)
    own: list[int] = field(default_factory=list)  # with ``separate``: the size of each buffer
    outer: int = 0

    def emit(self) -> PrintedRegion:
        self.print()
        functions = (self._function(text) for text in self.parts)
        parts = tuple(NativeFunction(text, caller="none") for text in functions)
        return PrintedRegion(ENTRY, parts, tuple(self.table), tuple(self.plans))

    def print(self) -> int:
        """Prints the steps; the number of the plan."""
        number = len(self.plans)
        self.plans.append(())
        for atom in self.region.sizes:
            self.numbers.hand(atom)
        integers = [scalar for scalar in self.region.scalars if not is_float(scalar)]
        floats = self.region.scalars[len(integers) :]
        assert all(map(is_float, floats)), "floats are handed over last"
        self.scalars.update((scalar, ("number", self.numbers.hand())) for scalar in integers)
        self.scalars.update((scalar, f"f[{index}]") for index, scalar in enumerate(floats))
        for buffer in self.region.outer:
            if self.buffers[buffer].role == "constant":
                self.pointers[buffer] = self._entry(("constant", buffer))
            else:
                self.outer += 1
                self.pointers[buffer] = self._pointer_slot(self.outer, self.numbers.index(0))
        rooms = self._room_starts()
        for buffer, (slot, offset) in self.region.inner.items():
            start = self.numbers.offset(rooms[slot], offset)
            self.pointers[buffer] = (
                self._own(buffer) if self.separate else self._pointer_slot(ARENA, start)
            )
        for step in self.region.steps:
            self._step(step)
        delete = self._index(self._entry(("library", DELETE))) if self.handles else 0
        self.plans[number] = self._plan(delete)
        return number

    # --- the whole ---

    def _function(self, text: str) -> str:
        signature = "(void **v, const long *a, const long *n, const double *f)"
        return f"long {self.placeholder}{signature}\n{{\n{text}    return 0;\n}}\n"

    def _room_starts(self) -> list[int]:
        """Where each slot of the arena begins, after the one before."""
        starts = [self.numbers.index(0)]
        for sizes in self.region.rooms[:-1]:
            starts.append(self.numbers.running_total(starts[-1], sizes))
        return starts

    def _plan(self, delete: int) -> tuple[int, ...]:
        """``anyshape_plan``, and what follows it."""
        numbers, operands = self.numbers, list[int]()
        steps: list[int] = []
        for function, slots in self.rows:
            steps += (self._index(function), len(operands))
            operands += map(self._index, slots)
        pointers: list[int] = []
        for slot, (base, offset) in self.setup.items():
            near = -1 - self._index(base) if isinstance(base, tuple) else base
            pointers += (self._index(slot), near, offset)
        floats = len(self.region.scalars) - (numbers.given - len(self.region.sizes))
        count = len(self.table) + len(self.pointer_slots) + len(self.handles)
        return (
            *(self.outer, numbers.given, floats),
            *(numbers.computed, len(self.own), len(self.table), len(self.setup), len(self.rows)),
            *(len(self.handles), count, delete),
            *(*numbers.code, *self.own, *pointers, *steps, *operands),
        )

    def _index(self, slot: Slot) -> int:
        kind, number = slot
        if kind in ("table", "number"):
            return number
        return number + len(self.table) + (len(self.pointer_slots) if kind == "handle" else 0)

    # --- steps ---

    def _step(self, step: object) -> None:
        part = _Part()
        match step:
            case Launch():
                self._launch(step, part)
            case LibraryCall(dispatched=True):
                self._dispatched(step, part)
            case LibraryCall():
                self._library_call(step, part)
            case View():
                self._view(step, part)
            case Assertion():
                flag = part(self.pointers[step.buffer])
                self._fail_if(f"*(volatile char *){flag}", CHECK_FAILED, part)
            case Call():
                self._product(step, part)
            case NativeNested():
                self._nested(step, part)
            case Free():
                self._free(step, part)
            case _:
                raise TypeError(f"{step} is not native")
        if part.lines:
            text = "".join(f"    {line}\n" for line in part.lines)
            number = self.parts.setdefault(text, len(self.parts))
            self.rows.append((self._entry(("part", number)), tuple(part.slots)))

    def _launch(self, step: Launch, part: _Part) -> None:
        function = part(self._entry(("kernel", self.kernel_names[step.kernel])))
        types, args = [], []
        for param, arg in zip(step.kernel.params, step.args, strict=True):
            if isinstance(arg, SizeInMemory):
                types.append("void *")
                args.append(part(self.pointers[arg.name]))
            elif isinstance(param, PointerParam):
                assert isinstance(arg, BufferRef)
                types.append("void *")
                pointer = part(self.pointers[arg.name])
                offset = step.offsets.get(param.name, 0) * self.buffers[arg.name].dtype.size_bytes
                moved = part(("number", self.numbers.index(offset))) if offset != 0 else ""
                args.append(f"(char *){pointer} + {moved}" if moved else pointer)
            else:
                is_double = isinstance(param, ScalarParam) and param.dtype.is_floating
                types.append("double" if is_double else "long")
                args.append(self._number(arg, part))
        prototype = f"void (*)({', '.join(types)})"
        part.lines.append(f"(({prototype}){function})({', '.join(args)});")

    def _view(self, step: View, part: _Part) -> None:
        """Memory of the arena or from outside is known at once, torch's own when it is made."""
        made, pointer = step.output, self.pointers[step.base]
        if self.separate and self._is_lent(made):
            self.pointers[made] = self._own(made)
            return
        if step.offset == 0:
            self.pointers[made] = pointer
            return
        offset = step.offset * self.buffers[step.base].dtype.size_bytes
        moved = self.numbers.index(offset)
        if pointer not in self.late:
            self.pointers[made] = self._pointer_slot(pointer, moved)
        elif (pointer, moved) in self.pointer_slots:
            self.pointers[made] = self.pointer_slots[pointer, moved]
        else:
            slot = self.pointers[made] = self._new_pointer_slot(pointer, moved)
            self.late.add(slot)
            self.roots[slot] = self.roots[pointer]
            part.lines.append(f"{part(slot)} = {self._moved(part(pointer), offset, part)};")

    def _own(self, name: str) -> Slot:
        """The slot of memory that is only this buffer's."""
        self.own.append(self.numbers.index(size_bytes(self.buffers[name])))
        outer = sum(self.buffers[buffer].role != "constant" for buffer in self.region.outer)
        return self._pointer_slot(outer + len(self.own), self.numbers.index(0))

    def _is_lent(self, name: str) -> bool:
        """Is the view no view of the program, but memory for what a step makes?"""
        calls = (step for step in self.region.steps if isinstance(step, (Call, LibraryCall)))
        return self.buffers[name].role == "temp" or any(name in call.defines() for call in calls)

    def _product(self, step: Call, part: _Part) -> None:
        left, right, *bias = (arg for arg in step.args if isinstance(arg, BufferRef))
        a, b = self.buffers[left.name], self.buffers[right.name]
        result = self.buffers[step.outputs[0]]
        linear = step.function.endswith("linear")
        rows, inner = numel(a.shape[:-1]), a.shape[-1]
        columns = b.shape[0] if linear else b.shape[1]
        a_transposed, lda = (False, inner) if linear else _layout(a)
        b_transposed, ldb = (True, inner) if linear else _layout(b)
        gemm = part(self._entry(("library", _gemm(result.dtype))))
        a_text, b_text, c = (part(self.pointers[x]) for x in (left.name, right.name, result.name))
        if bias:
            row = part(self.pointers[bias[0].name])
            row_bytes = self._size(columns * result.dtype.size_bytes, part)
            part.lines.append(
                f"anyshape_fill_rows({c}, {row}, {self._size(rows, part)}, {row_bytes});"
            )
        for operand in (left.name, right.name, result.name):
            self._touch(operand, self.buffers[operand].shape, self.buffers[operand].strides, part)
        numbers = ", ".join(self._size(dim, part) for dim in (rows, columns, inner))
        part.lines.append(
            f"if (anyshape_gemm({gemm}, {int(result.dtype is float64)}, {int(a_transposed)}, "
            f"{int(b_transposed)}, {numbers}, {a_text}, {self._size(lda, part)}, {b_text}, "
            f"{self._size(ldb, part)}, {c}, {'1.0' if bias else '0.0'})) return 1;"
        )

    def _touch(
        self, buffer: str, shape: tuple[Dim, ...], strides: tuple[Dim, ...], part: _Part
    ) -> None:
        if self.separate:
            dims = f"{len(shape)}, {self._array(shape, part)}, {self._array(strides, part)}"
            width = self.buffers[buffer].dtype.size_bytes
            pointer = part(self.pointers[buffer])
            part.lines.append(f"anyshape_touch({pointer}, {width}, {dims});")

    def _fail_if(self, condition: str, status: int, part: _Part) -> None:
        part.lines.append(f"{condition};" if self.hollow else f"if ({condition}) return {status};")

    # --- loops and branches ---

    def _nested(self, nested: NativeNested, part: _Part) -> None:
        """The bodies have plans of their own and share the table: ``v`` begins with it."""
        step, (number, *_) = nested.step, nested.step.given
        given = [part(self.pointers[name]) for name in references(step.given[1:])]
        made, spares = (
            [part(self.pointers[name]) for name in names] for names in (step.outputs, nested.spares)
        )
        sizes = [self._size(size_bytes(self.buffers[name]), part) for name in step.outputs]
        results = [f"*(long *){part(self.pointers[name])}" for name in nested.numbers]
        if isinstance(step, Loop):
            decides, turn = self._trips(number, part), self._turn(number, part)
            (body,) = step.bodies
            carried, numbered = len(made), range(len(results))
            frm, to = ([f"{of}[{k}]" for k in range(carried)] for of in ("from", "to"))
            now, after = ([f"{of}[{k}]" for k in numbered] for of in ("now", "next"))
            given_inside = [*frm, *given[carried:]]
            rooms, done = self._body(body, given_inside, to, sizes, ("number", *now), after, part)
            first = [self._number(number, part) for number in first_numbers(step)]
            lines = loop_lines(decides, turn, given[:carried], made, spares, sizes, first, done)
            lines += [f"{result} = now[{k}];" for k, result in enumerate(results)]
            part.lines += in_arena(rooms, lines)
            return
        decides = self._deciding(number, part)
        for test, body in zip((decides, f"!({decides})"), step.bodies, strict=True):
            rooms, done = self._body(body, given, made, sizes, (), results, part)
            part.lines += [f"if ({test}) {{", *in_arena(rooms, done), "}"]

    def _body(
        self,
        body: Body,
        given: Sequence[str],
        made: Sequence[str],
        sizes: Sequence[str],
        numbers: Sequence[str],
        results: Sequence[str],
        part: _Part,
    ) -> tuple[list[str], list[str]]:
        """Prints the body's steps. The sizes of its arena's slots; lines that run it, which set
        ``status``. It is ``given`` buffers, and ``numbers``; it gives ``made``, whose bytes are
        ``sizes``, and ``results``."""
        native = native_body(body)
        assert native is not None
        named = dict(zip(native.handed, numbers, strict=True))
        inside = {name: made[position] for position, name in native.made.items()}
        memory = dict(zip(native.heads, given, strict=True)) | inside

        def size(symbol: Symbol) -> str:
            return named.get(symbol.name) or self._size(symbol.expr, part)

        lines = []
        if native.region is not None:
            lines.append(f"status = {self._call(body, native.region, size, memory, part)};")
        lines += [
            f"if (!status && {sizes[k]}) __builtin_memcpy({made[k]}, {memory[name]}, {sizes[k]});"
            for k, name in native.copied.items()
        ]
        for number, result in zip(native.numbers, results, strict=True):
            lines += number_lines(number, result, size)
        return [room_text([self._size(n, part) for n in room]) for room in native.rooms], lines

    def _call(
        self,
        body: Body,
        region: NativeRegion,
        size: Callable[[Symbol], str],
        memory: Mapping[str, str],
        part: _Part,
    ) -> str:
        """Prints the steps of a body's native region; a call of it, where its buffers are."""
        printer = _Printer(
            region,
            body.program.buffers,
            self.kernel_names,
            self.placeholder,
            self.hollow,
            self.separate,
            table=self.table,
            parts=self.parts,
            plans=self.plans,
        )
        plan = part(self._entry(("plan", printer.print())))
        run = part(self._entry(("entry", None)))
        base = ["arena", *(memory[name] for name in region.outer)]
        room = f"char *base[{len(base) + len(printer.own)}]; long m[{printer.numbers.count + 1}];"
        filled = [f"base[{k}] = {pointer};" for k, pointer in enumerate(base)]
        filled += [f"m[{k}] = {size(symbol)};" for k, symbol in enumerate(region.symbols)]
        call = f"((anyshape_run *){run})({plan}, v, base, m, f);"
        return f"({{{' '.join((room, *filled, call))}}})"

    def _deciding(self, number: StepArg, part: _Part) -> str:
        """A number that decides, as C."""
        if isinstance(number, BufferRef):
            return self._element(number, "0", part)
        return self._number(number, part)

    def _trips(self, trips: StepArg, part: _Part) -> str:
        """How often a loop turns: as often as its list is long, if there is one."""
        if isinstance(trips, BufferRef) and (shape := self.buffers[trips.name].shape):
            return self._size(shape[0], part)
        return self._deciding(trips, part)

    def _turn(self, trips: StepArg, part: _Part) -> str:
        """The number of a turn: an element of a list, else how many came before it."""
        if not isinstance(trips, BufferRef) or not self.buffers[trips.name].shape:
            return "turn"
        (stride,) = self.buffers[trips.name].strides
        return self._element(trips, f"turn * {self._size(stride, part)}", part)

    def _element(self, tensor: BufferRef, index: str, part: _Part) -> str:
        kind = C_TYPES[self.buffers[tensor.name].dtype.name]
        return f"(({kind} *){part(self.pointers[tensor.name])})[{index}]"

    # --- torch's library ---

    def _library_call(self, step: LibraryCall, part: _Part) -> None:
        types, args = [], []
        for kind, value in step.args:
            types.append("void *" if kind == "tensor" else "double" if kind == "float" else "long")
            args.append(self._given(value, part))
        function = part(self._entry(("library", step.function)))
        prototype = f"int (*)({', '.join(types)})"
        call = f"(({prototype}){function})({', '.join(args)})"
        self._fail_if(call, LIBRARY_FAILED, part)

    def _given(self, value: object, part: _Part) -> str:
        return (
            self._tensor(value, part) if isinstance(value, TensorArg) else self._number(value, part)
        )

    def _dispatched(self, step: LibraryCall, part: _Part) -> None:
        """The operator by its name, on a stack of values that the dispatcher takes over."""
        (name,) = step.call.outputs
        result = self.buffers[name]
        handle = self.handles[name,] = ("handle", len(self.handles))
        pointer = self.pointers[name] = self._new_pointer_slot(name, -1)
        self.late.add(pointer)
        self.roots[pointer] = name
        arrays = f"{self._array(result.shape, part)}, {self._array(result.strides, part)}"
        dims = f"{len(result.shape)}, {arrays}"
        dtype = part(self._dtype(result.dtype))
        if self.hollow:
            empty = part(self._entry(("library", EMPTY)))
            part.lines.append(f"anyshape_empty({empty}, {dtype}, {dims}, &{part(handle)});")
        else:
            stack = ", ".join(self._stacked(kind, value, part) for kind, value in step.args)
            call = part(self._entry(("library", DISPATCH)))
            part.lines += [
                f"unsigned long stack[] = {{{stack}}};",
                f"if (((int (*)(const char *, const char *, unsigned long *)){call})"
                f'("{step.function}", "", stack)) return {LIBRARY_FAILED};',
                f"{part(handle)} = (void *)stack[0];",
            ]
        functions = ", ".join(part(self._entry(("library", symbol))) for symbol in RESULT)
        given = f"{functions}, {dtype}, {dims}, &{part(handle)}, &{part(pointer)}"
        part.lines.append(f"if (anyshape_result({given})) return {LIBRARY_FAILED};")

    def _stacked(self, kind: str, value: object, part: _Part) -> str:
        if value is None:
            return "0"
        if isinstance(value, TensorArg):
            share = part(self._entry(("library", SHARE)))
            text = f"anyshape_share({share}, {self._tensor(value, part)})"
        else:
            number = self._number(value, part)
            text = f"anyshape_bits({number})" if kind.startswith("float") else number
        if kind.endswith("?"):
            return f"anyshape_some({part(self._entry(('library', SOME)))}, {text})"
        return text

    def _tensor(self, tensor: TensorArg, part: _Part) -> str:
        """A handle on the memory, made at its first use and kept until the memory dies."""
        buffer = self.buffers[tensor.buffer]
        pointer = self.pointers[tensor.buffer]
        dims = (*tensor.shape, *tensor.strides)
        if pointer[0] == "table" and all(isinstance(dim, int) for dim in dims):
            _, constant = list(self.table)[pointer[1]]
            return part(self._entry(("tensor", (constant, tensor.shape, tensor.strides))))
        root = self.roots.get(pointer, "")
        key = (root, pointer, tensor.shape, tensor.strides, buffer.dtype)
        handle = self.handles.get(key)
        if handle is None:
            handle = self.handles[key] = ("handle", len(self.handles))
        from_blob = part(self._entry(("library", FROM_BLOB)))
        arrays = f"{self._array(tensor.shape, part)}, {self._array(tensor.strides, part)}"
        self._touch(tensor.buffer, tensor.shape, tensor.strides, part)
        made = (
            f"anyshape_handle({from_blob}, {part(self._dtype(buffer.dtype))}, "
            f"{part(pointer)}, {len(tensor.shape)}, {arrays}, &{part(handle)})"
        )
        part.lines.append(f"if (!{part(handle)} && {made}) return {LIBRARY_FAILED};")
        return part(handle)

    def _free(self, step: Free, part: _Part) -> None:
        """What torch allocated, and the handles on it."""
        for key, handle in self.handles.items():
            if key[0] in step.buffers:
                delete = part(self._entry(("library", DELETE)))
                there = part(handle)
                part.lines.append(f"if ({there}) ((int (*)(void *)){delete})({there});")
                part.lines.append(f"{there} = 0;")

    # --- operands ---

    def _entry(self, entry: Reference) -> Slot:
        return "table", self.table.setdefault(entry, len(self.table))

    def _dtype(self, dtype: DType) -> Slot:
        return self._entry(("library", f"aoti_torch_dtype_{dtype.name}"))

    def _pointer_slot(self, base: Base, offset: int) -> Slot:
        """The slot of an address that is known from the start, so far from what it is near."""
        slot = self.pointer_slots.get((base, offset))
        if slot is None:
            slot = self._new_pointer_slot(base, offset)
            self.setup[slot] = base, offset
        return slot

    def _new_pointer_slot(self, base: Base | str, offset: int) -> Slot:
        slot = self.pointer_slots[base, offset] = ("pointer", len(self.pointer_slots))
        return slot

    def _number(self, number: object, part: _Part) -> str:
        if isinstance(number, (Scalar, ScalarInput)):
            known = self.scalars[number]
            return known if isinstance(known, str) else part(known)
        if isinstance(number, float):
            return _c_float(number)
        if isinstance(number, bool):
            return str(int(number))
        if isinstance(number, (Relation, AllOf, AnyOf)):
            return part(("number", self.numbers.index(number)))
        assert isinstance(number, (int, Expr))
        return self._size(number, part)

    def _array(self, dims: tuple[Dim, ...], part: _Part) -> str:
        return f"(const long[]){{{', '.join(self._size(dim, part) for dim in dims) or '0'}}}"

    def _size(self, dim: Dim, part: _Part) -> str:
        """The size as C: a number, or an element of ``n``."""
        if isinstance(dim, int):
            return f"{int(dim)}L"
        return part(("number", self.numbers.index(dim)))

    def _moved(self, pointer: str, offset: Dim, part: _Part) -> str:
        return pointer if offset == 0 else f"(char *){pointer} + {self._size(offset, part)}"


def _layout(buffer: Buffer) -> tuple[bool, Dim]:
    """(transposed, leading dimension) of a matrix with one stride of 1."""
    rows, columns = buffer.strides
    if isinstance(columns, int) and columns == 1:
        return False, rows
    return True, columns


def _gemm(dtype: DType) -> str:
    return "dgemm_" if dtype is float64 else "sgemm_"


def _c_float(number: float) -> str:
    if math.isfinite(number):
        return number.hex()
    return (
        '__builtin_nan("")' if math.isnan(number) else f"{'-' if number < 0 else ''}__builtin_inf()"
    )


def argument_types(kernel: Kernel) -> tuple[ArgType, ...]:
    """How a kernel's parameters are passed, in order."""
    kinds: dict[type, Callable[[Any], ArgType]] = {
        PointerParam: lambda _: "pointer",
        SizeParam: lambda param: "pointer" if param.in_memory else "int64",
        ScalarParam: lambda param: "double" if param.dtype.is_floating else "int64",
    }
    return tuple(kinds[type(param)](param) for param in kernel.params)
