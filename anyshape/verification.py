"""What ``options={"verify": True}`` does: each pass and the compiled function beside the reference.

In: a captured graph, the graph after each pass, and the compiled function. Out: a function that
computes what the compiled one does, and names the pass that changed a result: a number, strides, or
which tensors share memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from anyshape import reference
from anyshape.eager import CheckFailed
from anyshape.errors import AnyshapeError
from anyshape.ir.graph import Graph
from anyshape.ir.loops import Kernel
from anyshape.ir.program import Program
from anyshape.ir.verify import Malformed, verify_graph, verify_kernel
from anyshape.ir.verify_program import verify_program
from anyshape.nouns import frozen
from anyshape.runtime.random_state import RandomState, devices_drawn_on
from anyshape.symbolic import Facts

ROUNDED = {
    torch.float64: 1e-7,
    torch.float32: 1e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 2e-2,
}
"""By which share two right results of floats may differ."""
PAST_THE_END = re.compile(r"\bindex\b.* out of (?:bounds|range)")
"""What operators say of an index that eager takes in operators made of them: `take_along_dim` wraps
it around, `index_fill_` of nothing reads none. Their checks fail, and eager does it all."""


def verified(
    run: Callable[..., tuple[Any, ...]],
    graph: Graph,
    passed: tuple[tuple[str, Graph], ...],
    constants: Mapping[str, torch.Tensor],
) -> Callable[..., tuple[Any, ...]]:
    """``run``, compared with the reference after every pass; names the one that differs."""
    devices = devices_drawn_on(graph)

    def checked(*arguments: Any) -> tuple[Any, ...]:
        state = RandomState.of(devices)

        def ran(stage: Graph) -> Outcome:
            state.put_back()
            copies: dict[int, torch.UntypedStorage] = {}
            inputs = [_copied(value, copies) for value in given(stage)]
            outputs = reference.run(stage, inputs, laid_out=stage is not graph)
            return Outcome(stage, inputs, outputs)

        def given(stage: Graph) -> list[Any]:
            handed_in = iter(arguments)
            return [
                next(handed_in) if entry.kind == "argument" else constants[entry.value.name]
                for entry in stage.inputs
            ]

        try:
            expected = ran(graph)
        except CheckFailed:
            raise
        except Exception:  # eager refuses it: so does what is compiled, after the same writes
            state.put_back()
            return run(*arguments)
        for name, stage in passed:
            try:
                found = ran(stage)
            except (IndexError, RuntimeError) as refused:
                if PAST_THE_END.search(str(refused)) is None:
                    raise
                raise CheckFailed(str(refused)) from None  # as in the code that is made of it
            _compare(name, expected, found)
        state.put_back()
        results = run(*arguments)
        _compare("schedule and code generation", expected, Outcome(graph, given(graph), results))
        return results

    return checked


@frozen(eq=False)
class Outcome:
    """What a graph was given, as it was left, and what it returned."""

    graph: Graph
    inputs: list[Any]
    outputs: tuple[Any, ...]

    def named(self) -> Iterator[tuple[str, Any]]:
        """Everything that the program can see afterwards."""
        for entry, value in zip(self.graph.inputs, self.inputs, strict=True):
            yield entry.value.name, value
        for index, value in enumerate(self.outputs):
            yield f"output {index}", value


def refuse_malformed(
    graph: Graph, passed: tuple[tuple[str, Graph], ...], kernels: Iterable[Kernel]
) -> None:
    """What must hold of any graph and kernel holds of these, or E502."""
    for name, stage in (("capture", graph), *passed):
        _refuse(name, partial(verify_graph, stage))
    for kernel in kernels:
        _refuse("scheduling", partial(verify_kernel, kernel))


def refuse_overwriting(stage: str, program: Program, facts: Facts) -> None:
    """The program writes over nothing that is still needed, or E502."""
    _refuse(stage, partial(verify_program, program, facts))


def _refuse(name: str, rule: Callable[[], None]) -> None:
    try:
        rule()
    except Malformed as error:
        raise AnyshapeError("E502", name=name, why=str(error)) from error


def _copied(tensor: Any, copies: dict[int, torch.UntypedStorage]) -> Any:
    """The tensor over a copy of its memory, with its strides; who shared memory shares the copy.
    What is no tensor stays as it is."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    memory = tensor.untyped_storage()
    copy = copies.setdefault(memory.data_ptr(), memory.clone())
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    made.set_(copy, tensor.storage_offset(), tensor.shape, tensor.stride())
    made.__dict__.update(tensor.__dict__)  # what a handle carries
    return made


def _compare(name: str, expected: Outcome, found: Outcome) -> None:
    shared, own = _sharing(expected), _sharing(found)
    for (part, wanted), (_, got) in zip(expected.named(), found.named(), strict=True):
        why = _difference(wanted, got)
        if why is None and shared.get(part) != own.get(part):
            why = f"it lies {_said(own.get(part))}, not {_said(shared.get(part))}"
        if why is not None:
            raise AnyshapeError("E501", name=name, why=f"{part}: {why}")


def _sharing(outcome: Outcome) -> dict[str, tuple[str, int]]:
    """Of each tensor that has elements the first one in the same memory, and how many bytes after
    it it begins."""
    first: dict[int, tuple[str, int]] = {}
    found: dict[str, tuple[str, int]] = {}
    for name, value in outcome.named():
        if isinstance(value, torch.Tensor) and value.numel():
            start = value.data_ptr()
            owner, begin = first.setdefault(value.untyped_storage().data_ptr(), (name, start))
            found[name] = owner, start - begin
    return found


def _said(where: tuple[str, int] | None) -> str:
    return "nowhere" if where is None else f"{where[1]} bytes into the memory of {where[0]}"


def _difference(wanted: Any, got: Any) -> str | None:
    if isinstance(wanted, torch.Tensor):
        try:
            _assert_same(got, wanted)
        except AssertionError as error:
            return str(error)
    elif wanted != got and wanted == wanted:
        return f"{got}, not {wanted}"
    return None


def _assert_same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Equal but for rounding, which may be that of the largest element: sums cancel."""
    rtol, atol = _tolerance(wanted)
    torch.testing.assert_close(got, wanted, equal_nan=True, rtol=rtol, atol=atol)
    strides = reference.strides_that_matter
    assert strides(got) == strides(wanted), f"strides {got.stride()}, not {wanted.stride()}"


def _tolerance(wanted: torch.Tensor) -> tuple[float, float] | tuple[None, None]:
    """(relative, absolute); None for torch's own."""
    kind = ROUNDED.get(wanted.dtype)
    if kind is None:
        return None, None
    finite = wanted[wanted.isfinite()].abs()
    return kind, kind * max(1.0, float(finite.max()) if finite.numel() else 0.0)
