"""Every error that a user can see: a code, what happened, why, what to do, and the user's own
line with a caret.

Comes in: a code of `CODES` with the values of its templates, or texts of one's own, and the line
in the user's source. Goes out: one exception whose text is the whole story, in the form that
STYLE fixes (see `render`). docs/errors.md is made from this table.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import linecache
import platform
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import Protocol

from anyshape.interrupts import is_interrupt
from anyshape.nouns import frozen, mutable


class SourceLocation(Protocol):
    """Where in the user's source something happened; `ir.Location` is one. Columns count UTF-8
    bytes from 0.
    """

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int | None: ...
    @property
    def function(self) -> str | None: ...
    @property
    def column(self) -> int | None: ...
    @property
    def end_column(self) -> int | None: ...


@frozen
class Template:
    """What an error of one code says; {names} are filled from the values given with it."""

    what: str
    why: str = ""
    hint: str = ""


# E1xx how anyshape was called; E2xx what capture met; E3xx sizes; E4xx operators and types;
# E5xx passes and scheduling; E6xx kernels and the C compiler; E9xx our own
# mistakes.
CODES: Mapping[str, Template] = MappingProxyType(
    {
        "E101": Template(
            "unknown option {name!r}",
            "anyshape.compile(options=...) takes only the options that anyshape.options lists",
            "{near}",
        ),
        "E102": Template(
            "option {name!r} cannot be {value!r}",
            "it takes {expected}",
            "leave it out to have {default!r}",
        ),
        "E103": Template(
            "unknown mode {name!r}",
            "modes are named sets of options",
            "{near}",
        ),
        "E104": Template(
            "cannot compile {kind}",
            "anyshape.compile takes a function, a method or an nn.Module",
            "wrap it in a function",
        ),
        "E105": Template(
            "this needs the package {package!r}, which is not installed",
            "{purpose}",
            "pip install 'anyshape[{extra}]'",
        ),
        "E106": Template(
            "unknown model {name!r}",
            "the demo knows only the models that anyshape.tools.models lists",
            "{near}",
        ),
        "E107": Template(
            "{argument} of torch.compile is ignored: {because}",
        ),
        "E108": Template(
            "torch.compile(backend='anyshape'): anyshape compiles what Dynamo has captured",
            "so a size is a constant until Dynamo has seen a second value of it, 0 and 1 stay "
            "constants, and Dynamo's graph breaks and recompiles stand",
            "anyshape.install() has torch.compile use anyshape's own capture",
        ),
        "E109": Template("there is no graph break {name!r}", "", "{near}"),
        "E151": Template(
            "{block} cannot be turned into an anyshape.moe.MoE",
            "{why}",
            "blocks of these classes can: {known}",
        ),
        "E152": Template(
            "the ranks disagree about {subject}: {name}",
            "{listed}",
            "give every rank of the group the same {name}",
        ),
        "E153": Template(
            "anyshape.moe layers have no gradients",
            "they are for inference; without this error a gradient would silently miss the experts",
            "call the model under torch.no_grad(), or train with the original block",
        ),
        "E154": Template(
            "another rank did not answer within {seconds} s",
            "it died, hangs, or does not make the same calls",
            "look at the other ranks' logs; Mesh.of_world(timeout=...) sets how long to wait",
        ),
        "E201": Template(
            "{what}",
            "{why}",
            "{hint}",
        ),
        "E210": Template(
            "this branch depends on tensor data",
            "the values of a tensor are not known while compiling",
            "use torch.where, or let the graph break here with fullgraph=False",
        ),
        "E211": Template(
            "{callable} is not known to capture",
            "it may have effects, so it cannot be called while compiling",
            "call it outside, or let the graph break here with fullgraph=False",
        ),
        "E212": Template(
            "this branch depends on a size that only the data decides",
            "{condition} is neither known to be true nor known to be false",
            "anyshape.check({condition})",
        ),
        "E214": Template(
            "the length of this list depends on tensor data",
            "{name} is a tensor; its values are not known while compiling",
            "index with the tensor itself, or bound the length with anyshape.check(...)",
        ),
        "E220": Template(
            "capture took more than {budget} {unit}",
            "the budget keeps a long Python loop from becoming an endless compile",
            "raise options={{{option!r}: ...}}, or move the loop out of the compiled function",
        ),
        "E221": Template(
            "a new specialization is needed, and none may be made",
            "{guard}",
            "torch.compiler.set_stance is 'fail_on_recompile': warm these sizes up before it",
        ),
        "E222": Template(
            "this has {count} specializations, and may have no more",
            "{why}",
            "calls that none of them fits run eagerly, and ever more seldom take the oldest one's "
            "place; make what varies a tensor or a size, or raise options={{'max_variants': ...}}",
        ),
        "E230": Template(
            "graph break{where}: {reason}",
            "the program is cut here: {before} before it run as one segment, nothing is fused "
            "across the cut, and to go on behind it takes about {cost} us a call",
            "{remedy}; `anyshape breaks {id}` says more, and anyshape.explain(fn)(...) lists all",
        ),
        "E231": Template(
            "eager torch runs this graph of {count}: {reason}",
            "the operators run one by one, right and no faster than without anyshape",
            "options={{'fallback': 'error'}} makes it an error; fast.stats().eager_ops counts them",
        ),
        "E232": Template(
            "calls of {name} under {mode} run natively",
            "it sees each operator of eager torch as it runs, and compiled code has none to show",
            "leave {mode} to have it compiled; calls outside of it are",
        ),
        "E233": Template(
            "each call needs a specialization of its own",
            "it hands on an object that belongs to one call: a class that is made in it, or an "
            "object made in it that a function with functools.lru_cache was handed",
            "make the class, or call that function, outside of what is compiled; {then}",
        ),
        "E234": Template(
            "the mode asks for CUDA graphs, and no graph is replayed here: {reason}",
            "each step is launched in each call, right and no faster than in the default mode",
            "{remedy}; fast.kernels() says it of each part of the program",
        ),
        "E301": Template(
            "{dim} was marked dynamic, but the program needs it to be {value}",
            "{why}",
            "remove mark_dynamic, or make the line work for every size",
        ),
        "E310": Template(
            "cannot read this declaration",
            "{why}",
            "{hint}",
        ),
        "E311": Template(
            "dimension {dim} of {argument} is {value}, but {size} is declared",
            "{because}{argument} is declared {rule!r}",
            "pass {argument} with that size, or change its declaration",
        ),
        "E312": Template(
            "{argument} has {rank} dimensions, but {expected} are declared",
            "{argument} is declared {rule!r}",
            "pass {argument} with that rank, or begin its declaration with ...",
        ),
        "E313": Template(
            "{argument} is {kind}, but a shape is declared of it",
            "{because}{argument} is declared {rule!r}",
            "pass a tensor there, or leave its declaration out",
        ),
        "E314": Template(
            "the assumption {rule!r} does not hold",
            "{why}",
            "pass arguments of other sizes, or leave the assumption out",
        ),
        "E315": Template(
            "dimension {dim} of {argument} is {value}, but {size} is declared",
            "{because}{argument} is declared {rule!r}",
            "the program makes another size: change it, or the declaration of its result",
        ),
        "E316": Template(
            "{argument} has {rank} dimensions, but {expected} are declared",
            "{argument} is declared {rule!r}",
            "the program makes another rank: change it, or the declaration of its result",
        ),
        "E317": Template(
            "{dim} is {value}, but was marked with {mark}",
            "{why}",
            "pass a tensor of another size, or mark it otherwise",
        ),
        "E401": Template(
            "operator {op} cannot be compiled",
            "{why}",
            "leave out options={{'fallback': 'error'}} to run it eagerly inside the graph",
        ),
        "E402": Template(
            "{op}: {message}",
            "eager torch rejects these arguments as well",
            "",
        ),
        "E501": Template(
            "pass {name!r} changed a result",
            "{why}",
            "this is a bug in anyshape: please report the graph that fast.graphs() prints",
        ),
        "E502": Template(
            "{name} made something malformed",
            "{why}",
            "this is a bug in anyshape: please report the graph that fast.graphs() prints",
        ),
        "E601": Template(
            "no C compiler was found",
            "kernels are C, compiled on this machine; {tried} cannot be run",
            "install gcc or clang, or set CC; until then the program runs eagerly",
        ),
        "E602": Template(
            "the C compiler failed",
            "{output}",
            "this part runs eagerly instead, and the next two calls try again; if the compiler has "
            "disk and memory enough, please report all of this, with the program if you can",
        ),
        "E603": Template(
            "this Python is {version}; anyshape reads the bytecode of {supported}",
            "opcodes differ from version to version",
            "use a supported Python; until then the program runs eagerly",
        ),
        "E604": Template(
            "the address sanitizer's runtime is not loaded",
            "C that is built with options={{'sanitize': True}} calls it, and it must come first",
            "start Python with LD_PRELOAD set to what gcc -print-file-name=libasan.so prints",
        ),
        "E901": Template(
            "a mistake in anyshape itself, in {stage}",
            "{why}",
            "your program is not at fault, and this part runs eagerly instead; please report all "
            "of this, with the program if you can",
        ),
    }
)


class AnyshapeError(Exception):
    """An error with a code; `what`, `why` and `hint` default to the code's templates filled with
    `values`.
    """

    def __init__(
        self,
        code: str,
        what: str | None = None,
        why: str | None = None,
        hint: str | None = None,
        location: SourceLocation | None = None,
        **values: object,
    ) -> None:
        template = CODES.get(code, Template(""))
        self.code = code
        self.what = _fill(template.what, values) if what is None else what
        self.why = _fill(template.why, values) if why is None else why
        self.hint = _fill(template.hint, values) if hint is None else hint
        self.location = location
        super().__init__(code, self.what, self.why, self.hint, location)

    def __str__(self) -> str:
        return render(self.code, self.what, self.why, self.hint, self.location)

    def at(self, location: SourceLocation | None) -> AnyshapeError:
        """The same error, at this location."""
        return type(self)(self.code, self.what, self.why, self.hint, location)


class GraphBreakError(AnyshapeError):
    """A graph break under `fullgraph=True`."""


MISTAKES = frozenset({"E602", "E901"})
"""Codes of failures that are ours, not the user's: the segment runs natively instead."""

