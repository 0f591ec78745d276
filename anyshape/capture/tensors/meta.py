"""Operators without a row: typed by torch's own meta kernels, run eagerly inside the graph.

In: any torch callable with proxies among its arguments. Out: proxies of its results, and a node
of a row made on the fly. The meta kernel runs at several assignments of sizes; a size of a result
is an expression that explains all of them (a constant, a size of an argument, a function of one
symbol, a product or sum of two), else a fresh symbol that the call itself decides; so is what
the program's own description of an operator (`torch.library.register_fake`) says that data
decides. What was
guessed is tested at each call (`OpDef.guessed`), so that a wrong guess is never a wrong result.
What writes an argument becomes torch's own form of it that does not, and a copy; what views one
is a graph break.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from anyshape.capture.guards.execution_modes import AutocastOff
from anyshape.capture.guards.no_alias import storage_of
from anyshape.capture.guards.overlaps import refuse_out
from anyshape.capture.guards.tensor_specs import DTYPE_OF_TORCH, TORCH_OF_DTYPE
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import Break, TensorValue
from anyshape.capture.python.recorded_warnings import recorded
from anyshape.capture.recording import gradients
from anyshape.capture.recording.autocast import without_autocast
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.tensors.aliases import memory_classes
from anyshape.capture.tensors.aten_schemas import is_random, sparse_options
from anyshape.capture.tensors.explained_sizes import candidates_of, explained
from anyshape.capture.tensors.fake_impl import DataDecides, made_by_description
from anyshape.capture.tensors.functional import (
    Writer,
    gives_only_what_it_writes,
    times_written,
    twin_of,
    writer_of,
    writes_nothing,
    written_types,
)
from anyshape.capture.tensors.leaves import decided_flag
from anyshape.capture.tensors.outs import all_or_nothing, into, write
from anyshape.custom_operators import Functional, is_written, written_names
from anyshape.interrupts import is_interrupt
from anyshape.ir.dtypes import DType
from anyshape.ir.graph import TensorType, Value, values_in
from anyshape.nouns import mutable
from anyshape.ops.context import NoRow, OpError, TypeContext
from anyshape.ops.layout import contiguous_strides, strides_in_order
from anyshape.ops.linear.recurrent import RECURRENT
from anyshape.ops.shared_memory import STORAGE_COPIES
from anyshape.ops.table import OPS, OpDef, Signature, add_row
from anyshape.symbolic import (
    Dim,
    Expr,
    Symbol,
    evaluate,
)
from anyshape.torch_names import MEMORY_FORMATS

NAMESPACES = (
    "torch", "torch.Tensor", "torch.special", "torch.linalg", "torch.fft", "torch.nn.functional",
    "torch._C._nn", "torch._C._VariableFunctions",
)  # fmt: skip
FEW = 7
SAMPLES = 2 * FEW + 2
SIZES = (3, 5, 7, 4, 9, 2)
MOST_ELEMENTS = 1 << 20
LARGE = 32


@functools.cache
def _names() -> dict[Any, str]:
    """Dotted text of every callable in torch's public namespaces, but for what changes or asks
    torch's state: it is no operator, and would do so while its type is worked out."""
    found: dict[Any, str] = {}
    for namespace in NAMESPACES:
        owner: Any = torch
        for part in namespace.split(".")[1:]:
            owner = getattr(owner, part)
        for name in dir(owner):
            if name.startswith("__"):
                continue
            value = getattr(owner, name, None)
            about_state = getattr(value, "__self__", None) is torch._C
            if callable(value) and not isinstance(value, type) and not about_state:
                try:
                    found.setdefault(value, f"{namespace}.{name}")
                except TypeError:
                    continue
    return found


def dotted_name(fn: Any) -> str | None:
    """Dotted text that resolves to the callable, also for `torch.ops`."""
    if isinstance(fn, Functional):
        return str(fn)
    packet = getattr(fn, "_qualified_op_name", None)
    if packet is not None:
        return "torch.ops." + str(packet).replace("::", ".")
    if isinstance(fn, torch._ops.OpOverload):
        return f"torch.ops.{fn.namespace}.{fn._schema.name.split('::')[1]}.{fn._overloadname}"
    return _names().get(fn)


