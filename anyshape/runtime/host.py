"""A program as one straight-line Python function: sizes, buffers, launches, calls, checks.

In: a ``Program`` and the name of each kernel. Out: ``HostCode``: text that defines ``run`` and the
objects it needs by name (dotted functions, dtypes), to be resolved by ``runtime.launch``. Pointers
and sizes are computed once, at their first use; memory is freed by ``del`` where the program says
so.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Set
from dataclasses import field
from types import MappingProxyType
from typing import Any

from anyshape.ir.buffers import Buffer, BufferRef, SizeInMemory, StepArg
from anyshape.ir.code import HostCode, Reference, RegionNames, flag_address
from anyshape.ir.dtypes import DType, uint8
from anyshape.ir.loops import Kernel
from anyshape.ir.program import (
    Allocate,
    Assertion,
    Assign,
    BindItem,
    BindNumber,
    BindSize,
    Body,
    Branch,
    BumpVersion,
    Call,
    CheckStep,
    CountedCall,
    EagerCall,
    ExternCall,
    Free,
    KeepSize,
    Launch,
    LaunchList,
    Loop,
    NativeRegion,
    Program,
    Step,
    View,
    ViewCall,
)
from anyshape.ir.scalars import Operand, Scalar, ScalarInput, render_scalar
from anyshape.ir.step_labels import bytes_moved
from anyshape.nouns import mutable, replace
from anyshape.runtime.profile import Launched
from anyshape.symbolic import (
    AllOf,
    Condition,
    Dim,
    Expr,
    NamedSums,
    Relation,
    Symbol,
    nested_parts,
    to_python,
)
from anyshape.symbolic.sums import DEEP, LONG


def emit_host(
    program: Program,
    kernel_names: Mapping[Kernel, str],
    region_names: Mapping[NativeRegion, RegionNames],
    allocators: Mapping[str, str] = MappingProxyType({"cpu": "anyshape.empty_cpu"}),
    *,
    profiled: bool = False,
    labels: Mapping[int, str] = MappingProxyType({}),
    launched: Launched | None = None,
) -> HostCode:
    """Prints the program as Python; the program's constants are free names of the text.

    ``allocators``: short ways to new memory on a device, as functions of shape, strides and dtype.
    ``profiled``: while a profiler records, a twin is called (see ``runtime/profile.py``);
    ``labels`` are what the twin calls its steps, by their identity; its launches are noted in
    ``launched``.
    """
    return _Printer(
        program, kernel_names, region_names, allocators, profiled, labels, launched
    ).emit()


@mutable(eq=False)
class _Printer:
    program: Program
    kernel_names: Mapping[Kernel, str]
    region_names: Mapping[NativeRegion, RegionNames]
    allocators: Mapping[str, str]
    profiled: bool
    labels: Mapping[int, str]
    launched: Launched | None
    lines: list[str] = field(default_factory=list)
    names: dict[str, Reference] = field(default_factory=dict)
    # What sizes are made of, once computed.
    subexpressions: dict[Dim, str] = field(default_factory=dict)
    sums: NamedSums[str] = field(default_factory=NamedSums)
    sizes: dict[str, str] = field(default_factory=dict)  # Python text -> local that holds it
    pointers: dict[str, str] = field(default_factory=dict)  # buffer -> local with its address
    bound: set[Symbol] = field(default_factory=set)
    numbers: frozenset[str] = frozenset()  # what is handed in by its own name
    read: set[str] = field(default_factory=set)  # buffers that steps take
    arena: NativeRegion | None = None  # whose memory was asked for last

    def emit(self) -> HostCode:
        head, lines, parameters = self.function("run")
        body = "\n".join(f"    {line}" for line in lines)
        return HostCode(f"{head}\n{body}\n", parameters, self.names)

    def function(self, name: str) -> tuple[str, list[str], tuple[str, ...]]:
        """The first line of the function that is the program, its body, and its parameters."""
        parameters = tuple(
            name
            for name in self.program.inputs
            if name not in self.program.buffers or self._role(name) != "constant"
        )
        if self.profiled:
            given = ", ".join(map(_local, parameters))
            twin = self._name("profiled", ("twin", None))
            # The profiler's flag and not its function: this is asked in every call.
            profiler = self._name("profiler", ("module", "torch.autograd.profiler"))
            self.lines.append(f"if {profiler}._is_profiler_enabled: return {twin}()({given})")
        self._bind_entry_sizes(parameters)
        for step in self.program.flat_steps():
            if not isinstance(step, (BindSize, BindItem, KeepSize)):  # which rely on no layout
                self.read.update(step.reads())
        called: Call | None = None  # whose strides are asserted once the sizes it made have names
        gone: set[str] = set()  # what was freed since then
        steps = self.program.steps
        asking = [step for step in steps if type(step) is NativeRegion and step.separate_slots]
        for at, step in enumerate(steps):
            if asking and isinstance(step, Allocate):
                self._arena_first(at)
            if isinstance(step, Free):
                gone |= {*step.buffers}
            elif called is not None and not isinstance(step, BindSize):
                self._restride(called, gone)
                called = None
            self._step(step)
            if isinstance(step, Call) and (step.restride or step.guessed):
                called = step
                gone.clear()
        if called is not None:
            self._restride(called, gone)
        outputs = "".join(f"{self._arg(output)}, " for output in self.program.outputs)
        self.lines.append(f"return ({outputs.rstrip()})" if outputs else "return ()")
        return f"def {name}({', '.join(map(_local, parameters))}):", self.lines, parameters

    def _role(self, name: str) -> str:
        return self.program.buffers[name].role

    def _bind_entry_sizes(self, parameters: tuple[str, ...]) -> None:
        """``s0, _, s1 = x.shape`` for the first argument that has each symbol as a whole size."""
        wanted = set(self.program.symbols)
        self.numbers |= {name for name in parameters if name not in self.program.buffers}
        self.bound.update(s for s in wanted if s.name in parameters)
        for name in parameters:
            buffer = self.program.buffers.get(name)
            if buffer is None:
                continue
            targets = []
            for dim in buffer.shape:
                symbol = dim.symbol if isinstance(dim, Expr) else None
                fresh = symbol in wanted and symbol not in self.bound
                targets.append(_local(symbol.name) if symbol is not None and fresh else "_")
                if symbol is not None and fresh:
                    self.bound.add(symbol)
            if any(target != "_" for target in targets):
                self.lines.append(f"{', '.join(targets)}, = {_local(name)}.shape")
        missing = sorted(symbol.name for symbol in wanted - self.bound)
        if missing:
            raise ValueError(f"no input gives a value to {', '.join(missing)}")

    def _step(self, step: Step) -> None:
        if not isinstance(step, KeepSize):
            self.bound.update(step.binds())
        label = self.labels.get(id(step))
        event = "" if label is None else self._event(step, label)
        first = len(self.lines)
        STATEMENTS[type(step)](self, step)
        if event:
            inside = [f"    {line}" for line in self.lines[first:]]
            self.lines[first:] = [f"with {event}:", *inside]

    def _event(self, step: Step, label: str) -> str:
        """What a profiler sees of the step."""
        if not isinstance(step, Launch) or self.launched is None:
            return f"{self._function('anyshape.record')}({label!r})"
        moved = bytes_moved(step, self.program)
        known = isinstance(moved, int) or self.bound.issuperset(moved.symbols)
        pairs = zip(step.kernel.params, step.args, strict=True)
        sizes = {param.name: arg for param, arg in pairs if isinstance(arg, (int, Expr))}
        given = ", ".join(f"{name!r}: {self._size(size)}" for name, size in sizes.items())
        record = self._name("launched", ("object", self.launched))
        variants = self._name(f"variants_{len(self.names)}", ("object", step.variants))
        size = self._size(moved) if known else None
        return f"{record}.record({label!r}, {size}, {variants}, {{{given}}})"

    def free(self, step: Free) -> None:
        for name in step.buffers:
            self.pointers.pop(name, None)
        self.lines.append(f"del {', '.join(map(_local, step.buffers))}")

    def bind_size(self, step: BindSize) -> None:
        symbol = _local(step.symbol.name)
        self.lines.append(f"{symbol} = {self._buffer(step.buffer)}.shape[{step.dim}]")

    def bind_item(self, step: BindItem) -> None:
        self.lines.append(f"{_local(step.target.name)} = {self._buffer(step.buffer)}.item()")

    def keep_size(self, step: KeepSize) -> None:
        """Kernels are handed where it is."""

    def bind_number(self, step: BindNumber) -> None:
        compute = self._function("anyshape.number")
        given = f"{step.function!r}, {self._arg(step.operands)}"
        self.lines.append(f"{_local(step.target.name)} = {compute}({given})")

    def bump_version(self, step: BumpVersion) -> None:
        if step.counted:
            self._write(self._function("anyshape.bump_version"), [self._buffer(step.buffer)])

    def assign(self, step: Assign) -> None:
        arguments = [self._buffer(step.target), *map(self._arg, step.args)]
        self._write(self._function(step.function), arguments)

    def allocate(self, step: Allocate) -> None:
        if step.over is not None:
            self.pointers[step.buffer] = self._pointer(step.over, 0)
            self.lines.append(f"{_local(step.buffer)} = {_local(step.over)}")
            return
        buffer = self.program.buffers[step.buffer]
        shape, steps = map(self._dims, buffer.allocated())
        if buffer.role != "temp" and buffer.in_rows():
            steps = self._row_steps(buffer.shape)
        call = self._empty(buffer.device, shape, steps, buffer.dtype)
        self.lines.append(f"{_local(step.buffer)} = {call}")

    def _empty(self, device: str, shape: str, steps: str, dtype: DType) -> str:
        """A call that gives new memory."""
        if device in self.allocators:
            short = self.allocators[device]
            empty = self._name(short.rpartition(".")[2], ("function", short))
            return f"{empty}({shape}, {steps}, {self._dtype(dtype)})"
        empty = self._name("empty_strided", ("function", "torch.empty_strided"))
        return f"{empty}({shape}, {steps}, dtype={self._dtype(dtype)}, device={device!r})"

    def _row_steps(self, shape: tuple[Dim, ...]) -> str:
        """Row-major strides as eager has them, which counts a size of 0 as 1."""
        steps = ["1"] if shape else []
        for size in reversed(shape[1:]):
            steps.append(self._times(steps[-1], size))
        return f"({''.join(f'{step}, ' for step in reversed(steps)).rstrip()})"

    def _steps_of_view(self, buffer: Buffer, base: Buffer) -> str:
        """Strides of a view as eager has them, to which a size of 0 of what is viewed is 1."""
        if buffer.in_rows():
            return self._row_steps(buffer.shape)
        sizes = {symbol for size in base.shape if isinstance(size, Expr) for symbol in size.symbols}

        def named(symbol: Symbol) -> str:
            local = self._symbol(symbol)
            return self._computed(f"({local} or 1)") if symbol in sizes else local

        def text(step: Dim) -> str:
            if isinstance(step, int) or sizes.isdisjoint(step.symbols):
                return self._size(step)
            return self._computed(to_python(step, named))

        return f"({''.join(f'{text(step)}, ' for step in buffer.strides).rstrip()})"

    def _times(self, step: str, size: Dim) -> str:
        if isinstance(size, int):
            if size <= 1 or step.isdigit():
                return step if size <= 1 else str(int(step) * size)
            return self._computed(f"{step}*{size}")
        whole = f"({self._size(size)} or 1)"
        return self._computed(whole if step == "1" else f"{step}*{whole}")

    def _computed(self, text: str) -> str:
        """The name of what the text computes, once."""
        if text not in self.sizes:
            self.sizes[text] = f"n{len(self.sizes)}_"
            self.lines.append(f"{self.sizes[text]} = {text}")
        return self.sizes[text]

    def launch(self, step: Launch) -> None:
        kernel = self.kernel_names[step.kernel]
        self.names[kernel] = ("kernel", kernel)
        args = []
        for parameter, arg in zip(step.kernel.params, step.args, strict=True):
            if isinstance(arg, BufferRef):
                args.append(self._pointer(arg.name, step.offsets.get(parameter.name, 0)))
            elif isinstance(arg, (Scalar, ScalarInput)):
                args.append(self._scalar(arg))
            elif isinstance(arg, (int, float, Expr)):
                args.append(self._size(arg) if isinstance(arg, Expr) else _number(arg))
            else:
                args.append(self._arg(arg))
        self.lines.append(f"{kernel}({', '.join(args)})")

    def launch_list(self, step: LaunchList) -> None:
        for launch in step.launches:
            self._step(launch)

    def region(self, step: NativeRegion) -> None:
        name, table, replayable = self.region_names[step]
        function, args = self._name(name, ("kernel", name)), []
        if replayable is not None:
            function = self._name(f"replays_of_{table}", ("replayed", (name, replayable)))
            args.append("arena[1]" if step.slot_sizes else "None")
        arena = "0" if step.separate_slots or not step.slot_sizes else "arena.data_ptr()"
        args += [self._name(table, ("table", table)), arena]
        own = ("constant", "flag")  # of the table
        args += [self._pointer(n, 0) for n in step.outer if self._role(n) not in own]
        if step.slot_sizes:
            if self.arena is not step:
                self._arena(step)
            if step.separate_slots:
                args.append("*arena[0]")
        args += [self._size(atom.expr) for atom in step.sizes]
        args += [self._scalar(scalar) for scalar in step.scalars]
        failed = self._name("native_region_failed", ("function", "anyshape.native_region_failed"))
        self.lines.append(f"if {function}({', '.join(args)}): {failed}()")
        if step.slot_sizes:
            self.lines.append("del arena")

    def _arena(self, region: NativeRegion) -> None:
        """Memory for the region's arena."""
        self.arena = region
        sizes = [self._largest(room) for room in region.slot_sizes]
        (device, *_) = (self.program.buffers[name].device for name in region.inner)
        if region.separate_slots:
            slots = self._name("slots", ("function", "anyshape.slots"))
            new = self._empty(device, "(size,)", "(1,)", uint8)
            given = f"{device!r}, lambda size: {new}, {', '.join(sizes)}"
            self.lines.append(f"arena = {slots}({given})")
        else:
            size = f"({' + '.join(sizes)},)"
            self.lines.append(f"arena = {self._empty(device, size, '(1,)', uint8)}")

    def _arena_first(self, at: int) -> None:
        """Where a region comes next that may ask for room (``runtime/arenas.py``), it does so
        before what outlives it is allocated, which then has that room, too."""
        steps = self.program.steps
        after = next(step for step in steps[at:] if not isinstance(step, Allocate))
        if isinstance(after, NativeRegion) and after.slot_sizes and after.separate_slots:
            if self.arena is not after:
                self._arena(after)

    def _largest(self, sizes: tuple[Dim, ...]) -> str:
        texts = [self._size(size) for size in sizes]
        return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"

    def _pointer(self, name: str, offset: Dim) -> str:
        local = self.pointers.get(name)
        if local is None:
            local = self.pointers[name] = f"{_local(name)}_p"
            role = self._role(name) if name in self.program.buffers else ""
            if role == "constant":
                self.names[local] = ("pointer", name)
            elif role == "flag":
                self.names[local] = flag_address(self.program.buffers[name])
            else:
                self.lines.append(f"{local} = {_local(name)}.data_ptr()")
        if isinstance(offset, int) and offset == 0:
            return local
        size_bytes = self.program.buffers[name].dtype.size_bytes
        return f"{local} + {self._size(offset * size_bytes)}"

    def _write(self, function: str, args: list[str]) -> None:
        """What cannot be done twice says so where it fails."""
        write = self._name("write", ("function", "anyshape.write"))
        self.lines.append(f"{write}({', '.join((function, *args))})")

    def call(self, step: Call) -> None:
        call = self._called(step)
        if step.guessed:  # it may return a tuple of one
            call = f"{self._name('parts', ('function', 'anyshape.parts'))}({call})"
        targets = [_local(name) if name else "_" for name in step.outputs]
        if not targets:
            self.lines.append(call)
        else:
            several = step.guessed or len(targets) > 1
            self.lines.append(f"{', '.join(targets)}{',' if several else ''} = {call}")
        if step.guessed:
            required = self._name("require_new_memory", ("function", "anyshape.require_new_memory"))
            given = sorted({*step.reads()})
            made = [target for target in targets if target != "_"]
            names = "".join(f"{name}, " for name in (*made, *map(self._buffer, given)))
            self.lines.append(f"{required}({len(made)}, ({names}))")

    def _called(self, step: Call | ViewCall) -> str:
        args = [self._arg(arg) for arg in step.args]
        args += [f"{name}={self._keyword(name, arg)}" for name, arg in step.kwargs.items()]
        return f"{self._function(step.function)}({', '.join(args)})"

    def _function(self, function: str) -> str:
        name = function.removeprefix("anyshape.").replace(".", "_")
        return self._name(name, ("function", function))

    def view(self, step: View) -> None:
        buffer = self.program.buffers[step.output]
        steps = self._steps_of_view(buffer, self.program.buffers[step.base])
        args = [self._buffer(step.base), self._dims(buffer.shape), steps]
        if step.offset != 0:
            args.append(self._size(step.offset))
        as_strided = self._function("torch.as_strided")
        self.lines.append(f"{_local(step.output)} = {as_strided}({', '.join(args)})")

    def view_call(self, step: ViewCall) -> None:
        self.lines.append(f"{_local(step.output)} = {self._called(step)}")

    def assertion(self, step: Assertion) -> None:
        condition = self._buffer(step.buffer)
        if step.deferred:
            site = repr(str(step.location or "an unknown line"))
            self.lines.append(f"{self._function('anyshape.trap_if')}({condition}, {site})")
        else:
            self.lines.append(f"{self._function('anyshape.check_false')}({condition})")

    def loop(self, step: Loop) -> None:
        self._nested("anyshape.eager.loop", step)

    def branch(self, step: Branch) -> None:
        self._nested("anyshape.eager.branch", step)

    def _nested(self, function: str, step: Loop | Branch) -> None:
        """The bodies become functions inside this one, which see the sizes that are known here."""
        given = [*map(self._arg, step.given), *map(self._body, step.bodies)]
        names = (*step.outputs, *(number.name for number in step.numbers))
        targets = "".join(f"{_local(name)}, " for name in names) or "_ "
        self.lines.append(f"{targets}= {self._function(function)}({', '.join(given)})")

    def _body(self, body: Body) -> str:
        inner = replace(
            self, program=body.program, profiled=False, lines=[], pointers={}, read=set()
        )
        inner.bound, inner.sizes = set(self.bound), dict(self.sizes)
        inner.subexpressions = dict(self.subexpressions)
        inner.sums = NamedSums(dict(self.sums.names))
        name = f"body{sum(line.startswith('def ') for line in self.lines)}_"
        head, lines, _ = inner.function(name)
        self.lines += [head, *(f"    {line}" for line in lines)]
        return name

    def _restride(self, step: Call, gone: Set[str]) -> None:
        """Results get the strides that they are to have; what was guessed of them is tested, and
        the shape of what other steps read, which rely on it."""
        name_of = "as_guessed" if step.guessed else "with_strides"
        function = self._name(name_of, ("function", f"anyshape.{name_of}"))
        for name in step.outputs:
            if not name or name in gone:
                continue
            buffer = self.program.buffers[name]
            rows = buffer.in_rows() and not step.guessed
            expected = [self._row_steps(buffer.shape) if rows else self._dims(buffer.strides)]
            if step.guessed or (name in self.read and self._is_bound(buffer.shape)):
                expected.append(self._dims(buffer.shape))
            if step.guessed:
                expected.append(self._dtype(buffer.dtype))
            self.lines.append(f"{_local(name)} = {function}({_local(name)}, {', '.join(expected)})")

    def _is_bound(self, shape: tuple[Dim, ...]) -> bool:
        sizes = (size for size in shape if isinstance(size, Expr))
        return all(symbol in self.bound for size in sizes for symbol in size.symbols)

    def check(self, step: CheckStep) -> None:
        failed = self._name("check_failed", ("function", "anyshape.check_failed"))
        condition = self._condition(step.condition)
        self.lines.append(f"if not ({condition}): {failed}({step.message!r})")

    def _condition(self, condition: Condition | bool) -> str:
        """Long sums in it are computed once, each from the one before."""
        match condition:
            case Relation() if len(condition.form.terms) > LONG or condition.form.depth > DEEP:
                left, sign, right = condition.sides()
                return f"{self._size(left)} {sign} {self._size(right)}"
            case AllOf():
                return " and ".join(f"({self._condition(part)})" for part in condition.parts)
            case _:
                return to_python(condition, self._symbol)

    def _keyword(self, name: str, arg: StepArg) -> str:
        if name == "memory_format" and isinstance(arg, str):
            return self._name(arg, ("function", f"torch.{arg}"))
        return self._arg(arg)

    def _arg(self, arg: StepArg) -> str:
        match arg:
            case BufferRef():
                return self._buffer(arg.name)
            case SizeInMemory():
                return self._pointer(arg.name, 0)
            case Expr():
                return self._size(arg)
            case Scalar() | ScalarInput():
                return self._scalar(arg)
            case DType():
                return self._dtype(arg)
            case tuple():
                return f"({''.join(f'{self._arg(item)}, ' for item in arg)})"
            case slice():
                parts = (self._arg(part) for part in (arg.start, arg.stop, arg.step))
                return f"slice({', '.join(parts)})"
            case float():
                return _number(arg)
            case bool() | int() | complex() | str() | None:
                return repr(arg)
            case _:  # a condition
                return f"({to_python(arg, self._symbol)})"

    def _buffer(self, name: str) -> str:
        local = _local(name)
        if name in self.program.buffers and self._role(name) == "constant":
            self.names[local] = ("constant", name)
        return local

    def _scalar(self, operand: Operand) -> str:
        self.names.setdefault("math", ("module", "math"))
        return render_scalar(operand, self._symbol, lambda scalar: _local(scalar.name))

    def _dims(self, dims: tuple[Dim, ...]) -> str:
        return f"({''.join(f'{self._size(dim)}, ' for dim in dims).rstrip()})"

    def _size(self, dim: Dim) -> str:
        """The size as a name or number; what takes computing is computed once."""
        if isinstance(dim, int):
            return repr(dim)
        for part in nested_parts(dim, self.subexpressions):
            self.subexpressions[part] = self._size(part)
        near = self.sums.split(dim)
        if near is None:
            text = self._text(dim)
        else:
            name, factor, rest = near
            multiple = name if factor == 1 else f"{factor}*{name}"
            text = multiple if rest == 0 else f"{multiple} + {self._text(rest)}"
        if text.isidentifier():
            return text
        if text not in self.sizes:
            self.sums.note(dim, self._computed(text))
        return self.sizes[text]

    def _symbol(self, symbol: Symbol) -> str:
        """The local that holds the size; no step has said in ``arguments`` that it needs others."""
        if symbol not in self.bound and symbol.name not in self.numbers:
            raise ValueError(f"{symbol.name} has no value behind {self.lines[-1:]}")
        return _local(symbol.name)

    def _text(self, dim: Dim) -> str:
        return to_python(dim, self._symbol, computed=self.subexpressions)

    def _dtype(self, dtype: DType) -> str:
        return self._name(f"dtype_{dtype.name}", ("dtype", dtype))

    def _name(self, name: str, reference: Reference) -> str:
        self.names[name] = reference
        return name