PACKAGE = str(PurePath(__file__).parent)
OURS = (PACKAGE, "<anyshape ")
"""Beginnings of the files of our code, and of what is made."""

INSTEAD = "this part runs eagerly instead"
RAISED = "leave out fullgraph=True and options={'fallback': 'error'} to run this part eagerly"
"""What the hints of mistakes say of the program, where it goes on and where it does not."""

PASSING = frozenset({"E602"})
"""Those of them that may be over by the next call, such as a compiler killed for memory."""


@mutable(eq=False)
class stage_of:
    """A failure inside is a mistake of ours: E901, with the name of the stage and the location."""

    stage: str
    location: Callable[[], SourceLocation | None] = lambda: None

    def __enter__(self) -> None:
        """Nothing is done before."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, AnyshapeError):
            if error.code in MISTAKES and error.location is None:
                raise error.at(self.location()) from error
        elif isinstance(error, Exception) and not is_interrupt(error):
            raise mistake(self.stage, error, self.location()) from error


def mistake(
    stage: str, why: str | BaseException, location: SourceLocation | None = None
) -> AnyshapeError:
    """E901, with the line of ours that an exception comes from, and the versions."""
    if isinstance(why, BaseException):
        why = "\n".join([said(why), *origin(why)])
    return AnyshapeError("E901", location=location, stage=stage, why=f"{why}\n({versions()})")


def raised(why: AnyshapeError) -> AnyshapeError:
    """A mistake of ours where nothing may run eagerly: it says what allows that."""
    hint = why.hint.replace(INSTEAD, RAISED)
    return type(why)(why.code, why.what, why.why, hint, why.location)


def origin(error: BaseException) -> list[str]:
    """Where in this package the exception comes from, if it does."""
    while error.__cause__ is not None:
        error = error.__cause__
    calls = traceback.extract_tb(error.__traceback__)
    ours = [call for call in calls if call.filename.startswith(PACKAGE)]
    if not ours:
        return []
    file = PurePath(ours[-1].filename).relative_to(PurePath(PACKAGE).parent)
    return [f"raised in {ours[-1].name}, {file}:{ours[-1].lineno}"]


@functools.cache
def versions() -> str:
    """Those that a report needs."""

    def version(name: str) -> str:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            return f"{name} of a folder"

    return f"{version('anyshape')}, {version('torch')}, Python {platform.python_version()}"


def said(error: BaseException) -> str:
    """The class and the text of an exception, on as many lines as it has."""
    return f"{type(error).__name__}: {error}"


class AnyshapeWarning(UserWarning):
    """Something runs eagerly, or without the cache, that was meant to be compiled."""


class PerformanceWarning(UserWarning):
    """All is right and as it was meant, and slower than it could be."""


PERFORMANCE = frozenset({"E230", "E231", "E232", "E233", "E234"})
"""Codes of what is reported by a `PerformanceWarning`."""


def warn(why: AnyshapeError) -> None:
    """A warning at the line, outside of this package, that led here."""
    category = PerformanceWarning if why.code in PERFORMANCE else AnyshapeWarning
    warn_outside(str(why), category)


def warn_outside(
    message: str | Warning, category: type[Warning] | None = None, beyond: int = 0
) -> None:
    """Warns of the line, outside of this package and of the code that it makes, that led here; or
    of the one that is `beyond` calls further out."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + beyond)


