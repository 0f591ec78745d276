"""The public API: the user's options in, a compiled callable out.

``compile`` wraps a function, a method or an ``nn.Module``; nothing is captured before the first
call. The wrapper has the same call signature and, for modules, the same class, attributes,
parameters and hooks.
"""

from __future__ import annotations

import copy
import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, TypedDict, TypeVar, Unpack, overload

import torch
from torch.compiler import is_dynamo_compiling

from anyshape.capture.guards.execution_modes import is_traced
from anyshape.capture.guards.marks import Mark, set_mark
from anyshape.capture.interpreter import versions
from anyshape.declare import Declaration, declare
from anyshape.dispatch import Compiled, Explanation, Stats, parameters_of
from anyshape.dispatch.ranks import warn_once
from anyshape.driver import Driver
from anyshape.errors import PERFORMANCE, AnyshapeError
from anyshape.nouns import mutable, replace
from anyshape.options import Options, from_user
from anyshape.runtime.profile import measure
from anyshape.torch_arguments import translate

SUPPORTED = tuple(versions.VERSIONS)
F = TypeVar("F", bound=Callable[..., Any])

_COMPILED: weakref.WeakSet[Compiled] = weakref.WeakSet()


class Settings(TypedDict, total=False):
    """What ``compile`` takes beside the function: all that ``torch.compile`` takes, and what is
    declared of sizes."""

    fullgraph: bool
    dynamic: bool | None
    backend: Any
    mode: str | None
    options: Mapping[str, object] | None
    name: str | None
    disable: bool
    recompile_limit: int | None
    isolate_recompiles: bool
    shapes_spec: Any
    shapes: Mapping[str, Any] | None
    assumptions: Iterable[str] | None


@overload
def compile(fn: F, **settings: Unpack[Settings]) -> F: ...
@overload
def compile(fn: None = None, **settings: Unpack[Settings]) -> Callable[[F], F]: ...
def compile(
    fn: Callable[..., Any] | None = None,
    *,
    model: Callable[..., Any] | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = "default",
    options: Mapping[str, object] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
    shapes: Mapping[str, Any] | None = None,
    assumptions: Iterable[str] | None = None,
) -> Any:
    """Compiles a function, method or module: one compile serves every shape.

    ``fullgraph``: a graph break is an error. ``dynamic``: ``None`` and ``True`` make every size of
    every argument symbolic (``True``: numbers among the arguments too, from the first call on),
    ``False`` makes all static. ``mode`` and ``options``: see
    ``anyshape.options``.
    ``shapes`` and ``assumptions`` declare sizes: ``shapes={"x": "batch time 64", "return": "batch
    2*time"}, assumptions=["time <= 4096"]``; see docs/how-to-declare-sizes.md.
    What else ``torch.compile`` takes: ``model`` is ``fn``, ``recompile_limit`` the option
    ``max_variants``, ``shapes_spec`` becomes ``shapes``, ``name`` is what profiles call it;
    recompiles are isolated in any case, and ``backend`` and inductor's options change nothing, of
    which one warning each tells.
    Works as a decorator, with and without arguments. Where nothing can be compiled (another Python
    version, no C compiler) it warns once and runs eagerly; so it does, without a word, with
    ``disable=True``. What it returns has ``stats()`` and the like in any case.

    >>> fast = anyshape.compile(model)                                             # doctest: +SKIP
    """
    given = translate(backend, options, recompile_limit, shapes_spec)
    for note in given.notes:
        warn_once(note)
    chosen = from_user(mode, given.options, fullgraph=fullgraph, dynamic=dynamic)
    stated = [assumptions] if isinstance(assumptions, str) else assumptions or ()
    declaration = declare({**(given.shapes or {}), **(shapes or {})}, [*given.assumptions, *stated])
    fn = model if fn is None else fn
    if fn is None:
        return functools.partial(
            _compile, options=chosen, disable=disable, declaration=declaration, name=name
        )
    return _compile(fn, chosen, disable, declaration, name)


