"""Run as a process of its own: kernels of tests/schedule in Triton's interpreter, or compiled without a GPU.

python triton_programs.py interpret|interpret-sizes-in-memory|chosen-90|every-80-90-100|scalars-90 NAME...
The name of a dtype, interpreted: extremes of floats that are combined in memory; a number: so many kernels at once.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

if sys.argv[1].startswith("interpret"):
    os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent / "schedule"))
sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import torch
from programs import OPTIONS, compile_sketch
from test_kernels import FUSED, SCATTERS, normal, tensors

from anyshape import reference, torch_names
from anyshape.driver import Driver
from anyshape.ir import dtypes
from anyshape.ir.buffers import BufferRef
from anyshape.ir.code import DeviceFunction
from anyshape.ir.loops import (
    SCALAR_OPS,
    Axis,
    Kernel,
    Load,
    Op,
    PointerParam,
    ScalarParam,
    SizeParam,
    Store,
)
from anyshape.ir.program import Allocate, Assertion, Call, Free, Launch, View, ViewCall
from anyshape.ir.scalars import evaluate_scalar
from anyshape.runtime.launch import Loaded
from anyshape.symbolic import Space, evaluate
from anyshape.targets.cpu.target import CPU
from anyshape.targets.reduction_phases import analyse
from anyshape.targets.scalar import triton_scalar
from anyshape.targets.table import Targets
from anyshape.targets.triton.binaries import compile_kernel
from anyshape.targets.triton.flags import with_flags
from anyshape.targets.triton.kernel import emit_triton, total_dtype, totals
from anyshape.targets.triton.launch_lists import parted
from anyshape.targets.triton.narrow import fiber_start
from anyshape.targets.triton.online import online
from anyshape.targets.triton.prelude import HEADER
from anyshape.targets.triton.schedules import (
    Chooser,
    KernelSchedule,
    default_schedule,
    fiber_in_registers,
    may_split,
    power_of_two,
    short_columns,
    walks_along_fibers,
    works_in_fiber,
)
from tests.triton_interpreter import mend

if os.environ.get("TRITON_INTERPRET"):
    mend()
PROGRAMS = FUSED | SCATTERS
IN_MEMORY = sys.argv[1].endswith("in-memory")
NOT_BUILT = replace(CPU, load=lambda wanted, options: dict.fromkeys(wanted, Loaded(print, 0)))
"""The CPU's kernels, which nothing calls here, without gcc."""


TURNS, ONCE = 6, 64


