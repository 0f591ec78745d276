"""A native region as C: one small function a different step, and a table that says which runs on
what.

In: a ``NativeRegion`` of a program. Out: a ``NativeFunction``, and what each entry of its table is.
Equal steps, of equal layers say, share one function: they differ in the operands they are handed,
which are places in one array of pointers ``v`` (table entries, buffers, tensor handles). Nothing
that differs between processes (addresses) is in the text, so that the disk cache serves it.

    long NAME(void **table, char *arena, char *outer0, ..., long size0, ..., double scalar0, ...)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anyshape.ir.buffers import Buffer, BufferRef
from anyshape.ir.code import ArgType, NativeFunction, Reference
from anyshape.ir.dtypes import DType, float64
from anyshape.ir.loops import Kernel, PointerParam, ScalarParam, SizeParam
from anyshape.ir.program import (
    Assertion,
    Call,
    Free,
    Launch,
    LibraryCall,
    NativeRegion,
    Program,
    TensorArg,
    View,
)
from anyshape.ir.scalars import Operand, Scalar, ScalarInput
from anyshape.ops.layout import numel
from anyshape.symbolic import (
    AllOf,
    AnyOf,
    Dim,
    Expr,
    NamedSums,
    Relation,
    Symbol,
    nested_parts,
)
from anyshape.targets.cpu.sizes import to_c

DELETE = "aoti_torch_delete_tensor_object"
FROM_BLOB = "aoti_torch_create_tensor_from_blob"
EMPTY = "aoti_torch_empty_strided"
DISPATCH = "aoti_torch_call_dispatcher"
SHARE = "aoti_torch_new_tensor_handle"
SOME = "torch_new_stable_ivalue"
RESULT = ("aoti_torch_get_data_ptr", "aoti_torch_get_strides", EMPTY, "aoti_torch_copy_", DELETE)
MANY_SIZES = 256
"""Numbers from which on a native region's own function, long straight text that runs once a call,
is not optimized at all: gcc takes time quadratic in its length, and vectorizing it is worse."""
CHECK_FAILED, LIBRARY_FAILED = 2, 3

Slot = tuple[str, int]
"""("table" | "pointer" | "handle", number): a place of ``v``; ("number", place): one of ``n``."""


def emit_native_region(
    region: NativeRegion,
    program: Program,
    kernel_names: Mapping[Kernel, str],
    name: str,
    *,
    hollow: bool = False,
    apart: bool = False,
) -> tuple[NativeFunction, tuple[Reference, ...]]:
    """Prints the native region as C, and says what the entries of its table are.

    ``hollow`` is for measuring: an operator called by name only allocates what it would return, and
    nothing fails. ``apart`` is for tests: each buffer has memory of its own instead of a place in
    the arena or in memory that is lent, so that an access past its end is seen.
    """
    return _Printer(region, program.buffers, kernel_names, hollow, apart).emit(name)


@dataclass(slots=True)
class _Part:
    """One step as text over ``v[a[i]]``, and the slots that these are."""

    lines: list[str] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)

    def __call__(self, slot: Slot) -> str:
        if slot not in self.slots:
            self.slots.append(slot)
        return f"{'n' if slot[0] == 'number' else 'v'}[a[{self.slots.index(slot)}]]"

    def shared(self, number: str) -> str:
        """A place of ``n`` as an operand, so that steps over other sizes have the same text."""
        place = number.removeprefix("n[").removesuffix("]")
        return self(("number", int(place))) if number.startswith("n[") else number


@dataclass(slots=True, eq=False)
class _Printer:
    region: NativeRegion
    buffers: Mapping[str, Buffer]
    kernel_names: Mapping[Kernel, str]
    hollow: bool
    apart: bool
    table: dict[Reference, int] = field(default_factory=dict)
    pointers: dict[str, Slot] = field(default_factory=dict)  # by buffer
    places: dict[tuple[Slot | str, str], Slot] = field(default_factory=dict)  # by base and offset
    setup: dict[Slot, str] = field(default_factory=dict)  # pointers known from the start
    late: set[Slot] = field(default_factory=set)  # pointers that a step sets
    roots: dict[Slot, str] = field(default_factory=dict)  # late pointer -> whose memory it is in
    handles: dict[tuple[object, ...], Slot] = field(default_factory=dict)
    symbols: dict[Symbol, str] = field(default_factory=dict)
    scalars: dict[Operand, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # C text -> place in n
    held: dict[Dim, str] = field(default_factory=dict)  # what sizes are made of, as C text
    sums: NamedSums = field(default_factory=NamedSums)
    rows: list[tuple[str, tuple[Slot, ...]]] = field(default_factory=list)
    own: list[str] = field(default_factory=list)  # with ``apart``: the size of each buffer

    def emit(self, name: str) -> tuple[NativeFunction, tuple[Reference, ...]]:
        parameters = ["void **table", "char *arena"]
        types: list[ArgType] = ["pointer", "pointer"]
        for index, buffer in enumerate(self.region.outer):
            if self.buffers[buffer].role == "constant":
                self.pointers[buffer] = self._entry(("constant", buffer))
            else:
                self.pointers[buffer] = self._place(f"o{index}", "0L")
                parameters.append(f"char *o{index}")
                types.append("pointer")
        for index, symbol in enumerate(self.region.sizes):
            self.symbols[symbol] = f"s{index}"
            parameters.append(f"long s{index}")
            types.append("int64")
        floats = [scalar for scalar in self.region.scalars if _is_float(scalar)]
        for index, scalar in enumerate(self.region.scalars):
            is_float = _is_float(scalar)
            parameters.append(f"{'double' if is_float else 'long'} f{index}")
            types.append("double" if is_float else "int64")
            self.scalars[scalar] = (
                f"f[{floats.index(scalar)}]" if is_float else f"n[{self._number_of(f'f{index}')}]"
            )
        for buffer, (place, offset) in self.region.inner.items():
            start = f"at{place}" if offset == 0 else f"at{place} + {self._size(offset)}"
            inside = self._own(buffer) if self.apart else self._place("arena", start)
            self.pointers[buffer] = inside
        rooms = [tuple(map(self._size, room)) for room in self.region.rooms]
        for step in self.region.steps:
            self._step(step)
        given = [f"f{i}" for i, s in enumerate(self.region.scalars) if _is_float(s)]
        text = self._text(name, parameters, given, rooms)
        return NativeFunction(text, tuple(types), returns_status=True), tuple(self.table)

    # --- the whole ---

    def _text(
        self,
        name: str,
        parameters: list[str],
        floats: list[str],
        rooms: list[tuple[str, ...]],
    ) -> str:
        delete = self._entry(("library", DELETE)) if self.handles else None
        parts = {text: number for number, text in enumerate(dict.fromkeys(t for t, _ in self.rows))}
        signature = "(void **v, const int *a, const long *n, const double *f)"
        functions = (
            f"static long {name}_{number}{signature}\n{{\n{text}    return 0;\n}}\n"
            for text, number in parts.items()
        )
        operands: list[str] = []
        steps: list[str] = []
        for text, slots in self.rows:
            steps.append(f"{{{name}_{parts[text]}, {len(operands)}}}")
            operands += (str(self._index(slot)) for slot in slots)
        first = len(self.table) + len(self.places)
        end = first + len(self.handles)
        lines = [
            f"static const int operands[] = {{{', '.join(operands) or '0'}}};",
            f"static const anyshape_step steps[] = {{{', '.join(steps)}}};",
            f"long n[{max(len(self.sizes), 1)}];",
            *(f"n[{place}] = {text};" for text, place in self.sizes.items()),
            f"const double f[] = {{{', '.join(floats) or '0'}}};",
            *_offsets(rooms),
            f"void *v[{max(end, 1)}];",
            *self._owned(),
            f"__builtin_memcpy(v, table, {len(self.table)} * sizeof(void *));",
            *(f"v[{self._index(slot)}] = {text};" for slot, text in self.setup.items()),
            f"long status = anyshape_run(steps, {len(steps)}, operands, v, n, f, {first}, {end}, "
            f"{'0' if delete is None else f'v[{self._index(delete)}]'});",
            *(f"free(own[{number}]);" for number in range(len(self.own))),
            "return status;",
        ]
        body = "\n".join(f"    {line}" for line in lines)
        level = 1 if len(self.sizes) < MANY_SIZES else 0
        once = f'__attribute__((optimize("O{level}"))) '
        head = f"{once}long {name}({', '.join(parameters)})"
        return "".join([*functions, f"{head}\n{{\n{body}\n}}\n"])

    def _index(self, slot: Slot) -> int:
        kind, number = slot
        if kind in ("table", "number"):
            return number
        return number + len(self.table) + (len(self.places) if kind == "handle" else 0)

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
            case Free():
                self._free(step, part)
            case _:
                raise TypeError(f"{step} is not native")
        if part.lines:
            text = "".join(f"    {line}\n" for line in part.lines)
            self.rows.append((text, tuple(part.slots)))

    def _launch(self, step: Launch, part: _Part) -> None:
        function = part(self._entry(("kernel", self.kernel_names[step.kernel])))
        types, args = [], []
        for param, arg in zip(step.kernel.params, step.args, strict=True):
            if isinstance(param, PointerParam):
                assert isinstance(arg, BufferRef)
                types.append("void *")
                pointer = self.pointers[arg.name]
                offset = step.offsets.get(param.name, 0) * self.buffers[arg.name].dtype.size_bytes
                args.append(_moved(part(pointer), part.shared(self._size(offset))))
            else:
                is_float = isinstance(param, ScalarParam) and param.dtype.is_floating
                types.append("double" if is_float else "long")
                args.append(part.shared(self._number(arg)))
        prototype = f"void (*)({', '.join(types)})"
        part.lines.append(f"(({prototype}){function})({', '.join(args)});")

    def _view(self, step: View, part: _Part) -> None:
        """Memory of the arena or from outside is known at once, torch's own when it is made."""
        made, pointer = step.output, self.pointers[step.base]
        if self.apart and self._is_lent(made):
            self.pointers[made] = self._own(made)
            return
        if step.offset == 0:
            self.pointers[made] = pointer
            return
        text = self._size(step.offset * self.buffers[step.base].dtype.size_bytes)
        key = (pointer, text)
        if key in self.places:
            self.pointers[made] = self.places[key]
            return
        slot = self.pointers[made] = self.places[key] = ("pointer", len(self.places))
        if pointer in self.late:
            self.late.add(slot)
            self.roots[slot] = self.roots[pointer]
            part.lines.append(f"{part(slot)} = {_moved(part(pointer), text)};")
        else:
            self.setup[slot] = _moved(self._early(pointer), text)

    def _own(self, name: str) -> Slot:
        """The slot of memory that is only this buffer's."""
        buffer = self.buffers[name]
        self.own.append(self._size(numel(buffer.shape) * buffer.dtype.size_bytes))
        return self._place(f"own[{len(self.own) - 1}]", "0L")

    def _is_lent(self, name: str) -> bool:
        """Is the view no view of the program, but memory for what a step makes?"""
        calls = (step for step in self.region.steps if isinstance(step, (Call, LibraryCall)))
        return self.buffers[name].role == "temp" or any(name in call.defines() for call in calls)

    def _owned(self) -> Iterator[str]:
        if self.own:
            yield f"void *own[{len(self.own)}];"
        for number, size in enumerate(self.own):
            yield f"own[{number}] = {size} ? malloc({size}) : 0;"

    def _early(self, slot: Slot) -> str:
        """A pointer that is known from the start, as text of the native region's own function."""
        return f"table[{slot[1]}]" if slot[0] == "table" else self.setup[slot]

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
            row_bytes = self._size(columns * result.dtype.size_bytes)
            part.lines.append(f"anyshape_fill_rows({c}, {row}, {self._size(rows)}, {row_bytes});")
        for operand in (left.name, right.name, result.name):
            self._touch(operand, self.buffers[operand].shape, self.buffers[operand].strides, part)
        numbers = ", ".join(map(self._size, (rows, columns, inner)))
        part.lines.append(
            f"if (anyshape_gemm({gemm}, {int(result.dtype is float64)}, {int(a_transposed)}, "
            f"{int(b_transposed)}, {numbers}, {a_text}, {self._size(lda)}, {b_text}, "
            f"{self._size(ldb)}, {c}, {'1.0' if bias else '0.0'})) return 1;"
        )

    def _touch(
        self, buffer: str, shape: tuple[Dim, ...], strides: tuple[Dim, ...], part: _Part
    ) -> None:
        if self.apart:
            dims = f"{len(shape)}, {self._array(shape)}, {self._array(strides)}"
            width = self.buffers[buffer].dtype.size_bytes
            place = part(self.pointers[buffer])
            part.lines.append(f"anyshape_touch({place}, {width}, {dims});")

    def _fail_if(self, condition: str, status: int, part: _Part) -> None:
        part.lines.append(f"{condition};" if self.hollow else f"if ({condition}) return {status};")

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
        return self._tensor(value, part) if isinstance(value, TensorArg) else self._number(value)

    def _dispatched(self, step: LibraryCall, part: _Part) -> None:
        """The operator by its name, on a stack of values that the dispatcher takes over."""
        (name,) = step.call.outputs
        result = self.buffers[name]
        handle = self.handles[name,] = ("handle", len(self.handles))
        pointer = self.pointers[name] = self.places[name, ""] = ("pointer", len(self.places))
        self.late.add(pointer)
        self.roots[pointer] = name
        dims = f"{len(result.shape)}, {self._array(result.shape)}, {self._array(result.strides)}"
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
        places = f"&{part(handle)}, &{part(pointer)}"
        part.lines.append(
            f"if (anyshape_result({functions}, {dtype}, {dims}, {places})) return {LIBRARY_FAILED};"
        )

    def _stacked(self, kind: str, value: object, part: _Part) -> str:
        if value is None:
            return "0"
        if isinstance(value, TensorArg):
            share = part(self._entry(("library", SHARE)))
            text = f"anyshape_share({share}, {self._tensor(value, part)})"
        else:
            number = self._number(value)
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
        arrays = f"{len(tensor.shape)}, {self._array(tensor.shape)}, {self._array(tensor.strides)}"
        self._touch(tensor.buffer, tensor.shape, tensor.strides, part)
        made = (
            f"anyshape_handle({from_blob}, {part(self._dtype(buffer.dtype))}, "
            f"{part(pointer)}, {arrays}, &{part(handle)})"
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

    def _place(self, base: str, text: str) -> Slot:
        """The slot of an address that is known from the start."""
        slot = self.places.get((base, text))
        if slot is None:
            slot = self.places[base, text] = ("pointer", len(self.places))
            self.setup[slot] = _moved(base, text)
        return slot

    def _number(self, number: object) -> str:
        if isinstance(number, (Scalar, ScalarInput)):
            return self.scalars[number]
        if isinstance(number, float):
            return _c_float(number)
        if isinstance(number, bool):
            return str(int(number))
        if isinstance(number, (Relation, AllOf, AnyOf)):
            return f"n[{self._number_of(to_c(number, lambda symbol: self.symbols[symbol]))}]"
        assert isinstance(number, (int, Expr))
        return self._size(number)

    def _array(self, dims: tuple[Dim, ...]) -> str:
        return f"(const long[]){{{', '.join(map(self._size, dims)) or '0'}}}"

    def _size(self, dim: Dim) -> str:
        """The size as C: a number, or a place of ``n``."""
        if isinstance(dim, int):
            return f"{int(dim)}L"
        for part in nested_parts(dim, self.held):
            self.held[part] = self._size(part)
        near = self.sums.split(dim)
        if near is None:
            text = self._c(dim)
        else:
            held, rest = near
            text = held if rest == 0 else f"{held} + {self._c(rest)}"
            if text.startswith("n[") and rest == 0:
                return text
        place = self._number_of(text)
        self.sums.note(dim, f"n[{place}]")
        return f"n[{place}]"

    def _c(self, dim: Dim) -> str:
        return to_c(dim, lambda symbol: self.symbols[symbol], held=self.held)

    def _number_of(self, text: str) -> int:
        return self.sizes.setdefault(text, len(self.sizes))


def _offsets(rooms: list[tuple[str, ...]]) -> list[str]:
    """Where each place of the arena begins, after the one before."""
    lines = ["const long at0 = 0;"] if rooms else []
    for number, sizes in enumerate(rooms[:-1]):
        room = f"anyshape_largest({len(sizes)}, (const long[]){{{', '.join(sizes)}}})"
        lines.append(f"const long at{number + 1} = at{number} + {room};")
    return lines


def _moved(pointer: str, offset: str) -> str:
    return pointer if offset == "0L" else f"(char *){pointer} + {offset}"


def _is_float(scalar: Operand) -> bool:
    return isinstance(scalar, (Scalar, ScalarInput)) and scalar.kind == "float"


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
        SizeParam: lambda _: "int64",
        ScalarParam: lambda param: "double" if param.dtype.is_floating else "int64",
    }
    return tuple(kinds[type(param)](param) for param in kernel.params)
