"""Calls of torch's library in a native region, and what steps are handed: slots of ``v`` and ``n``.

In: a ``LibraryCall``. Out: the text of a ``Part``. ``native.py`` prints the other steps. The stable
C interface of torch is torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h.
"""

from __future__ import annotations

import math
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

DELETE = "aoti_torch_delete_tensor_object"
FROM_BLOB = "aoti_torch_create_tensor_from_blob"
EMPTY = "aoti_torch_empty_strided"
DISPATCH = "aoti_torch_call_dispatcher"
SHARE = "aoti_torch_new_tensor_handle"
SOME, NEW = "torch_new_stable_ivalue", "_Znwm"
"""Memory for an optional value: of torch since 2.13; before, C++'s own, as its headers have it."""
RESULT = ("aoti_torch_get_data_ptr", "aoti_torch_get_strides", EMPTY, "aoti_torch_copy_", DELETE)
CHECK_FAILED, LIBRARY_FAILED = 2, 3
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
    rows: list[tuple[Slot, tuple[Slot, ...]]] = field(default_factory=list)
    own: list[int] = field(default_factory=list)  # with ``separate``: the size of each buffer
    outer: int = 0
    number: int = 0  # of its plan
    device: str = "0, -1"  # as torch's C functions are told it: its type and its number

    # --- torch's library ---

    def _library_call(self, step: LibraryCall, part: Part, results: Sequence[str] = ()) -> None:
        """A function of torch's, which puts handles of what it returns into ``results``."""
        types, args = [], []
        for kind, value in step.args:
            is_pointer = kind.startswith("tensor") or value is None
            types.append("void *" if is_pointer else "double" if kind == "float" else "long")
            args.append(self._given(kind, value, part))
        types += ["void **"] * len(results)
        args += [f"&{result}" for result in results]
        function = part(self._entry(("library", step.function)))
        prototype = f"int (*)({', '.join(types)})"
        call = f"(({prototype}){function})({', '.join(args)})"
        self._fail_if(call, LIBRARY_FAILED, part)

    def _given(self, kind: str, value: object, part: Part) -> str:
        """What is optional is handed over as where it is."""
        if value is None:
            return "0"
        if isinstance(value, TensorArg):
            return f"{'&' * kind.endswith('?')}{self._tensor(value, part)}"
        return self._number(value, part)

    def _giving(self, step: LibraryCall, part: Part) -> None:
        """A call whose results are memory of torch's; what nobody names is let go of at the end."""
        names = [name or f"{n} of {len(self.handles)}" for n, name in enumerate(step.call.outputs)]
        for name in names:
            self.handles[name] = ("handle", len(self.handles))
        results = [part(self.handles[name]) for name in names]
        if self.hollow:
            for name, result in zip(names, results, strict=True):
                empty = part(self._entry(("library", EMPTY)))
                dims = self._layout_of(self.buffers[name], part)
                part.lines.append(f"anyshape_empty({empty}, {dims}, &{result});")
        elif step.returned:
            self._library_call(step, part, results)
        else:
            stack = ", ".join(self._stacked(kind, value, part) for kind, value in step.args)
            self._dispatch(step.function, "", stack, part)
            part.lines += [f"{result} = (void *)stack[{n}];" for n, result in enumerate(results)]
        for name, result in zip(step.call.outputs, results, strict=True):
            if name:
                pointer = self.pointers[name] = self._new_pointer_slot(name, -1)
                self.late.add(pointer)
                self.roots[pointer] = name
                functions = ", ".join(part(self._entry(("library", symbol))) for symbol in RESULT)
                dims = self._layout_of(self.buffers[name], part)
                given = f"{functions}, {dims}, &{result}, &{part(pointer)}"
                part.lines.append(f"if (anyshape_result({given})) return {LIBRARY_FAILED};")

    def _layout_of(self, buffer: Buffer, part: Part) -> str:
        """A buffer's type, device and dimensions, as torch's C functions are told them."""
        shape, strides = (self._array(dims, part) for dims in (buffer.shape, buffer.strides))
        dtype = part(self._dtype(buffer.dtype))
        return f"{dtype}, {self.device}, {len(buffer.shape)}, {shape}, {strides}"

    def _dispatch(self, operator: str, overload: str, stack: str, part: Part) -> None:
        """The operator by its name, on a stack of values that the dispatcher takes over."""
        call = part(self._entry(("library", DISPATCH)))
        part.lines += [
            f"unsigned long stack[] = {{{stack}}};",
            f"if (((int (*)(const char *, const char *, unsigned long *)){call})"
            f'("{operator}", "{overload}", stack)) return {LIBRARY_FAILED};',
        ]

    def _stacked(self, kind: str, value: object, part: Part) -> str:
        if value is None:
            return "0"
        if isinstance(value, TensorArg):
            share = part(self._entry(("library", SHARE)))
            text = f"anyshape_share({share}, {self._tensor(value, part)})"
        else:
            number = self._number(value, part)
            text = f"anyshape_bits({number})" if kind.startswith("float") else number
        if kind.endswith("?"):
            is_plain = not is_exported(SOME)
            new = part(self._entry(("library", NEW if is_plain else SOME)))
            return f"anyshape_some({new}, {int(is_plain)}, {text})"
        return text

    def _tensor(self, tensor: TensorArg, part: Part) -> str:
        """A handle on the memory, made at its first use and kept until the memory dies."""
        buffer = self.buffers[tensor.buffer]
        pointer = self.pointers[tensor.buffer]
        dims = (*tensor.shape, *tensor.strides)
        if pointer[0] == "table" and all(isinstance(dim, int) for dim in dims):
            _, constant = list(self.table)[pointer[1]]
            return part(self._entry(("tensor", (constant, tensor.shape, tensor.strides))))
        key = (self.roots.get(pointer, ""), pointer, *dims, len(tensor.shape), buffer.dtype)
        if key not in self.blobs:
            self.blobs[key] = ("blob", len(self.blobs)), sum(self.cells)
            self.cells.append(2 + len(dims))
        slot, at = self.blobs[key]
        cells = self._cells()
        given = [part(cells), part(self._pointer_slot(cells, self.numbers.index(at * WORD)))]
        given += [part(self._entry(("library", name))) for name in (DELETE, FROM_BLOB)]
        given += [part(self._dtype(buffer.dtype)), self.device, part(pointer)]
        given += [str(len(tensor.shape))]
        given += [self._array(dims, part) for dims in (tensor.shape, tensor.strides)]
        self._touch(tensor.buffer, tensor.shape, tensor.strides, part)
        handle = part(slot)
        made = f"anyshape_blob({', '.join(given)}, &{handle})"
        part.lines.append(f"if (!{handle} && {made}) return {LIBRARY_FAILED};")
        return handle

    def _cells(self) -> Slot:
        """The entry of what is kept from one call to the next."""
        return self._entry(("kept", self.number))

    def _free(self, step: Free, part: Part) -> None:
        """What torch allocated."""
        for name in step.buffers:
            if name in self.handles:
                delete = part(self._entry(("library", DELETE)))
                there = part(self.handles[name])
                part.lines.append(f"if ({there}) ((int (*)(void *)){delete})({there});")
                part.lines.append(f"{there} = 0;")

    def _touch(
        self, buffer: str, shape: tuple[Dim, ...], strides: tuple[Dim, ...], part: Part
    ) -> None:
        if self.separate:
            dims = f"{len(shape)}, {self._array(shape, part)}, {self._array(strides, part)}"
            width = self.buffers[buffer].dtype.size_bytes
            pointer = part(self.pointers[buffer])
            part.lines.append(f"anyshape_touch({pointer}, {width}, {dims});")

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