def _fill(template: str, values: Mapping[str, object]) -> str:
    try:
        return template.format(**values)
    except (KeyError, IndexError, AttributeError):
        return template


def render(
    code: str, what: str, why: str = "", hint: str = "", location: SourceLocation | None = None
) -> str:
    """The text of an error: code and what, the user's line, why, and one thing to do."""
    lines = [f"{code} {what}"]
    if location is not None:
        lines += render_location(location)
    if why:
        lines.append(f"why:  {_hang(why)}")
    if hint:
        lines.append(f"hint: {_hang(hint)}")
    return "\n".join(lines)


def _hang(text: str) -> str:
    return text.replace("\n", "\n      ")


def render_location(location: SourceLocation) -> list[str]:
    """`--> file:line, in function`, the source line if it can be read, and a caret under the
    columns if they are known.
    """
    where = f"{PurePath(location.file).name}:{location.line}"
    if location.function:
        where += f", in {location.function}"
    lines = [f"  --> {where}"]
    source = linecache.getline(location.file, location.line).rstrip() if location.line else ""
    if not source:
        return lines
    number = str(location.line).rjust(3)
    lines.append(f"  {number} | {source}")
    caret = _caret(source, location.column, location.end_column)
    if caret:
        lines.append(f"  {' ' * len(number)} | {caret}")
    return lines


def underlined(location: SourceLocation) -> str:
    """The part of the source line that the columns name; empty where it cannot be read."""
    source = linecache.getline(location.file, location.line).rstrip() if location.line else ""
    return source[slice(*_span(source, location.column, location.end_column))]


def _span(source: str, column: int | None, end_column: int | None) -> tuple[int, int]:
    """Characters of bytes `column..end_column` of `source`; to the end of the line where the
    expression goes on; none where the column is not known.
    """
    if column is None:
        return 0, 0
    encoded = source.encode()
    start = len(encoded[:column].decode(errors="ignore"))
    if end_column is None or end_column <= column:
        return start, len(source)
    return start, len(encoded[:end_column].decode(errors="ignore"))


def _caret(source: str, column: int | None, end_column: int | None) -> str:
    """The underline of what `_span` names."""
    start, stop = _span(source, column, end_column)
    if column is None or start >= len(source):
        return ""
    pad = "".join("\t" if character == "\t" else " " for character in source[:start])
    return pad + "^" * max(1, stop - start)
