"""Operators without a row: typed by torch's own meta kernels, run eagerly inside the graph.

In: any torch callable with proxies among its arguments. Out: proxies of its results, and a node
of a row made on the fly. The meta kernel runs at several assignments of the sizes that satisfy
the facts; each size of a result must be one expression that explains all of them (a constant, a
size of an argument, an affine function of one symbol, a product or sum of two), else the call
is a graph break.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from anyshape.capture.breaks import broken
from anyshape.capture.tensors import DTYPE_OF_TORCH, TORCH_OF_DTYPE
from anyshape.ir.dtypes import DType
from anyshape.ir.graph import TensorType, Value
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.layout import contiguous_strides, strides_in_order
from anyshape.ops.table import OPS, OpDef, Signature, add_row
from anyshape.symbolic import Dim, Expr, Symbol, evaluate

if TYPE_CHECKING:
    from anyshape.capture.symbolic_domain import SymbolicDomain

NAMESPACES = (
    "torch", "torch.Tensor", "torch.special", "torch.linalg", "torch.fft", "torch.nn.functional",
    "torch._C._nn", "torch._C._VariableFunctions",
)  # fmt: skip
RANDOM = (
    "rand",
    "bernoulli",
    "multinomial",
    "normal",
    "dropout",
    "poisson",
    "exponential",
    "uniform",
)
SAMPLES = 6
SIZES = (3, 5, 7, 4, 9, 2)


def _names() -> dict[Any, str]:
    """Dotted text of every callable in torch's public namespaces."""
    found: dict[Any, str] = {}
    for namespace in NAMESPACES:
        owner: Any = torch
        for part in namespace.split(".")[1:]:
            owner = getattr(owner, part)
        for name in dir(owner):
            if name.startswith("__"):
                continue
            value = getattr(owner, name, None)
            if callable(value) and not isinstance(value, type):
                try:
                    found.setdefault(value, f"{namespace}.{name}")
                except TypeError:
                    continue
    return found


NAMES = _names()


def dotted_name(fn: Any) -> str | None:
    """Dotted text that resolves to the callable, also for `torch.ops`."""
    packet = getattr(fn, "_qualified_op_name", None)
    if packet is not None:
        return "torch.ops." + str(packet).replace("::", ".")
    if isinstance(fn, torch._ops.OpOverload):
        return f"torch.ops.{fn.namespace}.{fn._schema.name.split('::')[1]}.{fn._overloadname}"
    return NAMES.get(fn)


