"""docs/breaks: a page for each graph break of the catalogue, with a program that has it and one
that has not.

In: `BREAKS` and the programs below. Out: Markdown; `anyshape breaks` prints a page. A program is
the text of a function `f` of one tensor; tests run them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from anyshape.capture.heap.breaks import BREAKS
from anyshape.nouns import frozen


@frozen
class Example:
    """A program that breaks there, what it says about it, and one that computes the same whole."""

    program: str
    meaning: str
    instead: str = ""


EXAMPLES: Mapping[str, Example] = MappingProxyType(
    {
        "tensor-branch": Example(
            """
def f(x):
    if x.sum() > 0:
        return x @ x.t()
    return x @ x.t() * 3
""",
            "Which side runs is in the tensor's data, which is not there while compiling. What "
            "comes before is one segment; what comes behind, on the side taken, is another. Where "
            "both sides cost little, give tensors of one shape and record no gradient, both are "
            "computed and one is chosen; a product is computed on no side in vain.",
            """
def f(x):
    return x @ x.t() * torch.where(x.sum() > 0, 1.0, 3.0)
""",
        ),
        "undecided-size": Example(
            """
def f(x):
    n = int(x.sum())
    torch._check(n >= 0)
    y = x.new_zeros(n)
    return y.view(-1) if y.numel() > 5 else y.expand(2, n)
""",
            "A branch asks of a size that data decides, and its sides cannot be merged: they "
            "differ in rank, say. A fact about the size, stated before the branch, decides it.",
        ),
        "size-needed": Example(
            """
def f(x):
    n = int(x.sum())
    return x * {1: 2, 6: 3}.get(n, 4)
""",
            "Python itself needs the number: a key, the length of a list, the turns of a loop.",
            """
def f(x):
    n = int(x.sum())
    return x * n
""",
        ),
        "size-changes": Example(
            "",
            "A number that Python needs has been another one in several calls. Its value is relied "
            "on no more, and what needs it runs natively.",
        ),
        "unknown-call": Example(
            """
import time


def f(x):
    return x * 2 + time.perf_counter() * 0
""",
            "A function written in C that no table knows. It may have effects, or give something "
            "else in each call, so it is called in each call, by CPython.",
            """
def f(x):
    return x * 2 + 0
""",
        ),
        "opcode": Example(
            """
def f(x):
    async def later():
        return x * 2

    try:
        later().send(None)
    except StopIteration as stop:
        return stop.value
""",
            "A coroutine, or bytecode that capture does not interpret. The function that has it is "
            "called natively as a whole.",
            """
def f(x):
    def now():
        return x * 2

    return now()
""",
        ),
        "changing-value": Example(
            """
def f(x):
    n = int(x.sum())
    return x * len("a" * n)
""",
            "Native code has made a value that is another one in each call (a text, a number of "
            "items), and the program looks into it.",
            """
def f(x):
    n = int(x.sum())
    return x * n
""",
        ),
        "disabled": Example(
            """
@torch.compiler.disable
def g(x):
    return x * 2


def f(x):
    return g(x) + 1
""",
            "The program itself says that the function is not to be compiled. No warning is given.",
            """
def g(x):
    return x * 2


def f(x):
    return g(x) + 1
""",
        ),
        "left-to-autograd": Example(
            """
def f(x):
    y = torch.ones_like(x).requires_grad_() * x
    handle = y.register_hook(lambda gradient: gradient * 2)
    y.sum().backward()
    handle.remove()
    return x * 2
""",
            "A hook, a function with a `backward` of its own, a checkpoint or a gradient that "
            "capture could not do as eager does: the reason says what it does. What it is called "
            "with is computed by a segment, torch's autograd does the rest. No warning is given.",
            """
def f(x):
    y = torch.ones_like(x).requires_grad_() * x
    y.register_hook(lambda gradient: gradient * 2)
    y.sum().backward()
    return x * 2
""",
        ),
        "tensor-subclass": Example(
            """
def f(x):
    return x.to_sparse().to_dense() * 2
""",
            "A tensor that is not strided memory of a plain type: sparse, quantized, nested, or of "
            "a class of the program's. Eager torch, or that class, does what is done with it.",
            """
def f(x):
    return x * 2
""",
        ),
        "operator-raises": Example(
            """
def f(x):
    try:
        return x @ x
    except RuntimeError:
        return x
