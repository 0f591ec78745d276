"""A native region as C: a plan of numbers that says which step runs on what.

In: a ``NativeRegion`` of a program. Out: a ``PrintedRegion``. Most steps are entries of the plan,
which name a function that all programs share (``region_steps.py``), and what it is done to: slots
of one array of pointers ``v`` (table entries, buffers, tensor handles) and of numbers ``n``
(``region_numbers.py``). Loops, branches, lists of launches and what is unusual are small functions
of their own, of which equal steps share one. The plan is data, which one function follows that is
every native region (``native_prelude.py: RUN_REGION``): the C compiler sees no size. Nothing
that differs between processes (addresses) is in a text, so that the disk cache serves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from anyshape.ir.buffers import BufferRef, SizeInMemory, StepArg, references
from anyshape.ir.code import NativeFunction, PrintedRegion, flag_address
from anyshape.ir.dtypes import float32, float64
from anyshape.ir.loops import Kernel, PointerParam, ScalarParam, SizeParam
from anyshape.ir.program import (
    Assertion,
    Body,
    Call,
    Free,
    Launch,
    LaunchList,
    LibraryCall,
    Loop,
    NativeNested,
    NativeRegion,
    Program,
    View,
)
from anyshape.ir.scalars import Scalar, ScalarInput
from anyshape.nouns import mutable
from anyshape.ops.layout import numel
from anyshape.schedule.arena import size_bytes
from anyshape.symbolic import AllOf, AnyOf, Expr, Relation, Symbol
from anyshape.targets.cpu.launch_lists import cells
from anyshape.targets.cpu.native_calls import DELETE, CallPrinter, scalar_index
from anyshape.targets.cpu.native_lists import Table, list_lines
from anyshape.targets.cpu.native_nesting import (
    C_TYPES,
    first_numbers,
    in_arena,
    loop_lines,
    native_body,
    number_lines,
    room_text,
)
from anyshape.targets.cpu.native_part import Base, Part, Slot
from anyshape.targets.cpu.native_prelude import RUN_REGION
from anyshape.targets.cpu.native_regions import is_float
from anyshape.targets.cpu.native_steps import matrix_layout
from anyshape.targets.cpu.region_steps import MOST_OPERANDS, Does

GEMM = {float32: "sgemm_", float64: "dgemm_"}
ARENA = 0
ENTRY = NativeFunction(RUN_REGION, returns_status=True, caller="own", few_passes=True, shared=True)


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
    return RegionPrinter(
        region, program.buffers, kernel_names, placeholder, hollow, separate
    ).emit()


@mutable(eq=False)
class RegionPrinter(CallPrinter):
    def emit(self) -> PrintedRegion:
        self.print()
        functions = (self._function(text) for text in self.parts)
        parts = tuple(NativeFunction(text, caller="none", few_passes=True) for text in functions)
        return PrintedRegion(ENTRY, parts, tuple(self.table), tuple(self.plans), tuple(self.kept))

    def print(self) -> int:
        """Prints the steps; the number of the plan."""
        number = self.number = len(self.plans)
        self.plans.append(())
        self.kept.append(())
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
            elif self.buffers[buffer].role == "flag":
                self.pointers[buffer] = self._entry(flag_address(self.buffers[buffer]))
            else:
                self.outer += 1
                self.pointers[buffer] = self._pointer_slot(self.outer, self.numbers.index(0))
        rooms = self._slot_starts()
        for buffer, (slot, offset) in self.region.inner.items():
            base, start = rooms[slot]
            start = self.numbers.offset(start, offset)
            self.pointers[buffer] = (
                self._own(buffer) if self.separate else self._pointer_slot(base, start)
            )
        for step in self.region.steps:
            self._step(step)
        made = self.handles or self.blobs
        delete = self._index(self._entry(("library", DELETE))) if made else 0
        self.plans[number] = self._plan(delete, self._index(self._cells()) if self.blobs else 0)
        self.kept[number] = tuple(self.cells)
        return number

    # --- the whole ---

    def _function(self, text: str) -> str:
        signature = "(void **v, const long *a, const long *n, const double *f)"
        return f"long {self.placeholder}{signature}\n{{\n{text}    return 0;\n}}\n"

    def _slot_starts(self) -> list[tuple[Base, int]]:
        """Where each slot of the arena begins: after the one before, or at an address of its
        own."""
        starts = [self.numbers.index(0)]
        if self.region.separate_slots:
            first = self.outer + 1
            self.outer += len(self.region.slot_sizes)
            return [(first + n, starts[0]) for n in range(len(self.region.slot_sizes))]
        for sizes in self.region.slot_sizes[:-1]:
            starts.append(self.numbers.running_total(starts[-1], sizes))
        return [(ARENA, start) for start in starts]

    def _plan(self, delete: int, kept: int) -> tuple[int, ...]:
        """``anyshape_plan``, and what follows it."""
        numbers, operands = self.numbers, list[int]()
        steps: list[int] = []
        for function, slots in self.planned:
            steps += (self._index(function), len(operands))
            operands += map(self._index, slots)
        pointers: list[int] = []
        for slot, (base, offset) in self.setup.items():
            near = -1 - self._index(base) if isinstance(base, tuple) else base
            pointers += (self._index(slot), near, offset)
        floats = len(self.region.scalars) - (numbers.given - len(self.region.sizes))
        count = self._index(("blob", len(self.blobs)))
        return (
            *(self.outer, numbers.given, floats),
            *(numbers.computed, len(self.own), len(self.table), len(self.setup), len(self.planned)),
            *(len(self.handles), len(self.blobs), count, delete, kept),
            *(*numbers.code, *self.own, *pointers, *steps, *operands),
        )

    def _index(self, slot: Slot) -> int:
        kind, number = slot
        if kind in ("table", "number", "given"):
            return number
        if kind in ("step", "word"):
            return -1 - number
        number += len(self.table)
        number += 0 if kind == "pointer" else len(self.pointer_slots)
        return number + (len(self.handles) if kind == "blob" else 0)

    # --- steps ---

    def _step(self, step: object) -> None:
        match step:
            case Launch():
                self._launch(step)
            case LaunchList():
                self._launch_list(step)
            case LibraryCall(gives_memory=True):
                self._giving(step)
            case LibraryCall():
                self._library_call(step)
            case View():
                self._view(step)
            case Assertion():
                self._assertion(step)
            case Call():
                self._product(step)
            case NativeNested():
                self._nested(step)
            case Free():
                self._free(step)
            case _:
                raise TypeError(f"{step} is not native")

    def _launch(self, step: Launch) -> None:
        words = [
            self._word(step, param, arg)
            for param, arg in zip(step.kernel.params, step.args, strict=True)
        ]
        known = [word for word in words if word is not None]
        if len(known) < len(words) or len(words) > MOST_OPERANDS:
            self._launch_text(step)
            return
        kernel = self._entry(("kernel", self.kernel_names[step.kernel]))
        self._do(Does.LAUNCH, kernel, len(known), *known)

    def _word(self, step: Launch, param: object, arg: StepArg) -> Slot | None:
        """An operand of ``Does.LAUNCH``; None of what it cannot be handed."""
        if isinstance(arg, SizeInMemory):
            return self.pointers[arg.name]
        if isinstance(param, PointerParam):
            assert isinstance(arg, BufferRef)
            return None if step.offsets.get(param.name, 0) != 0 else self.pointers[arg.name]
        if isinstance(param, ScalarParam) and param.dtype.is_floating:
            return None
        if isinstance(arg, (Scalar, ScalarInput)):
            known = self.scalars[arg]
            return None if isinstance(known, str) else ("word", known[1])
        if isinstance(arg, (bool, int, Expr, Relation, AllOf, AnyOf)):
            return "word", self.numbers.index(int(arg) if isinstance(arg, bool) else arg)
        return None

    def _launch_text(self, step: Launch) -> None:
        """With doubles, or in the middle of buffers."""
        part = Part()
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
        self._do_part(part)

    def _assertion(self, step: Assertion) -> None:
        if not self.hollow:
            self._do(Does.ASSERT, self.pointers[step.buffer])

    def _launch_list(self, step: LaunchList) -> None:
        part, first = Part(), step.launches[0]
        function = part(self._entry(("kernel", self.kernel_names[first.kernel])))
        count = part(("number", self.numbers.index(len(step.launches))))
        handed = [[*self._listed(one, part, step.divided)] for one in step.launches]
        begin, operands, width = len(part.slots), list[tuple[str, str]](), 0
        for kind, array, slot in handed[0]:
            operands.append((kind, f"{array}[item[{width}]]" if isinstance(slot, tuple) else slot))
            width += isinstance(slot, tuple)
        for launch, own in zip(step.launches, handed, strict=True):
            part.slots += (slot for *_, slot in own if isinstance(slot, tuple))
            part.slots.append(("number", self.numbers.index(cells(launch))))
        part.lines += list_lines(step, operands, Table(function, count, begin, width + 1))
        self._do_part(part)

    def _listed(
        self, launch: Launch, part: Part, divided: bool
    ) -> Iterator[tuple[str, str, Slot | str]]:
        """The type of each operand, and the array and the slot that it lies in, or its text."""
        pairs = [*zip(launch.kernel.params, launch.args, strict=True)]
        for param, arg in pairs[: len(pairs) - 2 * divided]:
            if isinstance(arg, BufferRef):
                yield "void *", "v", self.pointers[arg.name]
            elif isinstance(param, SizeParam):
                assert isinstance(arg, int | Expr)
                yield "long", "n", ("number", self.numbers.index(arg))
            else:
                assert isinstance(param, ScalarParam) and not isinstance(arg, SizeInMemory)
                kind = "double" if param.dtype.is_floating else "long"
                known = self.scalars.get(arg)
                if known is None:
                    yield kind, "", self._number(arg, part)
                elif isinstance(known, str):
                    yield kind, "f", ("number", scalar_index(known))
                else:
                    yield kind, "n", known

    def _view(self, step: View) -> None:
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
            self._do(Does.MOVE, slot, pointer, ("number", moved))

    def _own(self, name: str) -> Slot:
        """The slot of memory that is only this buffer's."""
        self.own.append(self.numbers.index(size_bytes(self.buffers[name])))
        return self._pointer_slot(self.outer + len(self.own), self.numbers.index(0))

    def _is_lent(self, name: str) -> bool:
        """Is the view no view of the program, but memory for what a step makes?"""
        calls = (step for step in self.region.steps if isinstance(step, (Call, LibraryCall)))
        return self.buffers[name].role == "temp" or any(name in call.defines() for call in calls)

    def _product(self, step: Call) -> None:
        left, right, *bias = (arg for arg in step.args if isinstance(arg, BufferRef))
        a, b = self.buffers[left.name], self.buffers[right.name]
        result = self.buffers[step.outputs[0]]
        linear = step.function.endswith("linear")
        rows, inner = numel(a.shape[:-1]), a.shape[-1]
        columns = b.shape[0] if linear else b.shape[1]
        a_transposed, lda = (not linear and matrix_layout(a)) or (False, inner)
        b_transposed, ldb = (not linear and matrix_layout(b)) or (True, inner)
        for name in (left.name, right.name, result.name):
            self._touch(name, self.buffers[name].shape, self.buffers[name].strides)
        width = result.dtype.size_bytes
        row = [self.pointers[bias[0].name], self._index_of(columns * width)] if bias else [-1, 0]
        self._do(
            Does.GEMM,
            self._entry(("library", GEMM[result.dtype])),
            *(int(flag) for flag in (result.dtype is float64, a_transposed, b_transposed)),
            *map(self._index_of, (rows, columns, inner)),
            *(self.pointers[left.name], self._index_of(lda)),
            *(self.pointers[right.name], self._index_of(ldb)),
            self.pointers[result.name],
            *row,
        )

    # --- loops and branches ---

    def _nested(self, nested: NativeNested) -> None:
        """The bodies have plans of their own and share the table: ``v`` begins with it."""
        part = Part()
        self._nest(nested, part)
        self._do_part(part)

    def _nest(self, nested: NativeNested, part: Part) -> None:
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
        part: Part,
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
        return [room_text([self._size(n, part) for n in room]) for room in native.slot_sizes], lines

    def _call(
        self,
        body: Body,
        region: NativeRegion,
        size: Callable[[Symbol], str],
        memory: Mapping[str, str],
        part: Part,
    ) -> str:
        """Prints the steps of a body's native region; a call of it, where its buffers are."""
        printer = RegionPrinter(
            region,
            body.program.buffers,
            self.kernel_names,
            self.placeholder,
            self.hollow,
            self.separate,
            table=self.table,
            parts=self.parts,
            plans=self.plans,
            kept=self.kept,
        )
        plan = part(self._entry(("plan", printer.print())))
        run = part(self._entry(("entry", None)))
        base = ["arena", *(memory[name] for name in region.outer)]
        room = f"char *base[{len(base) + len(printer.own)}]; long m[{printer.numbers.count + 1}];"
        filled = [f"base[{k}] = {pointer};" for k, pointer in enumerate(base)]
        filled += [f"m[{k}] = {size(symbol)};" for k, symbol in enumerate(region.symbols)]
        call = f"((anyshape_run *){run})({plan}, v, base, m, f);"
        return f"({{{' '.join((room, *filled, call))}}})"

    def _deciding(self, number: StepArg, part: Part) -> str:
        """A number that decides, as C."""
        if isinstance(number, BufferRef):
            return self._element(number, "0", part)
        return self._number(number, part)

    def _trips(self, trips: StepArg, part: Part) -> str:
        """How often a loop turns: as often as its list is long, if there is one."""
        if isinstance(trips, BufferRef) and (shape := self.buffers[trips.name].shape):
            return self._size(shape[0], part)
        return self._deciding(trips, part)

    def _turn(self, trips: StepArg, part: Part) -> str:
        """The number of a turn: an element of a list, else how many came before it."""
        if not isinstance(trips, BufferRef) or not self.buffers[trips.name].shape:
            return "turn"
        (stride,) = self.buffers[trips.name].strides
        return self._element(trips, f"turn * {self._size(stride, part)}", part)

    def _element(self, tensor: BufferRef, index: str, part: Part) -> str:
        kind = C_TYPES[self.buffers[tensor.name].dtype.name]
        return f"(({kind} *){part(self.pointers[tensor.name])})[{index}]"
