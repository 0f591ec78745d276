"""An operator's launches, recorded once for each kind of arguments and made again without it.

In: a function of tensors and numbers, as Triton kernels and torch's operators make it up. Out: the
same function. What it does follows from shapes, strides, dtypes, the lowest bits of addresses and
numbers: so its first call with such arguments is written down as Python that calls the same
operators of torch and the compiled kernels, with new addresses, and later calls run that. New
memory of which kernels alone are told is part of one allocation. A kernel is launched through
`launches.py`, which tells the `Recorder`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from anyshape.nouns import mutable

MOST_KINDS = 1024
"""Of arguments that are remembered."""
ALIGNMENT = 16
"""What Triton asks of an address."""
PLAIN = frozenset({Tensor, nn.Parameter})
SLOT_BYTES = 512
"""Parts of an allocation begin at multiples of it, as allocations do."""
STORAGE_OFFSET = 3
"""Where `as_strided` is told where the whole memory begins, which a kind does not say."""


class Replayed:
    """`function`, made again from what it did with such arguments before; it works on the current
    stream alone. `listening`: somebody wants to hear of Triton's launches, so that it must be
    called itself.
    """

    def __init__(
        self, function: Callable[..., Any], listening: Callable[[], bool] = lambda: False
    ) -> None:
        self.function, self.listening = function, listening
        self.plans: dict[tuple[object, ...], Callable[..., Any] | None] = {}

    def __call__(self, *arguments: Any) -> Any:
        kind = kind_of(arguments)
        if kind is None or self.listening():
            return self.function(*arguments)
        if kind in self.plans:
            return (self.plans[kind] or self.function)(*arguments)
        if len(self.plans) >= MOST_KINDS:
            self.plans.clear()
        with Recorder(arguments) as recorder:
            made = self.function(*arguments)
        self.plans[kind] = recorder.plan(made)
        return made


def kind_of(arguments: Sequence[Any]) -> tuple[object, ...] | None:
    """What decides how such arguments are worked on; None where a tensor is not a plain one, and
    under autocast, whose casts would be written down.
    """
    if torch._C._is_any_autocast_enabled():
        return None
    kind: list[object] = [current_device()]
    for value in arguments:
        cls = type(value)
        if cls in PLAIN:
            lowest = value.data_ptr() % ALIGNMENT
            kind += value.shape, value.stride(), value.dtype, lowest, value.get_device()
        elif isinstance(value, Tensor):
            return None
        else:
            kind += cls, value.hex() if cls is float else tuple(value) if cls is list else value
    return tuple(kind)


def current_device() -> int:
    """The number of the current GPU, -1 without one."""
    return torch._C._cuda_getDevice() if torch.cuda.is_initialized() else -1


def current_stream(device: int) -> int:
    return torch._C._cuda_getCurrentRawStream(device) if device >= 0 else 0


class Address:
    """Stands for a tensor where only its address is asked for."""

    __slots__ = ("address",)

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


def described(template: Any, address: int) -> Any:
    """A tensor descriptor like `template`, of other memory."""
    made = object.__new__(type(template))
    made.__dict__.update(template.__dict__)
    made.base = Address(address)
    return made


@mutable
class Line:
    """A statement and the names that it defines; whether nothing but views of memory are made, or
    new memory of so many bytes with nothing in it.
    """

    names: list[str]
    text: str
    is_view: bool = False
    new_bytes: int | None = None


@mutable
class Memory:
    """The tensor whose memory another one is part of, and how many bytes behind its begin."""

    name: str
    offset: int


@dataclass(eq=False)
class Recorder(TorchDispatchMode):
    """Writes down what is done with `arguments` until it is left."""

    arguments: Sequence[Any]
    lines: list[Line] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    memory: dict[int, Memory] = field(default_factory=dict)
    seen: list[Tensor] = field(default_factory=list)
    is_whole: bool = True

    def __post_init__(self) -> None:
        super().__init__()
        for number, value in enumerate(self.arguments):
            if isinstance(value, Tensor):
                self._meet(value, f"a{number}")

    def __torch_dispatch__(
        self, function: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        results = made if isinstance(made, (tuple, list)) else (made,)
        if function is torch.ops.aten.as_strided.default and len(args) > STORAGE_OFFSET:
            self.is_whole = False
        if not all(isinstance(result, Tensor) for result in results):
            self.is_whole = False
            return made
        given = ", ".join(self._texts(args, kwargs or {}))
        of = next((a for a in args if isinstance(a, Tensor)), None)
        views = [of is not None and is_view(result, of, function) for result in results]
        names = [self._meet(r, of=of if v else None) for r, v in zip(results, views, strict=True)]
        left = ", ".join(names) + ("," if isinstance(made, (tuple, list)) else "")
        text = f"{left} = {self._constant(function)}({given})"
        size = made.nbytes if function is torch.ops.aten.empty.memory_format else None
        self.lines.append(Line(names, text, all(views), size))
        return made

    def launched(self, compiled: Any, grid: Sequence[int], values: Sequence[Any]) -> None:
        """A kernel was launched with these values; Triton's own launcher has its address again."""
        run = self._constant(compiled.run)
        about = (compiled.function, compiled.packed_metadata, None, None, None)
        given = [*map(str, (*grid, 1, 1)[:3]), "stream", *map(self._text, about)]
        given += map(self._launch_text, values)
        self.lines.append(Line([], f"{run}({', '.join(given)})"))

    def plan(self, made: Any) -> Callable[..., Any] | None:
        """What does it again, and gives what `made` is; None where that is not known."""
        result = self._text(made)
        if not self.is_whole:
            return None
        given = ", ".join(f"a{n}" for n in range(len(self.arguments)))
        body = "".join(f"    {line}\n" for line in (*self._body(result), f"return {result}"))
        namespace = self.constants | {
            "current_stream": current_stream, "described": described, "new": torch.empty,
            "byte": torch.uint8, "where": self._where(),
        }  # fmt: skip
        text = f"def replay({given}):\n{body}"
        exec(compile(text, f"<replay of {len(self.lines)} steps>", "exec"), namespace)
        replay: Callable[..., Any] = namespace["replay"]
        return replay

    def _where(self) -> torch.device | None:
        return next((a.device for a in self.arguments if isinstance(a, Tensor)), None)

    def _body(self, result: str) -> Iterator[str]:
        """The statements: first the stream, then memory that only kernels are told of."""
        lines, used = self._live(result)
        unread = [s for s in lines if s.new_bytes is not None and s.names[0] not in used]
        offsets, end = {}, 0
        for line in unread:
            offsets[line.names[0]] = end
            end += -(-(line.new_bytes or 0) // SLOT_BYTES) * SLOT_BYTES
        yield f"stream = current_stream({current_device()})"
        if offsets:
            yield f"memory = new({end}, dtype=byte, device=where)"
            yield "begin = memory.data_ptr()"
        yield from (f"p_{name} = begin + {offset}" for name, offset in offsets.items())
        addressed = names_in(" ".join(line.text for line in lines), "p_")
        roots = sorted(addressed - offsets.keys())
        yield from (f"p_{name} = {name}.data_ptr()" for name in roots if name.startswith("a"))
        for line in lines:
            if line.names and line.names[0] in offsets:
                continue
            yield line.text
            yield from (f"p_{n} = {n}.data_ptr()" for n in line.names if n in roots and n[0] == "t")

    def _live(self, result: str) -> tuple[list[Line], set[str]]:
        """All lines but views that nothing uses, and the tensors that are used as such."""
        used: set[str] = names_in(result)
        kept: list[Line] = []
        for line in reversed(self.lines):
            if not line.is_view or used.intersection(line.names):
                used |= names_in(line.text.partition(" = ")[2] if line.names else line.text)
                kept.append(line)
        return kept[::-1], used

    def _meet(self, tensor: Tensor, name: str = "", of: Tensor | None = None) -> str:
        """The name of a tensor; `of`: it is part of the memory of that one."""
        if id(tensor) in self.names:
            return self.names[id(tensor)]
        name = name or f"t{len(self.names)}"
        self.seen.append(tensor)  # or its identity could be another's
        self.names[id(tensor)] = name
        known = self.memory.get(id(of)) if of is not None else None
        if of is None or known is None:
            self.is_whole = self.is_whole and of is None
            self.memory[id(tensor)] = Memory(name, 0)
        else:
            away = tensor.data_ptr() - of.data_ptr()
            self.memory[id(tensor)] = Memory(known.name, known.offset + away)
        return name

    def _texts(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[str]:
        yield from map(self._text, args)
        yield from (f"{name}={self._text(value)}" for name, value in kwargs.items())

    def _text(self, value: Any) -> str:
        if isinstance(value, Tensor):
            self.is_whole = self.is_whole and id(value) in self.names
            return self.names.get(id(value), "unknown")
        if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
            inside = ", ".join(map(self._text, value))
            return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * bool(value)})"
        if value is None or type(value) in (int, bool):
            return repr(value)
        return self._constant(value)

    def _launch_text(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return self._address(value)
        if isinstance(base := getattr(value, "base", None), Tensor):
            template = copy.copy(value)
            template.base = None
            return f"described({self._constant(template)}, {self._address(base)})"
        return self._text(value)

    def _address(self, tensor: Tensor) -> str:
        known = self.memory.get(id(tensor))
        if known is None:
            self.is_whole = False
            return "unknown"
        return f"p_{known.name} + {known.offset}"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name


def is_view(result: Tensor, of: Tensor, function: Any) -> bool:
    """Whether the operator gave part of the memory of its first tensor, and wrote nothing."""
    writes = any(a.alias_info and a.alias_info.is_write for a in function._schema.arguments)
    same = result.untyped_storage().data_ptr() == of.untyped_storage().data_ptr()
    return not writes and same and any(r.alias_info for r in function._schema.returns)


def names_in(text: str, before: str = "") -> set[str]:
    return set(re.findall(rf"\b{before}([at]\d+)\b", text))


def current_recorder() -> Recorder | None:
    """What writes down the launches of this thread."""
    mode = _get_current_dispatch_mode()
    return mode if isinstance(mode, Recorder) else None
