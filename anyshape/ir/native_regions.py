"""Which native regions of a program the host calls."""

from __future__ import annotations

from collections.abc import Iterator

from anyshape.ir.program import NativeRegion, Program


def native_regions(program: Program) -> Iterator[tuple[NativeRegion, Program]]:
    """The native regions that the host calls, each with the program that it stands in: none of
    those that native code calls."""
    for step in program.steps:
        if isinstance(step, NativeRegion):
            yield step, program
        else:
            for body in step.inside():
                yield from native_regions(body.program)