""",
            "The operator refuses these arguments, in eager torch too. It is called natively, so "
            "that the exception is torch's own, at the program's own line. No warning is given.",
        ),
        "operator-unknown": Example(
            "",
            "Neither a row of ours nor torch's own meta kernel says what the operator gives. It is "
            "called natively. A custom operator says it with `torch.library.register_fake`.",
        ),
        "tensor-attribute": Example(
            """
def f(x):
    return x * 2, x._version
""",
            "What the attribute is depends on how the tensor was made at run time.",
        ),
        "tensor-data": Example(
            """
def f(x):
    return x * float(x.numpy().sum())
""",
            "The values leave torch: for numpy, for a text, for a container of Python's.",
            """
def f(x):
    return x * x.sum()
""",
        ),
        "python-effect": Example(
            """
import io

LOG = io.StringIO()


def f(x):
    LOG.write("called")
    return x * 2
""",
            "Something outside of the function is changed in a way that is not replayed at the end "
            "of a segment: a file is written, say. Prints, warnings, logging, and writes to lists, "
            "dictionaries and attributes are replayed, and break nothing.",
            """
def f(x):
    print("called")
    return x * 2
""",
        ),
        "proxy-leak": Example(
            "",
            "Native code got hold of a tensor or a size of which only the type is known while "
            "compiling.",
        ),
        "fork": Example(
            "",
            "Both sides of a branch on sizes are captured and merged; one of them does what cannot "
            "be taken back.",
        ),
        "budget": Example(
            "",
            "A Python loop is unrolled while it is captured, and each call of a function in Python "
            "is followed; this loop turns too often, or these calls are too many, as those of a "
            "recursion. What runs until then is compiled; the rest of the call runs natively, and "
            "CPython goes on with the loop from where it stands.",
        ),
        "outside-iterator": Example(
            """
NUMBERS = iter(range(1000))


def f(x):
    return x * sum(NUMBERS)
""",
            "An iterator that was made outside of the function is advanced. Where it stands is "
            "seen by no guard, so it is advanced natively in each call.",
            """
NUMBERS = tuple(range(1000))


def f(x):
    return x * sum(NUMBERS)
""",
        ),
        "stress": Example(
            "",
            "A test asked for breaks in places where the program has none: the option "
            "`break_every`. No warning is given.",
        ),
        "escape": Example(
            """
def f(x):
    return (row * 2 for row in x.tolist())
""",
            "The function gives away what exists only while it is interpreted: a generator, or an "
            "object of a class that cannot be rebuilt. The call is native as a whole.",
            """
def f(x):
    return [row * 2 for row in x.unbind()]
""",
        ),
        "shared-memory": Example(
            """
import torch

FLAT = torch.zeros(6)
PARTS = FLAT[:3].requires_grad_(), FLAT[3:].requires_grad_()


def f(x):
    FLAT.zero_()
    return x * 2 + PARTS[0].sum()
""",
            "The graph relies on what it writes lying in memory of its own. These arguments "
            "overlap, or autograd counts writes to the one as writes to the other, so the call is "
            "native as a whole. So it is where tensors of a closure do.",
            """
import torch

PARTS = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)


def f(x):
    with torch.no_grad():
        for part in PARTS:
            part.zero_()
    return x * 2 + PARTS[0].sum()
""",
        ),
    }
)

INDEX = "README.md"


def pages() -> Mapping[str, str]:
    """The text of each file of docs/breaks."""
    made = {f"{name}.md": page(name) for name in BREAKS}
    lines = [f"- [{name}]({name}.md): {kind.reason}" for name, kind in BREAKS.items()]
    head = "# Graph breaks\n\nWritten by `anyshape breaks --write docs/breaks` from the catalogue; "
    return {INDEX: f"{head}do not edit.\n\n{chr(10).join(lines)}\n", **made}


def page(name: str) -> str:
    """All that is known of one kind of break."""
    kind, example = BREAKS[name], EXAMPLES[name]
    parts = [f"# {name}", f"> {kind.reason}", example.meaning]
    if example.program:
        parts.append(f"It breaks here:\n\n{_code(example.program)}")
    if example.instead:
        parts.append(f"This compiles whole:\n\n{_code(example.instead)}")
    if kind.hint:
        parts.append(f"What to do: {kind.hint}.")
    error = f"this is the error [{kind.code}](../errors.md#{kind.code.lower()})"
    parts.append(f"With `fullgraph=True` {kind.allowed or error}.")
    return "\n\n".join(parts) + "\n"


def _code(text: str) -> str:
    return f"```python\n{text.strip()}\n```"