def eager_call(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Records `fn(*args, **kwargs)` as a node of a row made on the fly."""
    name = dotted_name(fn)
    shown = _shown(fn)
    if name is None:
        raise broken("unknown-call", shown)
    writer = None if isinstance(fn, Functional) else writer_of(fn, name)
    if writer is not None and writer.is_custom:
        return _custom_writing_call(domain, shown, writer.operator, args, kwargs)
    if kwargs.get("out") is not None and not isinstance(fn, Functional):
        rest = {k: v for k, v in kwargs.items() if k != "out"}
        read = [*values_in(domain.arguments((*args, *rest.values())))]
        for target in values_in(domain.argument(kwargs["out"])):
            refuse_out(domain.recorder.builder, shown, target, read, elementwise=False)
        with all_or_nothing(domain, kwargs["out"]), without_autocast(domain.recorder):
            made = eager_call(domain, fn, args, rest)
            return into(domain, shown, made, kwargs["out"])
    if writer is not None and not writes_nothing(writer, args, kwargs):
        return _writing_call(domain, shown, writer, args, kwargs)
    args = tuple([decided_flag(domain, arg) for arg in args])
    kwargs = {key: decided_flag(domain, arg) for key, arg in kwargs.items()}
    if any(on for on, _ in domain.recorder.modes.autocast) and _is_composed(name):
        raise broken("operator-unknown", what=shown, why="autocast casts what it is made of")
    from_domain = (
        domain.arguments(args),
        {key: domain.argument(value) for key, value in kwargs.items()},
    )
    row = row_for(fn, name, len(args), tuple(kwargs))
    try:
        made = domain.recorder.call(row.name, *from_domain[0], **from_domain[1])
    except Break as signal:
        if signal.what != row.name:
            raise
        why = str(signal.context.get("why", ""))
        raise broken(signal.reason, what=shown, why=why) from None
    if kwargs.get("requires_grad") is True:
        gradients.require(made)
    result = domain.recorder.wrap(made)
    flag, missing = UNDEFINED.get(name, (len(args), 0))
    if flag < len(args) and args[flag] is False:
        result = tuple(None if i == missing else r for i, r in enumerate(result))
    named = result_class(name) if isinstance(result, tuple) else None
    return named(result) if isinstance(named, type) else result


UNDEFINED: Mapping[str, tuple[int, int]] = {"torch._native_multi_head_attention": (10, 1)}
"""Operators that give None, where their meta kernel makes a tensor: which argument is False then,
and which result it is."""


def _is_composed(name: str) -> bool:
    """Is it an operator that torch computes by others, each of which autocast sees?"""
    *rest, last = name.removesuffix(".default").split(".")
    packets = (getattr(torch.ops.aten, n, None) for n in ("_".join((*rest[-1:], last)), last))
    found = next(filter(None, packets), None)
    names = [getattr(found, overload)._name for overload in found.overloads()] if found else []
    return any(
        torch._C._dispatch_has_kernel_for_dispatch_key(n, "CompositeImplicitAutograd")
        for n in names
        if torch._C._dispatch_has_kernel(n)  # some are of numbers, and no dispatcher knows them
    )


def _writing_call(
    domain: RecordingDomain,
    shown: str,
    writer: Writer,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """An operator that writes arguments, as one that does not, and copies into them."""
    twin = twin_of(writer, args, kwargs)
    if twin is None:
        raise broken("operator-unknown", what=shown, why="it writes in place")
    if domain.recorder.modes.grad and any(map(_requires, (*args, *kwargs.values()))):
        # autograd saves what it writes, and refuses gradients once that is written again
        raise broken("operator-unknown", what=shown, why="it writes in place, with gradients")
    made = eager_call(domain, twin.operator, args, kwargs)
    made = made if isinstance(made, tuple) else (made,)
    p = kwargs.get("p", args[1] if len(args) > 1 else None)
    times = times_written(writer.name.removesuffix("_"), p)
    for position, new in [*zip(twin.written, made[twin.results :], strict=True)] * times:
        write(domain, shown, args[position], new)
    if twin.returns_written:
        return args[twin.written[0]]
    return made[0] if twin.results == 1 else made[: twin.results]


def _requires(argument: Any) -> bool:
    return isinstance(argument, TensorValue) and argument.value.tensor.requires_grad


def _custom_writing_call(
    domain: RecordingDomain,
    shown: str,
    operator: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """An operator of the program's own that writes arguments: it writes copies of them, which
    then are copied back."""
    given = dict(zip((p.name for p in operator._schema.arguments), args)) | kwargs
    written = [given[n] for n in written_names(operator) if given.get(n) is not None]
    if not all(type(x) is TensorValue for x in written):
        raise broken("operator-unknown", what=shown, why="it writes a list of tensors")
    classes = memory_classes(domain.recorder)
    used = [classes.of(value) for value in _values(domain.arguments((*args, *kwargs.values())))]
    if any(used.count(classes.of(x.value)) > 1 for x in written):
        raise broken("operator-unknown", what=shown, why="it writes what it also reads elsewhere")
    path = (operator.namespace, operator._schema.name.split("::")[1], operator._overloadname)
    made = eager_call(domain, Functional(path), args, kwargs)
    made = made if isinstance(made, tuple) else (made,)
    for x, new in zip(written, made[len(made) - len(written) :], strict=True):
        write(domain, shown, x, new)
    own = iter(made)
    results = tuple(
        _argument_of(operator, r, given) if is_written(r) else next(own)
        for r in operator._schema.returns
    )
    return results if len(results) > 1 else results[0] if results else None


def _argument_of(operator: Any, result: Any, given: Mapping[str, Any]) -> Any:
    """The argument that a result is."""
    same = result.alias_info.before_set
    written = (p for p in operator._schema.arguments if is_written(p))
    return next(given[p.name] for p in written if p.alias_info.before_set == same)


def result_class(name: str) -> Any:
    """The named tuple that a function returns: `torch.return_types.linalg_svd`."""
    *rest, last = name.split(".")
    spellings = ("_".join((*rest[-1:], last)), last, *rest[-1:])
    return next(filter(None, (getattr(torch.return_types, s, None) for s in spellings)), None)


def row_for(fn: Any, name: str, count: int, keywords: tuple[str, ...]) -> OpDef:
    """The row for calls of this form; made once."""
    key = "_".join([name.replace(".", "_"), str(count), *keywords])
    row = OPS.get(key)
    if row is None:
        options = sparse_options(name)
        positional = [options.get(i, f"a{i}") for i in range(count)]
        signature = Signature.parse(
            ", ".join([*positional, *(["*", *keywords] if keywords else [])])
        )
        rule = written_types if gives_only_what_it_writes(fn) else _known_or_inferred(name)
        row = OpDef(
            key,
            signature,
            name,
            type=lambda cx, *args, **kwargs: rule(cx, fn, args, kwargs),
            random=is_random(name),
            guessed=True,
            copies_storage=not STORAGE_COPIES.isdisjoint(name.split(".")),
            differentiable="requires_grad" not in keywords and not _is_constant(name),
        )
        _publish(row)
    return row


def _known_or_inferred(name: str) -> Callable[..., Any]:
    """The rule written for a function, and ``infer`` where there is none or it does not know."""
    known = RECURRENT.get(name)
    if known is None:
        return infer

    def rule(
        cx: TypeContext, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        try:
            return known(cx, *args, **kwargs)
        except NoRow:
            return infer(cx, fn, args, kwargs)

    return rule


CONSTANTS = frozenset({"new_tensor"})
"""Operators without a row of their own that never require gradients, whatever they are made of."""


def _is_constant(name: str) -> bool:
    """Do its results not depend on the elements of its arguments, as those of other forms of it?"""
    known = name.rpartition(".")[2]
    return known in CONSTANTS or (known in OPS and not OPS[known].differentiable)


def _publish(row: OpDef) -> None:
    """The dotted name of a row made on the fly may be another's already."""
    try:
        add_row(row)
    except ValueError:
        pass


@mutable
class _Observation:
    """What the meta kernel gave at one assignment of sizes."""

    sizes: dict[Symbol, int]
    results: list[torch.Tensor] = field(default_factory=list)


def infer(
    cx: TypeContext, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """The type, or tuple of types, of the results; `OpError` where torch refuses, or the rank or
    number of results depends on sizes; a graph break where a result views an argument."""
    values = list(_values((*args, *kwargs.values())))
    numbers = [a for a in _leaves((*args, *kwargs.values())) if isinstance(a, Expr)]
    dims = [*numbers, *(d for v in values for d in (*v.shape, *v.tensor.strides))]
    symbols = sorted(
        {s for d in dims for s in _symbols(cx.facts.simplify(d))}, key=lambda s: s.index
    )
    seen: list[_Observation] = []
    asked: set[tuple[int, ...]] = set()
    refusals: list[OpError] = []
    single = True
    for sizes in _assignments(cx, symbols, refusals):
        if len(seen) == SAMPLES:
            break
        if (chosen := (*sizes.values(),)) in asked:
            continue  # it would answer as before
        data = DataDecides(len(seen))
        try:
            made = _run(cx, fn, args, kwargs, sizes, data)
            asked.update(() if data.is_asked else (chosen,))
        except OpError as error:
            if not seen and all(s in cx.hints for s in symbols):  # the example sizes themselves
                raise
            refusals.append(error)
            continue  # sizes that torch refuses: it will refuse them at run time too
        single = isinstance(made, torch.Tensor)
        results = [made] if single else list(made) if isinstance(made, (tuple, list)) else None
        if results is None or not all(isinstance(r, torch.Tensor) for r in results):
            raise NoRow("it does not return tensors")
        seen.append(_Observation(sizes, results))
    if not seen:
        raise refusals[-1] if refusals else OpError("no sizes satisfy what is known")
    if len({len(o.results) for o in seen}) != 1:
        raise NoRow("the number of results depends on sizes")
    return _types(cx, values, kwargs, seen, symbols, single)


def _types(
    cx: TypeContext,
    values: list[Value],
    kwargs: Mapping[str, Any],
    seen: list[_Observation],
    symbols: list[Symbol],
    single: bool,
) -> Any:
    """One type for each result, from what was seen of it."""
    device = kwargs.get("device") or (values[0].tensor.device if values else cx.default_device)
    candidates = list(candidates_of(values))
    types = tuple(
        _type(cx, [(o.sizes, o.results[i]) for o in seen], candidates, symbols, device)
        for i in range(len(seen[0].results))
    )
    return types[0] if single else types


def _leaves(args: Any) -> Iterator[Any]:
    if isinstance(args, (tuple, list)):
        for item in args:
            yield from _leaves(item)
    else:
        yield args


def _values(args: Any) -> Iterator[Value]:
    for leaf in _leaves(args):
        if isinstance(leaf, Value) and isinstance(leaf.type, TensorType):
            yield leaf


def _symbols(dim: Dim) -> frozenset[Symbol]:
    return dim.symbols if isinstance(dim, Expr) else frozenset()


def _assignments(
    cx: TypeContext, symbols: list[Symbol], refusals: Sequence[OpError]
) -> Iterator[dict[Symbol, int]]:
    """Sizes within what is known of each symbol: the hints first, then the least of what has no
    more than a few, then one symbol at a time, so that no two of one hint are taken for each other,
    the symbols of one hint together, where the operator wants them equal, and all. Next to large
    hints only where smaller sizes were refused. Cost: linear in the symbols that are asked for,
    whatever else is known."""
    allowed = [_allowed(cx, s) for s in symbols]

    def fitted(wanted: Sequence[int]) -> dict[Symbol, int]:
        return {s: fit(size) for s, fit, size in zip(symbols, allowed, wanted, strict=True)}

    yield fitted([cx.hints.get(s, SIZES[i % len(SIZES)]) for i, s in enumerate(symbols)])
    base = [cx.hints.get(s, 3) for s in symbols]
    smaller = _smaller(base)
    for i, fit in enumerate(allowed):
        # all others are too large for it: another value tells such a size from a number
        if fit(0) != fit(base[i]) == fit(base[i] + 8):
            yield fitted([*smaller[:i], 0, *smaller[i + 1 :]])
    yield from map(fitted, _next_to(smaller))
    for scale in (8, 1, 4):
        yield fitted([_size_of_its_own(i, scale) * scale for i in range(len(symbols))])
    yield fitted([6] * len(symbols))
    if refusals and smaller != base:
        yield from map(fitted, _next_to(base))


def _smaller(sizes: Sequence[int]) -> list[int]:
    """Other sizes than large ones, equal where those are and in their order: what some meta
    kernels do takes time in proportion, as a recurrent layer's do each step."""
    large = {size: i for i, size in enumerate(sorted({n for n in sizes if n > LARGE}))}
    return [LARGE + 1 + 2 * large[size] if size in large else size for size in sizes]


def _next_to(base: list[int]) -> Iterator[list[int]]:
    if len(base) > FEW:
        return
    for delta in (2, 5):
        for i, size in enumerate(base):
            yield [*base[:i], size + delta, *base[i + 1 :]]
        for alike in sorted(set(base)) if len(set(base)) < len(base) else ():
            yield [size + delta if size == alike else size for size in base]


def _size_of_its_own(i: int, scale: int) -> int:
    """That of the i-th symbol: no two have the same."""
    return SIZES[(i + scale) % len(SIZES)] + 10 * (i // len(SIZES))


def _allowed(cx: TypeContext, symbol: Symbol) -> Callable[[int], int]:
    """The nearest value that bounds and divisibility of a symbol allow."""
    low, high = cx.facts.bounds(symbol.expr)
    step = cx.facts.divisor(symbol.expr)

    def fit(size: int) -> int:
        size = max(size, 0 if low is None else low)
        size = size if high is None else min(size, high)
        return size if step > MOST_ELEMENTS else -(-size // step) * step

    return fit


def _run(
    cx: TypeContext,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    sizes: dict[Symbol, int],
    data: DataDecides,
) -> Any:
    """What the meta kernel makes at these sizes; a graph break where it views or writes an
    argument. The modes that are on outside say nothing here: casts are nodes of their own, and
    inference tensors count no writes. What has no meta kernel may draw; the program's own numbers
    stay what they are."""
    with torch.inference_mode(False), AutocastOff(), torch.random.fork_rng(devices=[]):
        return _made_by_meta_kernel(cx, fn, args, kwargs, sizes, data)


def _made_by_meta_kernel(
    cx: TypeContext,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    sizes: dict[Symbol, int],
    data: DataDecides,
) -> Any:
    tensors: list[torch.Tensor] = []

    def new(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        tensors.append(torch.empty_strided(shape, strides, dtype=dtype, device="meta"))
        return tensors[-1]

    def number(dim: Dim) -> int:
        return number_at(cx.facts.simplify(dim), sizes)

    made = [value_at(a, number, new) for a in args]
    named = {k: value_at(v, number, new) for k, v in kwargs.items()}
    if "device" in named:
        named["device"] = "meta"
    versions = [tensor._version for tensor in tensors]
    try:
        with torch.no_grad(), torch.device("meta"), recorded():  # each call says it itself
            result = made_by_description(fn, made, named, data)
            if result is None:
                result = fn(*made, **named)
    except Exception as error:
        if is_interrupt(error):
            raise
        reason = _unmeasured(error)
        if reason is not None:
            raise broken("operator-unknown", what=_shown(fn), why=reason) from None
        raise OpError(str(error).partition("\n")[0]) from None
    if [tensor._version for tensor in tensors] != versions:
        raise broken("operator-unknown", what=_shown(fn), why="it writes an argument")
    storages = {storage_of(tensor) for tensor in tensors}
    results = [r for r in _leaves(result) if isinstance(r, torch.Tensor)]
    if any(r.layout is not torch.strided for r in results):
        raise broken("operator-unknown", what=_shown(fn), why="its result is not strided")
    own = {storage_of(r) for r in results}
    if any(r.is_conj() or r.is_neg() for r in results):  # `ifft` of real numbers
        raise broken("operator-unknown", what=_shown(fn), why="eager conjugates it when read")
    if len(own) < len(results) or not own.isdisjoint(storages):
        raise broken("operator-unknown", what=_shown(fn), why="its result is a view")
    return result


def _unmeasured(error: Exception) -> str | None:
    """Why torch cannot say what the operator makes, where it does not refuse the arguments."""
    text = str(error)
    if isinstance(error, NotImplementedError):
        return "torch has no meta kernel that would say the sizes of its result"
    if "meta tensor" in text or "it's on meta" in text:
        return "it reads the values of its arguments to decide the sizes of its result"
    return None


def _shown(fn: Any) -> str:
    return dotted_name(fn) or str(getattr(fn, "__qualname__", fn))


MakeTensor = Callable[[Sequence[int], Sequence[int], torch.dtype], Any]
"""From a shape, strides and a dtype."""


def value_at(arg: Any, number: Callable[[Dim], int], new: MakeTensor) -> Any:
    """The argument at some sizes; `OpError` where it has none there. `number`: of a size."""
    if isinstance(arg, Value) and isinstance(arg.type, TensorType):
        t = arg.type
        shape, strides = [number(d) for d in t.shape], [number(d) for d in t.strides]
        if any(size < 0 for size in (*shape, *strides)):
            raise OpError("a size would be negative")
        return new(shape, strides, TORCH_OF_DTYPE[t.dtype])
    if isinstance(arg, Expr):
        return number(arg)
    if isinstance(arg, DType):
        return TORCH_OF_DTYPE[arg]
    if isinstance(arg, (tuple, list)):
        return tuple([value_at(item, number, new) for item in arg])
    if isinstance(arg, str) and arg in MEMORY_FORMATS:
        return getattr(torch, arg)
    if arg is None or isinstance(arg, (bool, int, float, complex, str, slice)):
        return arg
    raise NoRow("a number that it is given is known only at run time")


def number_at(dim: Dim, sizes: Mapping[Symbol, int]) -> int:
    """The number that a size is; `OpError` at sizes that the program has excluded."""
    try:
        return int(evaluate(dim, sizes)) if isinstance(dim, Expr) else dim
    except (ValueError, ZeroDivisionError) as error:
        raise OpError(str(error)) from None


def _type(
    cx: TypeContext,
    seen: list[tuple[dict[Symbol, int], torch.Tensor]],
    candidates: list[Dim],
    symbols: list[Symbol],
    device: str,
) -> TensorType:
    rank = seen[0][1].dim()
    if any(made.dim() != rank for _, made in seen):
        raise NoRow("the rank of its result depends on sizes")
    if len({made.dtype for _, made in seen}) > 1:
        raise NoRow("the dtype of its result depends on sizes")
    dims = [
        explained([(sizes, made.shape[d]) for sizes, made in seen], candidates, symbols)
        for d in range(rank)
    ]
    shape = tuple(cx.fresh_size() if d is None else cx.facts.simplify(d) for d in dims)
    dtype = DTYPE_OF_TORCH[seen[0][1].dtype]
    return TensorType(dtype, device, shape, _strides(cx, shape, seen))


def _strides(
    cx: TypeContext, shape: tuple[Dim, ...], seen: list[tuple[dict[Symbol, int], torch.Tensor]]
) -> tuple[Dim, ...]:
    """Dense strides in the order that was seen."""
    if all(made.is_contiguous() for _, made in seen):
        return contiguous_strides(cx, shape)
    sample = max((made for _, made in seen), key=torch.Tensor.numel)
    order = sorted(range(len(shape)), key=lambda d: (sample.stride(d), -d))
    for _, made in seen:
        if made.stride() != strides_in_order(tuple(made.shape), order):
            raise NoRow("the strides of its result depend on sizes")
    return strides_in_order(shape, order)