def eager_call(
    domain: SymbolicDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Records `fn(*args, **kwargs)` as a node of a row made on the fly."""
    name = dotted_name(fn)
    shown = name or getattr(fn, "__qualname__", str(fn))
    if name is None:
        raise broken("unknown-call", shown)
    if name.rstrip("_") != name and not name.endswith("__"):
        raise broken("operator-unknown", what=shown, why="it writes in place")
    from_domain = (
        domain.arguments(args),
        {key: domain.argument(value) for key, value in kwargs.items()},
    )
    row = row_for(fn, name, len(args), tuple(kwargs))
    try:
        return domain.recorder.wrap(
            domain.recorder.call(row.name, *from_domain[0], **from_domain[1])
        )
    except OpError as error:
        raise broken("operator-unknown", what=shown, why=str(error)) from None


def row_for(fn: Any, name: str, count: int, keywords: tuple[str, ...]) -> OpDef:
    """The row for calls of this form; made once."""
    key = f"{name}({count}{''.join(',' + k for k in keywords)})"
    row = OPS.get(key)
    if row is None:
        positional = [f"a{i}" for i in range(count)]
        signature = Signature.parse(
            ", ".join([*positional, *(["*", *keywords] if keywords else [])])
        )
        row = OpDef(
            key,
            signature,
            name,
            type=lambda cx, *args, **kwargs: infer(cx, fn, args, kwargs),
            random=any(word in name.rpartition(".")[2] for word in RANDOM),
            effect=True,  # nobody has said that it writes nothing
            alias="maybe",
        )
        _publish(row)
    return row


def _publish(row: OpDef) -> None:
    """The dotted name of a row made on the fly may be another's already."""
    try:
        add_row(row)
    except ValueError:
        pass


@dataclass(slots=True)
class _Observation:
    """What the meta kernel gave at one assignment of sizes."""

    sizes: dict[Symbol, int]
    results: list[torch.Tensor] = field(default_factory=list)


def infer(
    cx: TypeContext, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """The type, or tuple of types, of the results; `OpError` where torch refuses or no
    expression fits."""
    values = list(_values(args)) + list(_values(tuple(kwargs.values())))
    symbols = sorted(
        {s for v in values for d in (*v.shape, *v.tensor.strides) for s in _symbols(d)},
        key=lambda s: s.name,
    )
    device = values[0].tensor.device if values else cx.default_device
    seen: list[_Observation] = []
    single = True
    for sizes in itertools.islice(_assignments(cx, symbols), SAMPLES):
        try:
            made = _run(fn, args, kwargs, sizes)
        except OpError:
            if not seen:  # the example sizes themselves
                raise
            continue  # sizes that torch refuses: it will refuse them at run time too
        single = isinstance(made, torch.Tensor)
        results = [made] if single else list(made) if isinstance(made, (tuple, list)) else None
        if results is None or not all(isinstance(r, torch.Tensor) for r in results):
            raise OpError("it does not return tensors")
        seen.append(_Observation(sizes, results))
    if not seen:
        raise OpError("no sizes satisfy what is known")
    if len({len(o.results) for o in seen}) != 1:
        raise OpError("the number of results depends on sizes")
    candidates = list(_candidates(values))
    types = tuple(
        _type(cx, [(o.sizes, o.results[i]) for o in seen], candidates, symbols, device)
        for i in range(len(seen[0].results))
    )
    return types[0] if single else types


def _values(args: Any) -> Iterator[Value]:
    if isinstance(args, Value):
        if isinstance(args.type, TensorType):
            yield args
    elif isinstance(args, (tuple, list)):
        for item in args:
            yield from _values(item)


def _symbols(dim: Dim) -> frozenset[Symbol]:
    return dim.symbols if isinstance(dim, Expr) else frozenset()


def _assignments(cx: TypeContext, symbols: list[Symbol]) -> Iterator[dict[Symbol, int]]:
    """Sizes that satisfy the facts: the hints first, then one symbol changed at a time, then
    all."""
    base = {s: cx.hints.get(s, 3) for s in symbols}
    known = [condition for condition, _ in cx.facts.all()]

    def good(sizes: dict[Symbol, int]) -> bool:
        everything = {**cx.hints, **sizes}
        try:
            return all(evaluate(c, everything) for c in known if c.symbols <= everything.keys())
        except (ZeroDivisionError, ValueError):
            return False

    tried = [base] + [{**base, s: base[s] + delta} for s in symbols for delta in (2, 5)]
    tried += [
        {s: SIZES[(i + shift) % len(SIZES)] * 8 for i, s in enumerate(symbols)}
        for shift in range(3)
    ]
    for sizes in tried:
        if good(sizes):
            yield sizes


def _run(
    fn: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], sizes: dict[Symbol, int]
) -> Any:
    made = [_concrete(a, sizes) for a in args]
    named = {k: _concrete(v, sizes) for k, v in kwargs.items()}
    try:
        with torch.no_grad():
            return fn(*made, **named)
    except Exception as error:
        raise OpError(str(error).partition("\n")[0]) from None


def _concrete(arg: Any, sizes: dict[Symbol, int]) -> Any:
    if isinstance(arg, Value) and isinstance(arg.type, TensorType):
        t = arg.type
        shape = [int(evaluate(d, sizes)) for d in t.shape]
        strides = [int(evaluate(d, sizes)) for d in t.strides]
        return torch.empty_strided(shape, strides, dtype=TORCH_OF_DTYPE[t.dtype], device="meta")
    if isinstance(arg, Expr):
        return int(evaluate(arg, sizes))
    if isinstance(arg, DType):
        return TORCH_OF_DTYPE[arg]
    if isinstance(arg, tuple):
        return tuple(_concrete(item, sizes) for item in arg)
    if arg is None or isinstance(arg, (bool, int, float, complex, str, slice)):
        return arg
    raise OpError(f"an argument of class {type(arg).__name__} has no value yet")


def _candidates(values: list[Value]) -> Iterator[Dim]:
    dims = list(dict.fromkeys(d for v in values for d in v.shape))
    yield from dims
    for a, b in itertools.combinations_with_replacement(dims, 2):
        yield a * b
        yield a + b
    for value in values:
        count: Dim = 1
        for d in value.shape:
            count = count * d
        yield count


def _fit(
    seen: list[tuple[dict[Symbol, int], int]], candidates: list[Dim], symbols: list[Symbol]
) -> Dim:
    first = seen[0][1]
    if all(size == first for _, size in seen):
        return first
    for candidate in candidates:
        if all(evaluate(candidate, sizes) == size for sizes, size in seen):
            return candidate
    for symbol in symbols:
        affine = _affine(seen, symbol)
        if affine is not None:
            return affine
    raise OpError("a size of its result is no simple function of its arguments' sizes")


def _affine(seen: list[tuple[dict[Symbol, int], int]], symbol: Symbol) -> Dim | None:
    points = sorted({(sizes[symbol], size) for sizes, size in seen})
    if len(points) < 3 or points[0][0] == points[1][0]:
        return None
    (x0, y0), (x1, y1) = points[:2]
    slope, rest = divmod(y1 - y0, x1 - x0)
    if rest or any(y - y0 != slope * (x - x0) for x, y in points):
        return None
    return symbol.expr * slope + (y0 - slope * x0)


def _type(
    cx: TypeContext,
    seen: list[tuple[dict[Symbol, int], torch.Tensor]],
    candidates: list[Dim],
    symbols: list[Symbol],
    device: str,
) -> TensorType:
    rank = seen[0][1].dim()
    if any(made.dim() != rank for _, made in seen):
        raise OpError("the rank of its result depends on sizes")
    dims = [
        _fit([(sizes, made.shape[d]) for sizes, made in seen], candidates, symbols)
        for d in range(rank)
    ]
    shape = tuple(cx.facts.simplify(d) if isinstance(d, Expr) else d for d in dims)
    dtype = DTYPE_OF_TORCH[seen[0][1].dtype]
    return TensorType(dtype, device, shape, _strides(cx, shape, seen, candidates, symbols))


def _strides(
    cx: TypeContext,
    shape: tuple[Dim, ...],
    seen: list[Any],
    candidates: list[Dim],
    symbols: list[Symbol],
) -> tuple[Dim, ...]:
    if all(made.is_contiguous() for _, made in seen):
        return contiguous_strides(cx, shape)
    sample = seen[-1][1]
    order = sorted(range(len(shape)), key=lambda d: (sample.stride(d), -d))
    dense = strides_in_order(shape, order)
    if all(tuple(int(evaluate(s, sizes)) for s in dense) == made.stride() for sizes, made in seen):
        return dense
    return tuple(
        _fit([(sizes, made.stride(d)) for sizes, made in seen], candidates, symbols)
        for d in range(len(shape))
    )
