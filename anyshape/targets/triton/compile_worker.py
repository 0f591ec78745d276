"""Machine code from the text of a kernel, by Triton alone.

Triton's front end holds Python's lock, so that many kernels take processes of their own. Run as a
script this module is one: each line that it reads is a ``Wanted`` as JSON, each that it writes says
what became of it. It imports neither torch nor the rest of the package.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Wanted:
    """A function ``name`` in the file ``source``: the types of its parameters, its constants, the
    positions of multiples of 16, warps of a program, the GPU's compute capability (as 90)."""

    source: str
    name: str
    signature: dict[str, str]
    constants: dict[str, int]
    divisible: list[int]
    warps: int
    capability: int


def compile_text(wanted: Wanted) -> Any:
    """What Triton makes of it; raises what Triton raises."""
    compiler = importlib.import_module("triton.compiler")
    source = compiler.ASTSource(
        _function(wanted),
        wanted.signature,
        constexprs=wanted.constants,
        attrs={(n,): [["tt.divisibility", 16]] for n in wanted.divisible},
    )
    target = importlib.import_module("triton.backends.compiler").GPUTarget
    return importlib.import_module("triton").compile(
        source,
        target=target("cuda", wanted.capability, 32),
        options={"num_warps": wanted.warps, "enable_fp_fusion": False},
    )


def _function(wanted: Wanted) -> Any:
    """Triton reads the source of a function from a file."""
    spec = importlib.util.spec_from_file_location(Path(wanted.source).stem, wanted.source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, wanted.name)


def _answer(line: str) -> dict[str, Any]:
    """Machine code is in a file beside the source."""
    wanted = Wanted(**json.loads(line))
    try:
        made = compile_text(wanted)
        code = Path(wanted.source).with_suffix(".cubin")
        code.write_bytes(made.asm["cubin"])
    except Exception as error:  # the other process raises it
        return {"error": f"{type(error).__name__}: {error}"}
    meta = made.metadata
    return {"code": str(code), "name": meta.name, "warps": meta.num_warps, "shared": meta.shared}


def main() -> None:
    """The first line is where to look for modules; it ends with its input."""
    answers, sys.stdout = sys.stdout, sys.stderr
    sys.path[:] = json.loads(sys.stdin.readline())
    importlib.import_module("triton.compiler")  # while nothing is asked for
    for line in sys.stdin:
        answers.write(json.dumps(_answer(line)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
