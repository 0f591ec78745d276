"""One case of one row against eager torch: its type rule, its expansion, its loop body, its index
map.

Every dimension of every tensor becomes a backed symbol whose hint is the size, so that a rule that
looks at a size instead of reasoning about it is caught. A dense layout is spelt in these symbols;
any other stride is a symbol of its own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import torch

from anyshape import reference
from anyshape.ir.dtypes import DTYPES, DType
from anyshape.ir.graph import ScalarType, TensorType, Value
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.context import TypeContext
from anyshape.ops.layout import strides_in_order
from anyshape.ops.rules import is_tensor, promoted
from anyshape.ops.table import Pointwise, View
from anyshape.passes.decompose import decompose
from anyshape.symbolic import Facts, Space, Symbol, evaluate, ge, le, lt
from tests.ops.elements import run_body

FORMATS = {
    torch.contiguous_format: "contiguous_format",
    torch.preserve_format: "preserve_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
}


class Expanding(Builder):
    """A builder that takes every row apart until only core rows and externs are left."""

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        row = self.ops[name]
        if row.expand is None or row.lower is not None:
            return super().call(name, *args, **kwargs)
        positional, keywords = row.signature.split(args, kwargs)
        if row.overload is not None:
            other = row.overload(*positional, **keywords)
            if other:
                return self.call(other, *positional, **keywords)
        if row.normalize is not None:
            positional, keywords = row.normalize(self.cx, *positional, **keywords)
        made = row.expand(self, *positional, **keywords)
        return super().call(name, *args, **kwargs) if made is NotImplemented else made


@dataclass
class Case:
    """A graph under construction together with the tensors that its inputs stand for."""

    builder: Builder
    tensors: list[Any] = field(default_factory=list)
    guards: list[Any] = field(default_factory=list)
    static: bool = False

    @classmethod
    def new(cls, kind: type[Builder] = Builder, *, static: bool = False) -> Case:
        space = Space()
        guards: list[Any] = []
        cx = TypeContext(space, Facts(space), {}, guards.append)
        return cls(kind(cx), [], guards, static)

    @property
    def hints(self) -> dict[Symbol, int]:
        return self.builder.cx.hints  # type: ignore[return-value]

    def size(self, hint: int, prefix: str = "s") -> Any:
        if self.static:
            return hint
        expr = self.builder.cx.space.fresh(prefix)
        self.hints[expr.symbol] = hint
        return expr

    def value(self, t: torch.Tensor) -> Value:
        shape = tuple(self.size(n) for n in t.shape)
        order = dense_order(t)
        if order is not None:
            strides = strides_in_order(shape, order)
        else:
            strides = tuple(n if n in (0, 1) else self.size(n, "t") for n in t.stride())
            self._ordered(t, strides)
        dtype = DTYPES[str(t.dtype).removeprefix("torch.")]
        made = self.builder.input(
            TensorType(dtype, "cpu", shape, strides), "argument", f"x{len(self.tensors)}"
        )
        self.tensors.append(t)
        return made

    def _ordered(self, t: torch.Tensor, strides: Any) -> None:
        """The order of the strides is a fact: capture guards it."""
        order = sorted(range(t.dim()), key=lambda d: (t.stride(d), -d))
        for inner, outer in zip(order, order[1:]):
            fact = le(strides[inner], strides[outer])
            if not isinstance(fact, bool):
                self.builder.cx.facts.assume(fact)

    def arg(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            return self.value(a)
        if isinstance(a, torch.dtype):
            return DTYPES[str(a).removeprefix("torch.")]
        if isinstance(a, torch.device):
            return str(a)
        if isinstance(a, torch.layout):
            return "strided"
        if isinstance(a, torch.memory_format):
            return FORMATS[a]
        if isinstance(a, (list, tuple)):
            return tuple(self.arg(item) for item in a)
        return a

    def call(self, name: str, args: Any, kwargs: Any) -> Any:
        made = self.builder.call(
            name, *[self.arg(a) for a in args], **{k: self.arg(a) for k, a in kwargs.items()}
        )
        return made

    def graph(self, made: Any) -> Any:
        return self.builder.finish(made if isinstance(made, tuple) else (made,))


def dense_order(t: torch.Tensor) -> list[int] | None:
    """The dimensions innermost first, where the tensor fills its memory."""
    order = sorted(range(t.dim()), key=lambda d: (t.stride(d), t.shape[d] != 1, -d))
    step = 1
    for d in order:
        if t.shape[d] != 1 and t.stride(d) != step:
            return None if t.numel() else list(reversed(range(t.dim())))
        step *= t.shape[d]
    if list(t.stride()) == list(torch.empty(t.shape).stride()) or t.is_contiguous():
        return list(reversed(range(t.dim())))
    return order


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def types_of(made: Any) -> list[Any]:
    return [v.type for v in flat(made)]


def clone(a: Any) -> Any:
    """A deep copy that keeps strides."""
    if isinstance(a, torch.Tensor):
        if not a.numel():
            return a.clone()
        extent = sum((n - 1) * s for n, s in zip(a.shape, a.stride())) + 1
        return a.as_strided((extent,), (1,)).clone().as_strided(a.shape, a.stride())
    if isinstance(a, (list, tuple)):
        return (
            type(a)(clone(i) for i in a) if type(a) in (list, tuple) else tuple(clone(i) for i in a)
        )
    return a


def type_problems(
    name: str, args: Any, kwargs: Any, eager: Any, *, static: bool = False
) -> str | None:
    """How the row's predicted types differ from eager's results, or None."""
    case = Case.new(static=static)
    made = case.call(name, args, kwargs)
    types = types_of(made)
    results = flat(eager)
    if len(types) != len(results):
        return f"{len(types)} results predicted, {len(results)} made"
    for t, result in zip(types, results):
        if isinstance(t, ScalarType):
            continue
        learnt = reference.Environment()
        learnt.sizes.update(case.hints)
        learnt.write(Value("r", t), result)
        problem = reference.type_problem(t, result, learnt.sizes)
        if problem:
            return problem
    return None


TOLERANCE = {
    torch.float64: (1e-10, 1e-10), torch.float32: (2e-5, 2e-5), torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2), torch.complex64: (1e-4, 1e-4), torch.complex128: (1e-9, 1e-9),
}  # fmt: skip


def same(ours: Any, theirs: Any, *, exact: bool = False) -> str | None:
    """How two results differ, or None. NaN equals NaN."""
    for a, b in zip(flat(ours), flat(theirs), strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b:
                return f"{a} != {b}"
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{tuple(a.shape)} != {b.dtype}{tuple(b.shape)}"
        rtol, atol = (0.0, 0.0) if exact else TOLERANCE.get(b.dtype, (0.0, 0.0))
        try:
            torch.testing.assert_close(
                a, b, rtol=rtol, atol=atol, equal_nan=True, check_stride=False
            )
        except AssertionError as error:
            return str(error).replace("\n", " ")
    return None


def expansion_problem(
    name: str, args: Any, kwargs: Any, eager: Any, *, ops: Any = OPS
) -> str | None:
    """How the fully expanded graph differs from eager in value, or in the type of a node inside."""
    case = Case.new()
    made = case.call(name, args, kwargs)
    graph = decompose(case.graph(made), ops)
    outputs = reference.run(graph, case.tensors, case.hints, check_types="shapes", ops=ops)
    return same(outputs, flat(eager))


def is_dtype(a: Any) -> bool:
    return isinstance(a, DType)


def body_problem(name: str, args: Any, kwargs: Any, eager: torch.Tensor) -> str | None:
    """How the row's loop body, run on whole tensors, differs from eager; None for rows without one."""
    case = Case.new(static=True)
    case.call(name, args, kwargs)
    if not case.builder.nodes or case.builder.nodes[-1].op != name or not case.tensors:
        return None
    node = case.builder.nodes[-1]
    row = OPS[node.op]
    if not isinstance(row.lower, Pointwise):
        return None
    read = reference.Environment()
    for declared, tensor in zip(case.builder.inputs, case.tensors):
        read.write(declared.value, tensor)
    plain = [read.read(a) for a in node.args]
    named = {k: read.read(v) for k, v in node.kwargs.items()}
    operands = [
        a for a in node.args if a is None or is_tensor(a) or isinstance(a, (int, float, bool))
    ]
    promoted_dtype = promoted(case.builder.cx, operands[:2])
    made = run_body(row, plain, named, node.output.dtype, promoted_dtype)
    return same(made.expand(eager.shape), eager)