def schedule_of(kernel, turn, fiber):
    """The default one; one of narrow indices that holds rows in registers; one that
    holds them in pieces of 64; one whose tiles are aligned; for rows that are cut into shares, which are
    walked in a loop or are one tile."""
    if turn == 0:
        return default_schedule(kernel)
    if not kernel.reduction_axes:
        return KernelSchedule(64, wide=False, exact_grid=turn % 2 == 1)
    if turn == 1:
        return KernelSchedule(
            4, max(512, power_of_two(fiber)), pieces=1, wide=False, exact_grid=True
        )
    if turn == 2 and not walks_along_fibers(kernel):
        return replace(short_columns(fiber), wide=False)
    if turn == 2:
        return KernelSchedule(1, 64, pieces=max(1, -(-fiber // 64)), even=fiber == 64, wide=False)
    if turn == 3:
        aligned = fiber_start(kernel, analyse(kernel)) is not None and walks_along_fibers(kernel)
        return KernelSchedule(1, 64, aligned=aligned, wide=False, exact_grid=True)
    if turn == 4:
        return KernelSchedule(4, 16, wide=False, totals=16, exact_grid=True)
    return KernelSchedule(2, ONCE, wide=False, totals=16, once=True)


def modules_of(kernel, directory, number, turn, fiber):
    """The module of a schedule; one for each phase where rows are cut into shares."""
    schedule = schedule_of(kernel, turn, fiber)
    if turn >= 4 and may_split(kernel):
        parts = (
            replace(schedule, phase=phase) for phase in range(analyse(online(kernel).kernel).count)
        )
        return tuple(load(kernel, directory, number, part) for part in parts)
    return load(kernel, directory, number, schedule)


def with_sizes_in_memory(kernel):
    """The same kernel, which is handed where its sizes are."""
    params = (replace(p, in_memory=True) if isinstance(p, SizeParam) else p for p in kernel.params)
    return Kernel(
        tuple(params), kernel.axes, kernel.reduction_axes, kernel.elements, kernel.stores,
        kernel.ordered,
    )  # fmt: skip


@functools.cache
def load(kernel, directory, number, schedule):
    """The module of one kernel; Triton wants a file."""
    kernel = with_sizes_in_memory(kernel) if IN_MEMORY else kernel
    path = Path(directory) / f"kernel_{number}_{abs(hash(schedule))}.py"
    path.write_text(emit_triton(kernel, "kernel", schedule))
    return module_at(path)


def module_at(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def interpret(compiled, args, modules):
    """Runs the program with its launches done by Triton's interpreter."""
    program, sizes, values = compiled.program, {}, {}
    for entry, tensor in zip(compiled.graph.inputs, args, strict=True):
        values[entry.value.name] = tensor
        for dim, size in zip(entry.value.shape, tensor.shape, strict=True):
            if not isinstance(dim, int) and dim.symbol is not None:
                sizes[dim.symbol] = size
    for step in program.flat_steps():
        if isinstance(step, Launch):
            for ref in step.args:
                if isinstance(ref, BufferRef) and ref.name not in values:
                    values[ref.name] = allocate(program.buffers[ref.name], sizes)
            launch(step, values, sizes, modules)
        elif isinstance(step, Assertion):
            assert not values[step.buffer].any()
        elif isinstance(step, View):
            if step.base in values:  # else lent before its owner's first use: each has its own here
                buffer = program.buffers[step.output]
                layout = (evaluate_all(dims, sizes) for dims in (buffer.shape, buffer.strides))
                offset = evaluate_all(step.offset, sizes)
                values[step.output] = torch.as_strided(values[step.base], *layout, offset)
        elif isinstance(step, (Call, ViewCall)):
            call = [
                values[a.name] if isinstance(a, BufferRef) else evaluate_all(a, sizes)
                for a in step.args
            ]
            output = step.output if isinstance(step, ViewCall) else step.outputs[0]
            values[output] = torch_names.resolve(step.function)(*call)
        elif isinstance(step, Allocate) and step.over is not None:
            values[step.buffer] = values[step.over]
        elif not isinstance(step, (Allocate, Free)):
            raise NotImplementedError(type(step))
    return [values[o.name] for o in program.outputs]


FLAGS = []
"""Those of the programs that were run."""


def allocate(buffer, sizes):
    shape = [evaluate(d, sizes) for d in buffer.shape]
    strides = [evaluate(d, sizes) for d in buffer.strides]
    if buffer.role == "flag":
        FLAGS.append(torch.zeros((), dtype=torch.bool))
        return FLAGS[-1]
    return torch.empty_strided(shape, strides, dtype=getattr(torch, buffer.dtype.name))


def evaluate_all(arg, sizes):
    return (
        tuple(evaluate_all(a, sizes) for a in arg)
        if isinstance(arg, tuple)
        else evaluate(arg, sizes)
    )


def launch(step, values, sizes, modules):
    args = []
    for param, arg in zip(step.kernel.params, step.args, strict=True):
        if isinstance(arg, BufferRef):
            buffer, offset = values[arg.name], evaluate(step.offsets.get(param.name, 0), sizes)
            buffer = buffer if buffer.numel() else torch.zeros((), dtype=buffer.dtype)
            args.append(torch.as_strided(buffer, (), (), buffer.storage_offset() + offset))
        elif IN_MEMORY and isinstance(param, SizeParam):
            args.append(torch.tensor([evaluate(arg, sizes)]))
        else:
            args.append(evaluate_scalar(arg, sizes, {}))
    module = modules[step.kernel](
        Chooser.of(step.kernel).fiber(*whole_numbers(step.kernel.params, args))
    )
    if isinstance(module, tuple):
        return launch_shares(step, module, args)
    table = module.LAUNCH
    tiles = tiles_of(step.kernel, table, args) if table.get("exact") else 2
    if tiles:
        module.kernel[(tiles,)](*args, **table["constants"])


def tiles_of(kernel, table, args):
    """As many programs as there are tiles."""
    cells = Chooser.of(kernel).cells(*whole_numbers(kernel.params, args))
    return -(-cells // table["constants"]["XBLOCK"]) * kernel.parts


def whole_numbers(params, args):
    """Sizes that are in memory as numbers, too."""
    in_memory = (IN_MEMORY and isinstance(param, SizeParam) for param in params)
    return [int(a) if there else a for a, there in zip(args, in_memory, strict=True)]


def launch_shares(step, modules, args, shares=3):
    """Rows cut into shares that are whole tiles."""
    fiber = Chooser.of(step.kernel).fiber(*whole_numbers(step.kernel.params, args))
    each = modules[0].LAUNCH["constants"]["RBLOCK"]
    if each == ONCE:
        shares = max(1, -(-fiber // each))
    else:
        each = max(80, -(-fiber // (each * shares)) * each)
    cells = Chooser.of(step.kernel).cells(*whole_numbers(step.kernel.params, args))
    dtypes_of = [total_dtype(step.kernel, n) for n in totals(step.kernel)]
    scratch = [torch.empty(shares * cells, dtype=getattr(torch, d.name)) for d in dtypes_of]
    phases = analyse(online(step.kernel).kernel)
    table = modules[0].LAUNCH
    tiles = tiles_of(step.kernel, table, args) if table.get("exact") else 2
    for phase, module in enumerate(modules if tiles else ()):
        grid = (tiles, shares if works_in_fiber(phases, phase) else 1)
        module.kernel[grid](*args, *scratch, shares, each, **module.LAUNCH["constants"])


SIZES = [(1, 1), (2, 3), (3, 100)]
RUNS = {
    dtypes.float32: [
        *itertools.product(range(TURNS - 1), SIZES[1:]),
        (0, SIZES[0]),
        (TURNS - 1, SIZES[2]),
    ],
    dtypes.float16: [(0, SIZES[1]), (1, SIZES[2])],
}
"""Which ways to walk a kernel, and at which sizes, by the dtype of floats."""


def scheduled(make, case):
    """The program, and the graph that it was scheduled from."""
    return compile_sketch(make, *case, driver=Driver(OPTIONS, targets=Targets({"cpu": NOT_BUILT})))


def printable(kernel):
    try:
        return emit_triton(kernel, "kernel")
    except NotImplementedError as error:
        assert "written to indices that may repeat" in str(error)
        return ""


def run_interpreted(name):
    make, inputs = PROGRAMS[name]
    for dtype, runs in RUNS.items():
        case = [(s, dtype if d is dtypes.float32 else d, o) for s, d, o in normal(inputs)]
        compiled = scheduled(make, case)
        if not all(map(printable, compiled.program.kernels())):
            assert dtype is dtypes.float16
            continue
        with tempfile.TemporaryDirectory() as directory:
            kernels = compiled.program.kernels()
            for turn, (a, b) in runs:
                modules = {
                    kernel: functools.partial(modules_of, kernel, directory, n, turn)
                    for n, kernel in enumerate(kernels)
                }
                args = tensors(case, a, b)
                wanted = reference.run(compiled.graph, [t.clone() for t in args])
                found = interpret(compiled, args, modules)
                loose = 1e-5 if dtype is dtypes.float32 else 5e-3
                for x, y in zip(wanted, found, strict=True):
                    torch.testing.assert_close(y, x, rtol=loose, atol=loose, equal_nan=True)


def rows_of_ends(every=False):
    """Rows of few different numbers, infinities and NaNs, some with one other number in them. Three
    that are repeated: each alone, and each two of them in each two positions, or every three."""
    ends = [-float("inf"), float("inf"), float("nan"), -3.4028234663852886e38, 88.0, -1e30, 0.0]
    chosen = itertools.product(range(len(ends)), repeat=3)
    alike = lambda three: len({*three}) == 1
    threes = (three for three in chosen if every or sum(three) % len(ends) == 0 or alike(three))
    rows = [torch.tensor([ends[i] for i in three]).repeat(54)[:160] for three in threes]
    rows += [torch.randn(160) * 50 for _ in range(8)]
    return rows + [
        torch.full((160,), a).index_fill(0, torch.tensor([at]), 1.0)
        for a in ends
        for at in (0, 77, 159)
    ]


def run_firsts():
    """Where an extreme lies, in one pass, in loops and in shares: the first of those alike, and of
    NaNs; rows begin where memory is aligned and where it is not."""
    rows = torch.stack(rows_of_ends())

    def program(b, x):
        return b.argmax(x, 1), b.argmin(x, 1), b.amax(x, (1,))

    ways = {
        dtypes.float32: ((157, range(TURNS)), (3, range(0, TURNS, 2))),
        dtypes.bfloat16: ((157, range(1, TURNS, 2)),),
    }
    for dtype, lengths in ways.items():
        compiled = scheduled(program, normal([("a b", dtype)]))
        kernels = compiled.program.kernels()
        assert sum(len(online(kernel).firsts) for kernel in kernels) == 2
        for length, turns in lengths:
            x = rows[:, :length].contiguous().to(torch_names.torch_dtype(dtype))
            wanted = reference.run(compiled.graph, [x.clone()])
            for turn in turns:
                with tempfile.TemporaryDirectory() as directory:
                    modules = {
                        kernel: functools.partial(modules_of, kernel, directory, n, turn)
                        for n, kernel in enumerate(kernels)
                    }
                    found = interpret(compiled, [x], modules)
                for a, b in zip(wanted, found, strict=True):
                    torch.testing.assert_close(b, a, rtol=0, atol=0, equal_nan=True)


def run_online(every):
    """Maxima and sums of exponentials in one pass, in loops and in shares, of rows that have little
    in them: as softmax and logsumexp give them."""
    rows = rows_of_ends(every)

    def program(b, x):
        highest = b.amax(x, (1,), True)
        powers = b.exp(b.sub(x, highest))
        total = b.sum(powers, (1,), True)
        return b.div(powers, total), highest, total

    compiled = scheduled(program, normal(["a b"]))
    (kernel,) = compiled.program.kernels()
    assert online(kernel).sums
    for length in (160, 3):
        x = torch.stack(rows)[:, :length].contiguous()
        wanted = reference.run(compiled.graph, [x.clone()])
        for turn in (0, 1, 3, 4, 5):
            with tempfile.TemporaryDirectory() as directory:
                modules = {kernel: functools.partial(modules_of, kernel, directory, 0, turn)}
                found = interpret(compiled, [x], modules)
            for a, b in zip(wanted, found, strict=True):
                torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-36, equal_nan=True)


def run_tails():
    """GELU in float32 is exact where erf, or tanh, is near -1, too, and right at infinities and
    NaN."""
    ends = torch.tensor([float("inf"), float("nan"), 0.0, -0.0, 7.0, -20.0, -1e30, 1e30])
    x = torch.cat((torch.linspace(-6, 6, 5000), ends))
    wide = x.double()
    by_tanh = wide * torch.sigmoid(1.5957691216057308 * (wide + 0.044715 * wide**3))
    by_erf = 0.5 * wide * torch.special.erfc(-wide / 2**0.5)
    for approximate, exact in (("none", by_erf), ("tanh", by_tanh)):
        program = lambda b, x, way=approximate: b.gelu(x, approximate=way)
        compiled = scheduled(program, normal(["a"]))
        (kernel,) = compiled.program.kernels()
        with tempfile.TemporaryDirectory() as directory:
            modules = {kernel: functools.partial(modules_of, kernel, directory, 0, 0)}
            (found,) = interpret(compiled, [x], modules)
        torch.testing.assert_close(found.double(), exact, rtol=8e-6, atol=1e-30, equal_nan=True)


def run_flags():
    """Kernels set flags themselves where an index is out of range, alone. Rows lie around those of x,
    which an interpreted kernel reads at such indices."""

    def program(b, x, positions):
        taken = b.index_select(x, 0, positions)
        return b.mul(taken, taken)

    compiled = scheduled(program, normal(["a b", ("c", dtypes.int64)]))
    steps = compiled.program.flat_steps()
    later = (replace(s, deferred=True) if isinstance(s, Assertion) else s for s in steps)
    deferred = replace(compiled.program, steps=tuple(later))
    flagged = with_flags(deferred, CPU.variants, lambda device: True)
    made = SimpleNamespace(program=flagged, graph=compiled.graph)
    cases = (([0, 4, 2], False), ([0, 5, 2], True), ([-1] * 30, True), ([3], False))
    for turn, (positions, outside) in itertools.product(range(TURNS), cases):
        x, positions = torch.randn(64, 3)[30:35], torch.tensor(positions)
        with tempfile.TemporaryDirectory() as directory:
            modules = {
                kernel: functools.partial(modules_of, kernel, directory, n, turn)
                for n, kernel in enumerate(flagged.kernels())
            }
            (found,) = interpret(made, [x, positions], modules)
        assert FLAGS.pop().item() is outside and not FLAGS
        if not outside:
            torch.testing.assert_close(found, reference.run(compiled.graph, [x, positions])[0])


EXTREMES = """

@triton.jit
def kernel(places, x, y, n):
    i = tl.arange(0, 2048)
    as_atomic_NAME(places + i, tl.load(x + i, mask=i < n), mask=i < n)
    as_atomic_NAME(places + i, tl.load(y + i, mask=i < n), mask=i < n)
"""


def run_extremes(name):
    """What is combined in memory is as torch combines it: NaN of both signs, infinities, zeros."""
    values = torch.tensor([1.0, -1.0, 0.0, float("inf"), -float("inf"), float("nan")])
    values = torch.cat((values, -values)).to(getattr(torch, name))
    sides = [side.contiguous() for side in torch.cartesian_prod(values, values, values).T]
    for extreme, combine in (("max", torch.maximum), ("min", torch.minimum)):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / f"{extreme}_{name}.py"
            path.write_text(HEADER + EXTREMES.replace("NAME", extreme))
            made = sides[0].clone()
            module_at(path).kernel[(1,)](made, *sides[1:], made.numel())
        wanted = functools.reduce(combine, sides)
        torch.testing.assert_close(made, wanted, rtol=0, atol=0, equal_nan=True)


def schedules_of(kernel):
    """Those that are chosen, and those of each part of rows that are cut."""
    choice = Chooser.of(kernel).schedule([4096 for _ in kernel.params])
    yield choice.schedule
    yield default_schedule(kernel)
    if may_split(kernel):
        cut = replace(choice.schedule, pieces=0, fiber=64, totals=16)
        for phase in range(analyse(online(kernel).kernel).count):
            yield replace(cut, phase=phase)
    if kernel.reduction_axes:
        yield fiber_in_registers(5000)


def run_compiled(name, architectures, ways):
    """Each kernel in so many ways."""
    make, inputs = PROGRAMS[name]
    half = [(s, dtypes.bfloat16 if d is dtypes.float32 else d, o) for s, d, o in normal(inputs)]
    kernels = scheduled(make, half).program.kernels()
    if not all(map(printable, kernels)):
        kernels = scheduled(make, normal(inputs)).program.kernels()
    with tempfile.TemporaryDirectory() as directory:
        for kernel in kernels:
            every = dict.fromkeys(schedules_of(kernel))
            in_memory = (with_sizes_in_memory(kernel), default_schedule(kernel))
            for made, schedule in (*((kernel, each) for each in every), in_memory)[:ways]:
                for architecture in architectures:
                    compile_for(made, schedule, directory, architecture)


def compile_for(kernel, schedule, directory, architecture):
    function = DeviceFunction("kernel", "", kernel, 0)
    made = compile_kernel(function, schedule, Path(directory), architecture)
    assert f"sm_{architecture}" in made.asm["ptx"]
    later = ("griddepcontrol.launch_dependents", "ld.global", "st.global")
    wait, *positions = (made.asm["ptx"].find(what) for what in ("griddepcontrol.wait", *later))
    assert (wait >= 0) is (positions[0] >= 0) is (architecture >= 90)
    assert all(wait < position for position in positions if position >= 0)
    return made


def run_scalars(name, architectures):
    """Every operator that has a text for the dtype, in one kernel."""
    dtype = dtypes.DTYPES[name]
    elements, stores, params = [], [], []

    def parameter(kind, access):
        params.append(PointerParam(f"p{len(params)}", kind, access))
        return params[-1].name

    space = Space()
    i, size = space.symbol("i0"), space.symbol("n0")
    for _ in range(3):
        elements.append(Load(parameter(dtype, "read"), i, dtype))
    elements.append(Op("ne", (0, 1), dtypes.bool_))
    for op, about in SCALAR_OPS.items():
        if op == "cast":
            continue
        args = (3, 0, 1) if op == "where" else tuple(range(about.arity))
        made = dtypes.bool_ if about.result == "bool" else dtype
        try:
            triton_scalar(op, dtype, ["a"] * about.arity)
        except (KeyError, NotImplementedError):
            if op != "where":
                continue
        elements.append(Op(op, args, made))
        stores.append(Store(parameter(made, "write"), i, len(elements) - 1, "cell"))
    params.append(SizeParam("n0"))
    axes = (Axis("i0", size),)
    kernel = Kernel(tuple(params), axes, (), tuple(elements), tuple(stores))
    with tempfile.TemporaryDirectory() as directory:
        for architecture in architectures:
            compile_for(kernel, default_schedule(kernel), directory, architecture)


def run_parts(parts, architectures=()):
    """So many kernels at once, which write what each of them would; or compiled alone."""
    i = Space().symbol("i0")
    params = (
        PointerParam("p0", dtypes.float32, "read"),
        PointerParam("p1", dtypes.float32, "write"),
        ScalarParam("s0", dtypes.float64),
    )
    elements = (Load("p0", i, dtypes.float32), Op("add", (0, 0), dtypes.float32))
    axes = (Axis("i0", 300),)
    kernel = parted(Kernel(params, axes, (), elements, (Store("p1", i, 1, "cell"),)), parts)
    given = [torch.randn(300) for _ in range(parts)]
    made = [torch.full((300,), float("nan")) for _ in range(parts)]
    choice = Chooser.of(kernel).schedule([16] * 2 * parts + [0.5])
    with tempfile.TemporaryDirectory() as directory:
        for architecture in architectures:
            compile_for(kernel, choice.schedule, directory, architecture)
        if architectures:
            return
        module = load(kernel, directory, 0, choice.schedule)
        arguments = (tensor for pair in zip(given, made) for tensor in pair)
        module.kernel[(choice.tiles,)](*arguments, 0.5, **module.LAUNCH["constants"])
    assert all(torch.equal(x * 2, y) for x, y in zip(given, made))


def main():
    mode, *rest = sys.argv[1].split("-")
    names = sys.argv[2:] if sys.argv[2:] != ["all"] else PROGRAMS
    for name in names:
        match mode:
            case "interpret" | "chosen" if name.isdigit():
                run_parts(int(name), [*map(int, rest)])
            case "interpret" if name == "flags":
                run_flags()
            case "interpret" if name == "tails":
                run_tails()
            case "interpret" if name == "firsts":
                run_firsts()
            case "interpret" if name in ("online", "every online"):
                run_online(name != "online")
            case "interpret":
                run_extremes(name) if name in dtypes.DTYPES else run_interpreted(name)
            case "scalars":
                run_scalars(name, map(int, rest))
            case "chosen" | "every":
                run_compiled(name, [*map(int, rest)], 1 if mode == "chosen" else None)
        print("ok", name, flush=True)


if __name__ == "__main__":
    main()