def _compile(
    fn: Callable[..., Any],
    options: Options,
    disable: bool,
    declaration: Declaration | None = None,
    name: str | None = None,
) -> Any:
    if not callable(fn):
        raise AnyshapeError("E104", kind=f"a {type(fn).__name__}")
    if isinstance(fn, CompiledFunction) or _compiled_class(type(fn)):
        return fn
    reason = _unsupported()
    if reason is not None:
        warn_once(reason)
    options = replace(options, disable=options.disable or disable)
    eager = options.disable or reason is not None
    if declaration is not None and not eager:
        parameters_of(fn).check(declaration)
    compiled = _Lazy(fn, options, declaration, name or name_of(fn), eager=eager)
    if isinstance(fn, torch.nn.Module):
        return _compiled_module(fn, compiled)
    return CompiledFunction(fn, compiled)


def name_of(fn: Callable[..., Any]) -> str:
    """The qualified name of a function or a method, the class of a module."""
    return getattr(fn, "__qualname__", type(fn).__qualname__)


def _unsupported() -> AnyshapeError | None:
    if sys.version_info[:2] in SUPPORTED and sys.implementation.name == "cpython":
        return None
    version = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
    return AnyshapeError("E603", version=version, supported=versions.NAMES)


@mutable(eq=False)
class _Lazy:
    """What a wrapper holds: the function, its options, and the machinery from the first call on."""

    fn: Callable[..., Any]
    options: Options
    declaration: Declaration | None = None
    name: str = ""  # what profiles call it
    machinery: Compiled | None = None
    compiled: Callable[..., Any] | None = None  # the call of the machinery: a method that is bound
    eager: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.compiled is None and not self.eager:
            self.start()
        return (self.compiled or self.fn)(*args, **kwargs)

    def settings(self) -> tuple[Options, bool, Declaration | None, str]:
        """How to compile another function in the same way: the arguments of `_compile`."""
        return self.options, False, self.declaration, self.name

    def start(self) -> Compiled | None:
        """The machinery; None, with one warning, where no C compiler is found."""
        with self.lock:
            if self.machinery is None and not self.eager:
                try:
                    driver = Driver.create(self.options, self.name)
                except AnyshapeError as error:
                    self.eager = True
                    warn_once(error)
                    return None
                self.machinery = Compiled(
                    self.fn, self.options, driver.compile_graph, self.declaration
                )
                self.compiled = self.machinery.__call__
                _COMPILED.add(self.machinery)
            return self.machinery


