"""Run as a process of its own: kernels of tests/schedule in Triton's interpreter, or compiled for sm_90.

python triton_programs.py interpret|compile NAME...
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

if sys.argv[1] == "interpret":
    os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent / "schedule"))
sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import torch
from programs import compile_sketch, launches
from test_kernels import FUSED, normal, tensors
from triton.runtime import interpreter

from anyshape import reference, torch_names
from anyshape.ir import dtypes
from anyshape.ir.buffers import BufferRef
from anyshape.ir.code import DeviceFunction
from anyshape.ir.graph import TensorType
from anyshape.ir.program import Allocate, Assertion, Call, Free, Launch, View
from anyshape.ir.scalars import evaluate_scalar
from anyshape.symbolic import evaluate
from anyshape.targets.triton.kernel import emit_triton, total_dtype, totals
from anyshape.targets.triton.launch import compile_kernel
from anyshape.targets.triton.schedules import Chooser, KernelSchedule, default_schedule, may_split

_patch_lang_tensor = interpreter._patch_lang_tensor


def _patch_with_item(tensor, scope):
    """numpy 2.4 no longer makes an int of an array with one element; Triton 3.6 relies on it."""
    _patch_lang_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patch_with_item


def schedules(kernel):
    """The default one, and one of narrow indices whose tile holds the whole row."""
    yield default_schedule(kernel)
    if kernel.reduction_axes:
        yield KernelSchedule(4, 512, whole=True, wide=False)
    else:
        yield KernelSchedule(64, wide=False)


def loaded(kernel, directory, number, turn):
    """The module of a schedule; two where rows are cut into shares."""
    if turn < 2 or not may_split(kernel):
        return load(kernel, directory, number, [*schedules(kernel)][turn % 2])
    parts = (KernelSchedule(4, 16, wide=False, part=part) for part in ("partial", "final"))
    return tuple(load(kernel, directory, f"{number}_{part.part}", part) for part in parts)


def load(kernel, directory, number, schedule):
    """The module of one kernel; Triton wants a file."""
    path = Path(directory) / f"kernel_{number}_{schedule.wide}.py"
    path.write_text(emit_triton(kernel, "kernel", schedule))
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
        elif isinstance(step, Call):
            call = [
                values[a.name] if isinstance(a, BufferRef) else evaluate_all(a, sizes)
                for a in step.args
            ]
            values[step.outputs[0]] = torch_names.resolve(step.function)(*call)
        elif not isinstance(step, (Allocate, Free)):
            raise NotImplementedError(type(step))
    return [values[o.name] for o in program.outputs]


def allocate(buffer, sizes):
    shape = [evaluate(d, sizes) for d in buffer.shape]
    strides = [evaluate(d, sizes) for d in buffer.strides]
    return torch.empty_strided(shape, strides, dtype=getattr(torch, buffer.dtype.name))


def evaluate_all(arg, sizes):
    return (
        tuple(evaluate_all(a, sizes) for a in arg)
        if isinstance(arg, tuple)
        else evaluate(arg, sizes)
    )


def launch(step, values, sizes, modules):
    args = []
    for arg in step.args:
        if isinstance(arg, BufferRef):
            args.append(values[arg.name])
        else:
            args.append(evaluate_scalar(arg, sizes, {}))
    module = modules[step.kernel]
    if isinstance(module, tuple):
        return launch_shares(step, module, args)
    table = module.LAUNCH
    module.kernel[(2,)](*args, **table["constants"])


def launch_shares(step, modules, args, shares=3):
    """Rows cut into shares of 128 elements, which is more than the sizes here need."""
    cells = Chooser.of(step.kernel).cells(*args)
    dtypes_of = [total_dtype(step.kernel, n) for n in totals(step.kernel)]
    scratch = [torch.empty(shares * cells, dtype=getattr(torch, d.name)) for d in dtypes_of]
    for module, grid in zip(modules, ((2, shares), (2,))):
        module.kernel[grid](*args, *scratch, shares, 128, **module.LAUNCH["constants"])


SIZES = [(1, 1), (2, 3), (5, 70)]


def run_interpreted(name):
    make, inputs = FUSED[name]
    for dtype in (dtypes.float32, dtypes.float16):
        case = [(s, dtype if d is dtypes.float32 else d, o) for s, d, o in normal(inputs)]
        compiled = compile_sketch(make, *case)
        with tempfile.TemporaryDirectory() as directory:
            kernels = compiled.program.kernels()
            for turn, (a, b) in itertools.product((0, 1, 2), SIZES):
                modules = {k: loaded(k, directory, n, turn) for n, k in enumerate(kernels)}
                args = tensors(case, a, b)
                wanted = reference.run(compiled.graph, [t.clone() for t in args])
                found = interpret(compiled, args, modules)
                loose = 1e-5 if dtype is dtypes.float32 else 5e-3
                for x, y in zip(wanted, found, strict=True):
                    torch.testing.assert_close(y, x, rtol=loose, atol=loose, equal_nan=True)


def run_compiled(name):
    from triton.backends.compiler import GPUTarget

    make, inputs = FUSED[name]
    case = [(s, dtypes.bfloat16 if d is dtypes.float32 else d, o) for s, d, o in normal(inputs)]
    compiled = compile_sketch(make, *case)
    with tempfile.TemporaryDirectory() as directory:
        for step in launches(compiled.program):
            choice = Chooser.of(step.kernel).schedule([4096 for _ in step.kernel.params])
            chosen = [default_schedule(step.kernel), choice.schedule]
            if may_split(step.kernel):
                chosen += [
                    replace(choice.schedule, part=p, whole=False, row=64)
                    for p in ("partial", "final")
                ]
            for schedule in chosen:
                function = DeviceFunction("kernel", "", step.kernel, 0)
                made = compile_kernel(
                    function, schedule, Path(directory), GPUTarget("cuda", 90, 32)
                )
                assert "sm_90" in made.asm["ptx"]


assert TensorType
for name in sys.argv[2:]:
    {"interpret": run_interpreted, "compile": run_compiled}[sys.argv[1]](name)
    print("ok", name, flush=True)