STATEMENTS: Mapping[type[Step], Callable[[_Printer, Any], None]] = {
    Allocate: _Printer.allocate,
    Free: _Printer.free,
    Launch: _Printer.launch,
    LaunchList: _Printer.launch_list,
    ExternCall: _Printer.call,
    CountedCall: _Printer.call,
    EagerCall: _Printer.call,
    View: _Printer.view,
    ViewCall: _Printer.view_call,
    Assign: _Printer.assign,
    Assertion: _Printer.assertion,
    Loop: _Printer.loop,
    Branch: _Printer.branch,
    BindSize: _Printer.bind_size,
    BindItem: _Printer.bind_item,
    KeepSize: _Printer.keep_size,
    BindNumber: _Printer.bind_number,
    CheckStep: _Printer.check,
    BumpVersion: _Printer.bump_version,
    NativeRegion: _Printer.region,
}
"""How each kind of step is printed; a ``LibraryCall`` stands in a native region only."""


def _local(name: str) -> str:
    """A Python identifier for a buffer or symbol."""
    text = name if name.isascii() and name.isidentifier() else re.sub(r"\W", "_", name)
    return f"{text}_" if keyword.iskeyword(text) or text == "_" else text


def _number(number: float) -> str:
    text = repr(number)
    return f"float('{text}')" if text in ("inf", "-inf", "nan") else text
