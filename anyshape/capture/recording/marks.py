"""How far a recorder had come, so that a fork can go back to it."""

from __future__ import annotations

from anyshape.capture.guards import execution_modes
from anyshape.nouns import frozen
from anyshape.ops.build import BuilderMark
from anyshape.symbolic import Facts


@frozen
class RecorderMark:
    """How far a recorder had come; see `Recorder.rollback`."""

    builder: BuilderMark
    facts: Facts
    sizes: int
    modes: execution_modes.TorchModes
    bindings: int
    constants: int
    given: int
    scalars: int
