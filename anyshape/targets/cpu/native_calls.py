"""Calls of torch's library in a native region, and what steps are handed: slots of ``v`` and ``n``.

In: a ``LibraryCall``. Out: steps of a plan (``region_steps.py``), the text of a ``Part`` where no
such step does it. ``native.py`` does the other steps. The stable C interface of torch is
torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import field

from anyshape.ir.buffers import Buffer, TensorArg
from anyshape.ir.code import Reference
from anyshape.ir.dtypes import DType
from anyshape.ir.loops import Kernel
from anyshape.ir.program import Free, LibraryCall, NativeRegion
from anyshape.ir.scalars import Operand, Scalar, ScalarInput
from anyshape.nouns import mutable
from anyshape.runtime.launch import is_exported
from anyshape.symbolic import AllOf, AnyOf, Dim, Expr, Relation
from anyshape.targets.cpu.native_part import Base, Part, Slot
from anyshape.targets.cpu.region_numbers import RegionNumbers
from anyshape.targets.cpu.region_steps import CALLS, LIBRARY_FAILED, Does, Value

DELETE = "aoti_torch_delete_tensor_object"
FROM_BLOB = "aoti_torch_create_tensor_from_blob"
EMPTY = "aoti_torch_empty_strided"
DISPATCH = "aoti_torch_call_dispatcher"
SHARE = "aoti_torch_new_tensor_handle"
SOME, NEW = "torch_new_stable_ivalue", "_Znwm"
"""Memory for an optional value: of torch since 2.13; before, C++'s own, as its headers have it."""
RESULT = ("aoti_torch_get_data_ptr", "aoti_torch_get_strides", EMPTY, "aoti_torch_copy_", DELETE)
WORD = 8
"""Bytes of an element of what is kept."""


