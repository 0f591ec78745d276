"""Types, layouts, containers and answers are eager's: tests made from torch's own listings of its
functions, its operators' schemas and its queries.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import (
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
    is_tensor_like,
)
from torch.testing._internal.common_methods_invocations import op_db

import anyshape
from tests.ops.database import samples_of
from tests.ops.facets import (
    differences,
    functions_with,
    numbered,
    outcome,
    positional,
    restored,
)

Program = Callable[..., Any]
pytestmark = pytest.mark.filterwarnings("ignore")


def compared(program: Program, *calls: tuple[Any, ...]) -> list[str]:
    """How one compiled program differs from eager in calls with these arguments."""
    fast, found = anyshape.compile(program), []
    for call in calls:
        theirs = outcome(program, copies(call))
        ours = outcome(fast, copies(call))
        found += [f"{shapes(call)}{text}" for text in differences(ours, theirs)]
    return found


def copies(call: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same layouts in memory of their own."""
    return tuple(relaid(a) if isinstance(a, Tensor) else a for a in call)


def relaid(a: Tensor) -> Tensor:
    whole = torch.empty(a.untyped_storage().nbytes() // a.element_size(), dtype=a.dtype)
    made = whole.set_(whole.untyped_storage(), a.storage_offset(), a.shape, a.stride())
    made.untyped_storage().copy_(a.untyped_storage())
    return made


def shapes(call: tuple[Any, ...]) -> list[Any]:
    return [(tuple(a.shape), a.stride()) if isinstance(a, Tensor) else a for a in call]


SIZES = [(2, 3), (3, 3), (1, 1), (0, 3), (2, 0), (17, 2)]
VECTORS = [(x,) for x in map(numbered, *zip(*SIZES))]

# ---- queries -------------------------------------------------------------------------------------
QUERIES = ("get_", "is_", "are_")
OWNERS = (torch, torch._C, torch.amp, torch.autograd, torch.backends.cuda)
ELSEWHERE = (
    "_get_model", "_get_mobile", "_get_module_info", "_get_schema", "_get_operation", "_get_cpp",
    "_get_tracing", "_get_value_trace", "_get_upgrader", "_get_operator", "_get_DTensor",
    "_get_file", "_get_custom", "_get_obj", "_is_key_in", "_get_constant", "_get_nested",
    "_get_cudnn_batch", "_get_tensor", "_get_caught", "_get_graph", "_get_function_stack",
    "_get_dispatch", "_get_sequence", "get_rng_state", "get_file_path", "_get_cuda_dep",
    "get_device_module",
)  # fmt: skip
"""Queries of files, of stacks and of counters: they say nothing of a mode."""
PLAIN = (bool, int, float, str, torch.dtype, torch.device, tuple, type(None))


def mode_queries() -> Iterator[tuple[str, Program]]:
    """Each query of torch that answers with something plain, asked with the arguments it takes."""
    seen = set()
    for owner, arguments in itertools.product(OWNERS, [(), ("cpu",), ("cuda",)]):
        for name in dir(owner):
            if not name.lstrip("_").startswith(QUERIES) or name.startswith(ELSEWHERE):
                continue
            fn = getattr(owner, name)
            with contextlib.suppress(Exception):
                if (fn, arguments) not in seen and isinstance(fn(*arguments), PLAIN):
                    yield f"{owner.__name__}.{name}{arguments}", functools.partial(fn, *arguments)
                seen.add((fn, arguments))


def set_warn_only(value: Any) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def warn_only() -> tuple[bool, bool]:
    only = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled(), only


def setting(get: Program, put: Program, value: Any) -> Program:
    return lambda: restored(get, put, value)


MODES: dict[str, Program] = {
    "none": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", torch.float16, cache_enabled=False),
    "autocast on GPUs": lambda: torch.autocast("cuda", torch.float16),
    "deterministic": setting(warn_only, set_warn_only, (True, True)),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    "device": lambda: torch.device("meta"),
    "attention": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    "dtype": setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "precision": setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
    "threads of autograd": lambda: torch.autograd.set_multithreading_enabled(False),
    "warnings": setting(torch.is_warn_always_enabled, torch.set_warn_always, True),
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "cudnn": lambda: torch.backends.cudnn.flags(enabled=False, benchmark=True),
    "debugging": setting(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 1),
    "views": lambda: torch.autograd._force_original_view_tracking(True),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_query_answers_as_eager_whoever_sets_the_mode(mode: str) -> None:
    queries = dict(mode_queries())
    assert len(queries) > 90

    def asked(x: Tensor) -> Any:
        return {name: query() for name, query in queries.items()}, x + 1

    def inside(x: Tensor) -> Any:
        with MODES[mode]():
            return asked(x)

    x = torch.ones(2)
    fast = anyshape.compile(asked)
    for context in (contextlib.nullcontext, MODES[mode], contextlib.nullcontext):
        with context():
            assert fast(x)[0] == asked(x)[0]
    assert anyshape.compile(inside)(x)[0] == inside(x)[0]


# ---- factories, and what takes a dtype -----------------------------------------------------------
def made_by(function: Program, arguments: list[Any], options: dict[str, Any]) -> Program:
    """What it makes of these, x instead of tensors."""

    def program(x: Tensor) -> Any:
        given = [x if a is None else a for a in arguments]
        made = function(*given, **options)
        return made.detach().fill_(1) if made.is_meta else made

    return program


def calls_of(parameter: str) -> Iterator[tuple[str, Program, list[Any]]]:
    for name, function, schema in functions_with(parameter):
        x = numbered(2, 3)
        arguments = positional(schema, x)
        if arguments is not None:
            yield name, function, [None if a is x else a for a in arguments]


FACTORIES = {name: call for name, *call in calls_of("pin_memory")}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_require_gradients_where_they_are_told_to(name: str) -> None:
    function, arguments = FACTORIES[name]
    options: dict[str, Any] = {"requires_grad": True}
    if "int" in name or "randperm" in name:
        options["dtype"] = torch.float32
    made = made_by(function, arguments, options)

    def without(x: Tensor) -> Any:
        with torch.no_grad():
            return made(x)

    for program in (made, without, lambda x: made(x).sum()):
        assert compared(program, *VECTORS[:2]) == []


def test_many_functions_are_factories() -> None:
    assert len(FACTORIES) > 30


CLASSES = {
    name: call
    for name, *call in calls_of("dtype")
    if name.endswith("of torch") or name.startswith("new_")
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_of_numbers_are_dtypes(name: str) -> None:
    function, arguments = CLASSES[name]
    for dtype in (int, float, bool, complex):
        assert compared(made_by(function, arguments, {"dtype": dtype}), *VECTORS[:2]) == []


CONVERSIONS: list[tuple[Any, ...]] = [
    *[(dtype,) for dtype in (int, float, bool, torch.int64, torch.float32)],
    *[("cpu", dtype) for dtype in (None, int, float, bool, torch.float32)],
    *[(torch.float32, *flags) for flags in itertools.product((False, True), repeat=2)],
    *[("cpu", torch.float32, *flags) for flags in itertools.product((False, True), repeat=2)],
    *[("cpu", int, *flags) for flags in itertools.product((False, True), repeat=2)],
    *[(torch.zeros(1, dtype=torch.int32), *flags) for flags in itertools.product((False, True))],
    *[(torch.device("cpu"),), (None, int), (None, None, False, True), ("cpu", None, True)],
]


@pytest.mark.parametrize("given", CONVERSIONS, ids=str)
def test_to_by_position(given: tuple[Any, ...]) -> None:
    assert compared(lambda x: (x.to(*given), x.to(*given) is x), *VECTORS) == []
    assert compared(lambda x: (x + 1).to(*given), *VECTORS) == []


# ---- memory formats ------------------------------------------------------------------------------
def pictures() -> Iterator[Tensor]:
    sizes = [(2, 3, 4, 5), (3, 3, 3, 3), (2, 2, 3, 1), (17, 2, 3, 2)]
    for shape in sizes:
        x = numbered(*shape)
        yield from (x, x.to(memory_format=torch.channels_last), x.permute(1, 0, 3, 2))
        yield from (x[:, :, ::2], x[:, :1].expand(shape), x.to(torch.float64))


FORMATTED = {
    name: call for name, *call in calls_of("memory_format") if name.endswith("of torch")
} | {
    f"Tensor.{name}": [getattr(Tensor, name), [None]]
    for name in "to contiguous float double half bfloat16 int long short char byte bool clone".split()
}


@pytest.mark.parametrize("name", FORMATTED)
@pytest.mark.parametrize(
    "wanted", [torch.contiguous_format, torch.channels_last, torch.preserve_format], ids=str
)
def test_memory_formats(name: str, wanted: torch.memory_format) -> None:
    function, arguments = FORMATTED[name]
    program = made_by(function, arguments, {"memory_format": wanted})
    assert compared(lambda x: program(x), *((x,) for x in pictures())) == []


# ---- containers ----------------------------------------------------------------------------------
def several(entry: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Samples of the operator that give a list or a tuple."""
    if torch.float32 not in entry.supported_dtypes("cpu"):
        return []
    found = []
    for sample in samples_of(entry, torch.float32, 2):
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(entry.op(*args, **kwargs), (list, tuple)):
                found.append((args, kwargs))
    return found


@functools.cache
def containers() -> dict[str, tuple[Program, list[Any]]]:
    """Operators with several results, as torch's functions and as operators of ATen."""
    found: dict[str, tuple[Program, list[Any]]] = {}
    for entry in op_db:
        samples = several(entry)
        if samples:
            found[entry.name] = (entry.op, samples)
            packet = getattr(torch.ops.aten, entry.name.replace(".", "_"), None)
            if packet is not None:
                found[f"aten {entry.name}"] = (packet, samples)
    return found


def test_lists_tuples_and_named_tuples() -> None:
    wrong = []
    for name, (function, samples) in containers().items():
        for args, kwargs in samples:
            program = lambda *args, function=function, kwargs=kwargs: function(*args, **kwargs)
            torch.manual_seed(0)
            try:
                theirs = program(*args)
            except Exception:
                continue
            torch.manual_seed(0)
            ours = anyshape.compile(program)(*args)
            wrong += [name] * (kinds(ours) != kinds(theirs))
    assert wrong == []
    assert len(containers()) > 80


def kinds(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value), [kinds(part) for part in value]
    return (type(value), value.dtype, value.shape) if isinstance(value, Tensor) else type(value)


# ---- objects that are nearly tensors -------------------------------------------------------------
class Overriding:
    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return 1


class Attributed:
    def __getattr__(self, name: str) -> Any:
        if name == "__torch_function__":
            return lambda *args: 1
        raise AttributeError(name)


class Plain:
    pass


class Subclass(torch.Tensor):
    pass


OBJECTS: dict[str, Any] = {
    **{repr(value): value for value in (None, 1, 1.5, True, 2j, "a", b"a", (1,), [1], {}, {1})},
    **{f"a {kind.__name__}": kind() for kind in (Overriding, Attributed, Plain, torch.Generator)},
    **{kind.__name__: kind for kind in (Overriding, Plain, Tensor, Subclass, torch.nn.Parameter)},
    "a parameter": torch.nn.Parameter(torch.zeros(2)),
    "a buffer": torch.nn.Buffer(torch.zeros(2)),
    "a module": torch.nn.Linear(2, 2),
    "a storage": torch.zeros(2).untyped_storage(),
    "a size": torch.Size([1]),
    "a dtype": torch.float32,
    "a tensor in a list": [torch.zeros(1)],
}


@pytest.mark.parametrize("name", OBJECTS)
def test_what_overrides_torchs_functions(name: str) -> None:
    thing = OBJECTS[name]

    def program(x: Tensor, thing: Any) -> Any:
        return (
            *(has_torch_function((thing,)), has_torch_function([x, thing])),
            *(has_torch_function_unary(thing), has_torch_function_variadic(x, thing)),
            *(is_tensor_like(thing), torch.is_tensor(thing), torch.is_storage(thing)),
            *(is_tensor_like(x), is_tensor_like(x.shape), torch.is_tensor(x)),
            *(has_torch_function((x, x.shape[0])), x + 1),
        )

    def held(x: Tensor) -> Any:
        return program(x, thing)

    def made(x: Tensor) -> Any:
        return program(x, type(thing)())

    fast = anyshape.compile(held)
    assert fast(torch.ones(2))[:-1] == held(torch.ones(2))[:-1]
    assert anyshape.compile(program)(torch.ones(2), thing)[:-1] == held(torch.ones(2))[:-1]
    if isinstance(thing, (Overriding, Attributed, Plain)):
        assert anyshape.compile(made)(torch.ones(2))[:-1] == made(torch.ones(2))[:-1]


# ---- writes into copies, joins -------------------------------------------------------------------
SCATTERS: dict[str, Program] = {
    "select_scatter": lambda x, y: torch.select_scatter(x, y[0], 0, 0),
    "slice_scatter": lambda x, y: torch.slice_scatter(x, y[:1], 0, 0, 1),
    "diagonal_scatter": lambda x, y: torch.diagonal_scatter(x, y.diagonal()),
    "as_strided_scatter": lambda x, y: torch.as_strided_scatter(x, y[0], (3,), (1,)),
    "masked_scatter": lambda x, y: torch.masked_scatter(x, x > 0, y),
    "scatter": lambda x, y: torch.scatter(x, 0, (x * 0).long(), y),
    "index_put": lambda x, y: torch.index_put(x, ((x[:, 0] * 0).long(),), y),
    "index_copy": lambda x, y: torch.index_copy(x, 0, (x[:, 0] * 0).long(), y),
    "written": lambda x, y: operator_setitem(x.clone(), 0, y[0]),
    "written by slice": lambda x, y: operator_setitem(x.clone(), slice(1), y[:1]),
    "copied": lambda x, y: x.clone().copy_(y),
    "filled": lambda x, y: torch.masked_fill(x, x > 0, y[0, 0]),
}
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.complex64)


def operator_setitem(x: Tensor, key: Any, value: Any) -> Tensor:
    x[key] = value
    return x


@pytest.mark.parametrize("name", SCATTERS)
def test_what_is_written_into_takes_no_other_dtype(name: str) -> None:
    for mine, theirs in itertools.product(DTYPES, repeat=2):
        calls = [(numbered(n, 3, dtype=mine), numbered(n, 3, dtype=theirs)) for n in (3, 2)]
        assert compared(SCATTERS[name], *calls) == [], (mine, theirs)


@pytest.mark.parametrize("name", [n for n in dir(torch) if n.endswith("_scatter")])
def test_every_scatter_is_in_the_table(name: str) -> None:
    assert name in SCATTERS


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_vectors_count_for_the_dtype_of_what_they_are_joined_to(dtype: torch.dtype) -> None:
    empty = torch.zeros(0, dtype=dtype)
    for join in (
        torch.cat,
        torch.concat,
        lambda xs: torch.cat(xs, 1),
        lambda xs: torch.cat(xs, -1),
    ):
        calls = [(x,) for x in (*(numbered(*s) for s in SIZES), *pictures())]
        program = lambda x, join=join: (join([empty, x]), join([x, empty, x]), join([empty, empty]))
        assert compared(program, *calls[: len(SIZES)]) == []
        assert compared(lambda x, join=join: join([empty, x]), *calls[len(SIZES) :]) == []
    given = lambda e, x: torch.cat([e, x])
    vectors = [(torch.zeros(n, dtype=dtype), numbered(2, 3)) for n in (0, 2, 0, 1)]
    assert compared(given, *vectors) == []
    assert compared(given, (numbered(2), numbered(3)), *vectors) == []


def test_an_empty_vector_has_a_gradient_where_it_is_joined() -> None:
    fast = anyshape.compile(lambda x, e: torch.cat([x * 2, e]))
    for n in (2, 0):
        x, e = numbered(n, 3).requires_grad_(), torch.zeros(0, requires_grad=True)
        fast(x, e).sum().backward()
        assert e.grad is not None
        assert e.grad.shape == (0,)


def test_what_takes_no_meta_tensors_draws_from_nothing_while_it_is_captured() -> None:
    fast = anyshape.compile(lambda x: torch.normal(0.0, 1.0, x.shape, requires_grad=True))
    torch.manual_seed(0)
    ours = fast(numbered(2, 3))
    torch.manual_seed(0)
    assert torch.equal(ours, torch.normal(0.0, 1.0, (2, 3)))


def test_torchs_settings_are_not_changed_while_a_call_of_their_setter_is_looked_at() -> None:
    def program(x: Tensor) -> Any:
        torch.set_anomaly_enabled(True, False)
        seen = torch.is_anomaly_enabled(), torch._C._get_accelerator(), x + 1
        torch.set_anomaly_enabled(False, True)
        return seen

    assert anyshape.compile(program)(torch.ones(2))[0] is True


# ---- version counters ----------------------------------------------------------------------------
def in_place_methods() -> Iterator[tuple[str, list[Any]]]:
    """(name, arguments after the first) of each method of a tensor that writes it."""
    for name in sorted(dir(torch.ops.aten)):
        if not name.endswith("_") or name.startswith("_") or not hasattr(Tensor, name):
            continue
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            x = numbered(2, 3)
            arguments = positional(getattr(packet, overload)._schema, x)
            if arguments is not None:
                yield f"{name} {overload}", [None if a is x else a for a in arguments[1:]]


WRITERS = dict(in_place_methods())
ELSEWHERE_WRITTEN = frozenset(
    "resize_ resize_as_ resize_as_sparse_ set_ detach_ requires_grad_ rename_ squeeze_ t_ swapaxes_ "
    "swapdims_ transpose_ unsqueeze_ as_strided_ retain_grad_ share_memory_ apply_ map_ map2_".split()
)
"""What changes more than numbers: capture does it natively."""


@pytest.mark.parametrize("name", WRITERS)
def test_version_counters_count_every_write(name: str) -> None:
    method = getattr(Tensor, name.split()[0])
    if method.__name__ in ELSEWHERE_WRITTEN:
        return

    def written(x: Tensor, y: Tensor, times: int) -> Tensor:
        for _ in range(times):
            method(x, *(y if a is None else a for a in WRITERS[name]))
        return x

    def program(x: Tensor, y: Tensor) -> Any:
        fresh, other, seen = y * 1, y * 1, y + 2
        written(fresh, y, 2)
        written(other[:1], y[:1], 3)
        written(seen.data, y, 1)
        rows = written(x[:1], y[:1], 1), written(x.detach(), y, 1)
        return written(x, y, 1), rows, x.view(-1), fresh, other[1:], other, seen

    calls = [(numbered(*shape), numbered(*shape)) for shape in ((2, 3), (3, 3), (1, 1))]
    assert compared(program, *calls) == []


def test_writes_of_nothing_count_too() -> None:
    program = lambda x: (x[:0].add_(1), x[1:].mul_(2), x.add_(1), (x + 1).mul_(2).add_(1))
    assert compared(program, *VECTORS) == []


IN_PLACE = {
    name: function
    for name, function in vars(torch.nn.functional).items()
    if isinstance(function, types.FunctionType)
    and "inplace" in inspect.signature(function).parameters
}
DRAWN = [n for n in dir(torch) if n.endswith("dropout_")]


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_done_in_place_counts_as_eagers(name: str) -> None:
    """Each function with such a flag, of nothing and of one element too."""
    function, known = IN_PLACE[name], inspect.signature(IN_PLACE[name]).parameters
    given = {"threshold": {"threshold": 1.0, "value": 2.0}}.get(name, {})
    options = [{"training": True, "p": p} for p in (0.0, 0.5, 1.0)] if "p" in known else [{}]
    for option in (*options, *([{"training": False}] if "training" in known else [])):
        program = lambda x: (function(x, **given, **option, inplace=True), x[:1])
        calls = [(numbered(*shape),) for shape in (*SIZES, (2, 3, 4), (0, 3, 4), (1, 3, 0, 2))]
        assert compared(program, *calls) == [], option


@pytest.mark.parametrize("name", DRAWN)
def test_what_dropouts_of_torchs_write_counts_as_eagers(name: str) -> None:
    for p, train in itertools.product((0.0, 0.5, 1.0), (True, False)):
        assert compared(lambda x: (getattr(torch, name)(x, p, train), x[:1]), *VECTORS) == []


def test_the_difference_of_nothing_is_its_argument() -> None:
    for dim, n in itertools.product((0, -1), (0, 1, 2)):
        assert compared(lambda x: (torch.diff(x, n, dim), x.diff(n, dim).add(1)), *VECTORS) == []
        assert compared(lambda x: torch.diff(x, n, dim, prepend=x), *VECTORS) == []


def test_each_call_of_a_parameter_that_is_written_counts() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.seen.add_(x.sum(0))
            self.seen.mul_(2)
            return x + self.seen

    ours, theirs = Counting(), Counting()
    fast = anyshape.compile(ours)
    for n in (2, 3, 5):
        assert torch.allclose(fast(numbered(n, 3)), theirs(numbered(n, 3)))
        assert ours.seen._version == theirs.seen._version


GIVEN_BACK: dict[str, Program] = {
    "returned": lambda x: x.permute(1, 0).contiguous(),
    "beside": lambda x: (y := x.permute(1, 0), y.contiguous(), y.contiguous() + 1),
    "of a view": lambda x: (y := x[1:].permute(1, 0), y.contiguous().contiguous()),
    "asked": lambda x: ((y := x.permute(1, 0)).contiguous() is y, y + 1),
    "asked otherwise": lambda x: ((y := x.permute(1, 0)) is not y.contiguous(), y + 1),
    "asked of the argument": lambda x: (x.contiguous() is x, x + 1),
    "written": lambda x: (y := x.permute(1, 0), y.contiguous().add_(1), y + 0),
}


@pytest.mark.parametrize("name", GIVEN_BACK)
def test_contiguous_gives_back_what_is_empty_or_of_one_row(name: str) -> None:
    shapes = [(5, 2), (0, 2), (1, 2), (2, 0), (3, 1), (0, 0), (4, 4), (1, 1), (17, 3)]
    calls = [(numbered(*shape),) for shape in shapes]
    assert compared(GIVEN_BACK[name], *calls) == []
    assert compared(GIVEN_BACK[name], *((x.T,) for (x,) in calls)) == []


STRIDES: dict[str, Program] = {
    "of the argument": lambda x: (x.stride(), x.stride(0), x.stride(-1), x + 1),
    "of what is made": lambda x: ((x + 1).stride(), (x * 2).sum(0, keepdim=True).stride(), x + 1),
    "of a view": lambda x: (x.T.stride(), x.stride(1), x + 1),
}


@pytest.mark.parametrize("name", STRIDES)
def test_strides_that_are_asked_for_are_eagers_of_nothing_too(name: str) -> None:
    shapes = [(5, 2), (0, 2), (1, 2), (2, 0), (3, 1), (0, 0), (4, 4), (1, 1), (17, 3)]
    program = STRIDES[name]
    fast = anyshape.compile(lambda x: program(x)[:-1])
    for shape in shapes:
        x = numbered(*shape)
        assert fast(x) == program(x)[:-1], shape


def test_strides_of_sizes_that_nobody_guards_are_eagers() -> None:
    program = lambda x: ((x + 1).stride(), (x.T * 2).stride(), x + 1)
    fast = anyshape.compile(program)
    for shape in [(5, 2), (0, 2), (3, 4), (4, 4), (17, 3), (2, 0)]:
        x = numbered(*shape)
        for dim in range(2):
            anyshape.mark_unbacked(x, dim)
        assert fast(x)[:-1] == program(x)[:-1], shape