def index_problem(name: str, args: Any, kwargs: Any, eager: torch.Tensor) -> str | None:
    """How a view's index map differs from what eager's view holds; None for rows that are no core view."""
    case = Case.new()
    case.call(name, args, kwargs)
    node = case.builder.nodes[-1] if case.builder.nodes else None
    if len(case.builder.nodes) != 1 or not isinstance(OPS[node.op].lower, View):
        return None
    if eager.numel() > 600:
        return None
    cx, source = case.builder.cx, case.tensors[0]
    at = tuple(cx.space.fresh("i") for _ in eager.shape)
    for i, size in zip(at, node.output.shape):
        for fact in (ge(i, 0), lt(i, size)):
            if not isinstance(fact, bool) and eager.numel():
                cx.facts.assume(fact)
    positions = OPS[node.op].lower.index(cx, at, node.args[0].type, *node.args[1:], **node.kwargs)
    for index in itertools.product(*(range(n) for n in eager.shape)):
        env = {**case.hints, **{e.symbol: i for e, i in zip(at, index)}}
        found = tuple(p if isinstance(p, int) else evaluate(p, env) for p in positions)
        ours, theirs = source[found], eager[index]
        if not torch.equal(ours, theirs) and not (ours != ours).all():
            return f"element {index} read from {found}"
    return None