class CompiledFunction:
    """A compiled function; as a class attribute it binds like one."""

    def __init__(self, fn: Callable[..., Any], lazy: _Lazy) -> None:
        functools.update_wrapper(self, fn)
        self._lazy = lazy

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():  # Dynamo, which reads this line, traces the function itself
            return self._lazy.fn(*args, **kwargs)
        lazy = self._lazy
        return (lazy.compiled or lazy)(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<anyshape.compile({getattr(self._lazy.fn, '__qualname__', self._lazy.fn)})>"

    @property
    def __code__(self) -> types.CodeType:
        """The function's own: what traces asks which arguments it takes."""
        code: types.CodeType = self._lazy.fn.__code__
        return code

    @property
    def __defaults__(self) -> tuple[Any, ...] | None:
        """The function's own. What has code, defaults and a name is a function to ``inspect``, and
        a coroutine function where its code says so."""
        defaults: tuple[Any, ...] | None = self._lazy.fn.__defaults__
        return defaults

    @property
    def __kwdefaults__(self) -> dict[str, Any] | None:
        """The function's own."""
        defaults: dict[str, Any] | None = self._lazy.fn.__kwdefaults__
        return defaults

    def __reduce__(self) -> tuple[Any, ...]:
        return _compile, (self._lazy.fn, *self._lazy.settings())

    def uncompiled(self) -> Callable[..., Any]:
        """The function itself."""
        return self._lazy.fn

    def declaration(self) -> Declaration | None:
        """The sizes that are declared of it."""
        return self._lazy.declaration

    def stats(self) -> Stats:
        """The counts so far: specializations, graph breaks, kernels, calls, seconds..."""
        machinery = self._lazy.machinery
        return Stats() if machinery is None else machinery.stats()

    def guards(self) -> str:
        """What is relied on, and by which line of the user's code."""
        machinery = self._lazy.machinery
        return "" if machinery is None else machinery.guards()

    def graphs(self) -> list[str]:
        """The captured graphs, each a Python function that runs."""
        machinery = self._lazy.machinery
        return [] if machinery is None else machinery.graphs()

    def code(self) -> str:
        """The generated kernels and the host code that launches them."""
        machinery = self._lazy.machinery
        return "" if machinery is None else machinery.code()

    def kernels(self, *args: Any, **kwargs: Any) -> str:
        """The generated kernels: a line for each, with its name, its operators and the lines of the
        user's code that they come from, and the bytes that it moves.

        With arguments the function is called with them, six times, under torch's profiler: then the
        line says how many microseconds a launch takes (on a GPU, of the device), what share of a
        large copy's speed it moves these bytes at, and which of its schedules it ran with.
        """
        times = measure(lambda: self(*args, **kwargs)) if args or kwargs else {}
        machinery = self._lazy.machinery
        return "" if machinery is None else machinery.kernels(times)

    def recompiles(self) -> list[str]:
        """Why each specialization after the first was made: which guard failed, with which
        values."""
        machinery = self._lazy.machinery
        return [] if machinery is None else machinery.recompiles()


def _compiled_class(cls: type) -> bool:
    return "_anyshape_original" in cls.__dict__


def _compiled_module(module: torch.nn.Module, lazy: _Lazy) -> torch.nn.Module:
    """A module of a subclass made for it, which shares ``__dict__`` with the original."""
    compiled = CompiledFunction(module, lazy)
    original = type(module)

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling() or is_traced():  # what traces it knows this instance by its name
            return original.__call__(self, *args, **kwargs)
        return (lazy.compiled or lazy)(*args, **kwargs)

    namespace = {
        "_anyshape_original": original,
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__call__": call,
        "__reduce__": lambda self: (_compile, (module, *lazy.settings())),
        "__reduce_ex__": lambda self, protocol: (_compile, (module, *lazy.settings())),
        "__deepcopy__": lambda self, memo: _compile(copy.deepcopy(module, memo), *lazy.settings()),
        **{name: staticmethod(getattr(compiled, name)) for name in INSPECTION},
    }
    subclass: type[torch.nn.Module] = types.new_class(
        original.__name__, (original,), exec_body=lambda body: body.update(namespace)
    )
    instance = object.__new__(subclass)  # whatever its class does for new modules
    object.__setattr__(instance, "__dict__", module.__dict__)
    return instance


INSPECTION = ("stats", "guards", "graphs", "code", "kernels", "recompiles")


def explain(fn: Callable[..., Any], **settings: Any) -> Callable[..., Explanation]:
    """``explain(fn)(*args)`` runs ``fn`` once and lists every graph break: id, reason, line,
    hint."""
    declaration = declare(settings.pop("shapes", None), settings.pop("assumptions", None))
    if isinstance(fn, CompiledFunction):
        declaration = declaration or fn.declaration()
        fn = fn.uncompiled()
    options = from_user(**settings)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        driver = Driver.create(options)
        machinery = Compiled(fn, options, driver.compile_graph, declaration)
        machinery.slow_paths |= PERFORMANCE  # all of it is listed
        machinery(*args, **kwargs)
        return machinery.explain()

    return run


def mark_dynamic(
    tensor: torch.Tensor,
    dim: int,
    *,
    name: str | None = None,
    min: int = 0,
    max: int | None = None,
) -> None:
    """The size of ``dim`` must stay symbolic: an error if anything would specialize it."""
    set_mark(tensor, dim, Mark("dynamic", name, min, max))


def mark_unbacked(
    tensor: torch.Tensor,
    dim: int,
    *,
    name: str | None = None,
    min: int = 0,
    max: int | None = None,
) -> None:
    """The size of ``dim`` is never guarded on; a branch on it must join, or breaks the graph."""
    set_mark(tensor, dim, Mark("unbacked", name, min, max))


def mark_static(tensor: torch.Tensor, dim: int) -> None:
    """The size of ``dim`` is a constant; another size is another specialization."""
    set_mark(tensor, dim, Mark("static"))


def check(condition: bool, message: str | Callable[[], str] | None = None) -> None:
    """States a fact about sizes, as ``torch._check``: tested while running, relied on while
    compiling."""
    if not condition:
        raise RuntimeError(message() if callable(message) else message or "check failed")


def is_compiling() -> bool:
    """True while anyshape captures; False in plain Python. Answered by the interpreter."""
    return False


def reset() -> None:
    """Forgets every specialization of every compiled function; the next calls capture again."""
    for compiled in list(_COMPILED):
        compiled.reset()