@mutable(eq=False)
class CallPrinter:
    """What is known of a native region while it is printed."""

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
    handles: dict[str, Slot] = field(default_factory=dict)  # on what torch allocated, by buffer
    # On other memory: slots, and where what is kept of them is, in elements.
    blobs: dict[tuple[object, ...], tuple[Slot, int]] = field(default_factory=dict)
    cells: list[int] = field(default_factory=lambda: [1])  # elements of each, after the flag
    kept: list[tuple[int, ...]] = field(default_factory=list)  # the same of each plan
    numbers: RegionNumbers = field(default_factory=RegionNumbers)
    scalars: dict[Operand, str | Slot] = field(default_factory=dict)
    planned: list[tuple[Slot, tuple[Slot, ...]]] = field(default_factory=list)
    own: list[int] = field(default_factory=list)  # with ``separate``: the size of each buffer
    outer: int = 0
    number: int = 0  # of its plan
    # As torch's C functions are told it: its type and its number.
    device: tuple[int, int] = 0, -1

    # --- steps of the plan ---

    def _do(self, does: Does, *operands: Slot | int) -> None:
        """A step that is done as ``region_steps.py`` says; numbers stand for themselves."""
        slots = tuple(("given", each) if isinstance(each, int) else each for each in operands)
        self.planned.append((("step", does), slots))

    def _do_part(self, part: Part) -> None:
        """A step that has a text."""
        if part.lines:
            text = "".join(f"    {line}\n" for line in part.lines)
            number = self.parts.setdefault(text, len(self.parts))
            self.planned.append((self._entry(("part", number)), tuple(part.slots)))

    # --- torch's library ---

    def _library_call(self, step: LibraryCall, results: Sequence[Slot] = ()) -> None:
        """A function of torch's, which puts handles of what it returns into ``results``."""
        kinds = tuple(kind for kind, _ in step.args)
        known = not results and kinds in CALLS
        numbers = [pair for pair in step.args if known and pair[0] != "tensor"]
        values = [self._value(*pair) for pair in numbers]
        if not known or any(kind is not Value.NUMBER for kind, _ in values):
            self._library_text(step, results)
            return
        tensors = [self._tensor(value) for _, value in step.args if isinstance(value, TensorArg)]
        function = self._entry(("library", step.function))
        failed = 0 if self.hollow else LIBRARY_FAILED
        given = (slot for _, slot in values)
        self._do(Does.CALL, function, len(tensors), failed, *tensors, *given)

    def _library_text(self, step: LibraryCall, results: Sequence[Slot]) -> None:
        part = Part()
        types, args = [], []
        for kind, value in step.args:
            is_pointer = kind.startswith("tensor") or value is None
            types.append("void *" if is_pointer else "double" if kind == "float" else "long")
            args.append(self._given(kind, value, part))
        types += ["void **"] * len(results)
        args += [f"&{part(result)}" for result in results]
        function = part(self._entry(("library", step.function)))
        prototype = f"int (*)({', '.join(types)})"
        call = f"(({prototype}){function})({', '.join(args)})"
        self._fail_if(call, LIBRARY_FAILED, part)
        self._do_part(part)

    def _given(self, kind: str, value: object, part: Part) -> str:
        """What is optional is handed over as where it is."""
        if value is None:
            return "0"
        if isinstance(value, TensorArg):
            return f"{'&' * kind.endswith('?')}{part(self._tensor(value))}"
        return self._number(value, part)

    def _giving(self, step: LibraryCall) -> None:
        """A call whose results are memory of torch's; what nobody names is let go of at the end."""
        names = [name or f"{n} of {len(self.handles)}" for n, name in enumerate(step.call.outputs)]
        for name in names:
            self.handles[name] = ("handle", len(self.handles))
        results = [self.handles[name] for name in names]
        if self.hollow:
            for name, result in zip(names, results, strict=True):
                self._only_allocate(name, result)
        elif step.returned:
            self._library_call(step, results)
        else:
            self._dispatch(step, results)
        for name, result in zip(step.call.outputs, results, strict=True):
            if name:
                pointer = self.pointers[name] = self._new_pointer_slot(name, -1)
                self.late.add(pointer)
                self.roots[pointer] = name
                functions = [self._entry(("library", symbol)) for symbol in RESULT]
                dtype, device, rank, dims = self._layout_of(self.buffers[name])
                given: tuple[Slot | int, ...] = (dtype, *device, rank, result, pointer, *dims)
                self._do(Does.RESULT, *functions, *given)

    def _only_allocate(self, name: str, result: Slot) -> None:
        part, buffer = Part(), self.buffers[name]
        functions = self._entry(("library", EMPTY)), self._dtype(buffer.dtype)
        given = [*map(part, functions), *map(str, self.device), str(len(buffer.shape))]
        given += [self._array(dims, part) for dims in (buffer.shape, buffer.strides)]
        part.lines.append(f"anyshape_empty({', '.join(given)}, &{part(result)});")
        self._do_part(part)

    def _layout_of(self, buffer: Buffer) -> tuple[Slot, tuple[int, int], int, list[Slot]]:
        """A buffer's type, device, rank and dimensions, as torch's C functions are told them."""
        dims = [*map(self._index_of, (*buffer.shape, *buffer.strides))]
        return self._dtype(buffer.dtype), self.device, len(buffer.shape), dims

    def _dispatch(self, step: LibraryCall, results: Sequence[Slot]) -> None:
        """The operator by its name, on a stack of values that the dispatcher takes over."""
        values = [self._value(kind, value) for kind, value in step.args]
        is_plain = not is_exported(SOME)
        optional = any(kind & Value.OPTIONAL for kind, _ in values)
        new = self._entry(("library", NEW if is_plain else SOME)) if optional else -1
        call, share = (self._entry(("library", name)) for name in (DISPATCH, SHARE))
        operands = (each for pair in values for each in pair)
        head = (call, self._entry(("text", step.function)), share, new, int(is_plain))
        self._do(Does.DISPATCH, *head, len(values), len(results), *operands, *results)

    def _value(self, kind: str, value: object) -> tuple[int, Slot | int]:
        """What it is that the dispatcher or ``Does.CALL`` is handed, and where."""
        if value is None:
            return Value.NUMBER, self._index_of(0)
        at, where = self._plain_value(kind, value)
        return (at | Value.OPTIONAL if kind.endswith("?") else at), where

    def _plain_value(self, kind: str, value: object) -> tuple[int, Slot | int]:
        if isinstance(value, TensorArg):
            return Value.TENSOR, self._tensor(value)
        is_float = kind.startswith("float")
        if isinstance(value, (Scalar, ScalarInput)):
            known = self.scalars[value]
            if isinstance(known, str):
                assert is_float, "the operator takes no such number"
                return Value.REAL, scalar_index(known)
            return (Value.WHOLE if is_float else Value.NUMBER), known
        if isinstance(value, (bool, int, float)):
            assert is_float or not isinstance(value, float), "the operator takes no such number"
            word = _bits(float(value)) if is_float else int(value)
            return Value.NUMBER, self._index_of(word)
        assert isinstance(value, (Expr, Relation, AllOf, AnyOf))
        number = "number", self.numbers.index(value)
        return (Value.WHOLE if is_float else Value.NUMBER), number

    def _tensor(self, tensor: TensorArg) -> Slot:
        """A handle on the memory, made at its first use and kept until the memory dies."""
        buffer = self.buffers[tensor.buffer]
        pointer = self.pointers[tensor.buffer]
        dims = (*tensor.shape, *tensor.strides)
        if pointer[0] == "table" and all(isinstance(dim, int) for dim in dims):
            _, constant = list(self.table)[pointer[1]]
            return self._entry(("tensor", (constant, tensor.shape, tensor.strides)))
        key = (self.roots.get(pointer, ""), pointer, *dims, len(tensor.shape), buffer.dtype)
        if key not in self.blobs:
            self.blobs[key] = ("blob", len(self.blobs)), sum(self.cells)
            self.cells.append(2 + len(dims))
        handle, at = self.blobs[key]
        cells = self._cells()
        own = self._pointer_slot(cells, self.numbers.index(at * WORD))
        functions = (self._entry(("library", name)) for name in (DELETE, FROM_BLOB))
        given: tuple[Slot | int, ...] = (
            handle,
            cells,
            own,
            *functions,
            self._dtype(buffer.dtype),
            *self.device,
            pointer,
        )
        self._touch(tensor.buffer, tensor.shape, tensor.strides)
        self._do(Does.HANDLE, *given, len(tensor.shape), *map(self._index_of, dims))
        return handle

    def _cells(self) -> Slot:
        """The entry of what is kept from one call to the next."""
        return self._entry(("kept", self.number))

    def _free(self, step: Free) -> None:
        """What torch allocated."""
        for name in step.buffers:
            if name in self.handles:
                self._do(Does.FREE, self._entry(("library", DELETE)), self.handles[name])

    def _touch(self, buffer: str, shape: tuple[Dim, ...], strides: tuple[Dim, ...]) -> None:
        if self.separate:
            part, width = Part(), self.buffers[buffer].dtype.size_bytes
            dims = f"{len(shape)}, {self._array(shape, part)}, {self._array(strides, part)}"
            pointer = part(self.pointers[buffer])
            part.lines.append(f"anyshape_touch({pointer}, {width}, {dims});")
            self._do_part(part)

    def _fail_if(self, condition: str, status: int, part: Part) -> None:
        part.lines.append(f"{condition};" if self.hollow else f"if ({condition}) return {status};")

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

    def _number(self, number: object, part: Part) -> str:
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

    def _array(self, dims: tuple[Dim, ...], part: Part) -> str:
        return f"(const long[]){{{', '.join(self._size(dim, part) for dim in dims) or '0'}}}"

    def _index_of(self, dim: Dim) -> Slot:
        """Where the size is among the numbers."""
        return "number", self.numbers.index(dim)

    def _size(self, dim: Dim, part: Part) -> str:
        """The size as C: a number, or an element of ``n``."""
        if isinstance(dim, int):
            return f"{int(dim)}L"
        return part(("number", self.numbers.index(dim)))

    def _moved(self, pointer: str, offset: Dim, part: Part) -> str:
        return pointer if offset == 0 else f"(char *){pointer} + {self._size(offset, part)}"


def _c_float(number: float) -> str:
    if math.isfinite(number):
        return number.hex()
    return (
        '__builtin_nan("")' if math.isnan(number) else f"{'-' if number < 0 else ''}__builtin_inf()"
    )


def scalar_index(text: str) -> int:
    """Of a scalar that is handed over as a double, from its text ``f[index]``."""
    return int(text[2:-1])


def _bits(number: float) -> int:
    """The double as a word."""
    (word,) = struct.unpack("q", struct.pack("d", number))
    assert isinstance(word, int)
    return word
