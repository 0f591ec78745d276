"""What one capture has recorded: graph, facts, guards, inputs, modes; it can go back to a mark.

In: what the interpreter meets. Out: wrapped `Value`s, and in the end what `segments` needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from types import CodeType
from typing import Any

import torch

from anyshape.capture.guards import execution_modes
from anyshape.capture.guards.constant_kinds import CONSTANTS, is_simple
from anyshape.capture.guards.declared import DeclaredSizes
from anyshape.capture.guards.guard_code import (
    Binding,
    Guard,
    NumberBinding,
    ScalarGuard,
    SizeGuard,
)
from anyshape.capture.guards.identities import distinct_objects
from anyshape.capture.guards.marks import Mark
from anyshape.capture.guards.overlaps import refuse_overlaps
from anyshape.capture.guards.reliance import Reliance
from anyshape.capture.guards.tensor_specs import (
    DTYPE_OF_TORCH,
    TensorSpec,
    contiguous_strides,
    device_text,
    permuted_strides,
    refuse_unless_plain,
)
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.sources import Source, Sources
from anyshape.capture.heap.values import Break, ScalarValue, SizeValue, TensorValue
from anyshape.capture.interpreter.control_flow import targets_of
from anyshape.capture.interpreter.frame import Frame, locate, users_frame
from anyshape.capture.recording.autocast import Casting
from anyshape.capture.recording.called import Called
from anyshape.capture.recording.choices import Choices
from anyshape.capture.recording.entry_sizes import (
    argument_shape,
    argument_strides,
    with_own_strides,
)
from anyshape.capture.recording.example_run import ExampleRun
from anyshape.capture.recording.expected import Expectations
from anyshape.capture.recording.gradients import propagate
from anyshape.capture.recording.image_order import in_eager_order
from anyshape.capture.recording.integers import with_integers
from anyshape.capture.recording.marks import RecorderMark
from anyshape.capture.recording.number_checks import check_numbers
from anyshape.capture.recording.refused_calls import refuse_in_vain
from anyshape.capture.recording.replaced_tensors import Replaced, with_replaced
from anyshape.capture.recording.scalar_contents import ScalarContents
from anyshape.declare import BoundDeclaration
from anyshape.errors import origin, said
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import Input, InputKind, Location, Modes, ScalarType, TensorType, Value
from anyshape.ir.origins import made_by, origins
from anyshape.ir.scalars import (
    Operand,
    Scalar,
    ScalarInput,
    comparisons_with,
    evaluate_scalar,
    names_of,
    render_scalar,
    scalar_inputs,
)
from anyshape.nouns import mutable, replace
from anyshape.ops import refusals
from anyshape.ops.autocast import COMPOSED
from anyshape.ops.build import Builder
from anyshape.ops.context import NoRow, OpError, TypeContext, Undecided
from anyshape.ops.table import OPS
from anyshape.symbolic import (
    Condition,
    Contradiction,
    Dim,
    Expr,
    Facts,
    Space,
    Symbol,
    eq,
    evaluate,
)


@mutable(eq=False)
class Recorder:
    """The growing record of one segment."""

    dynamic: bool = True
    space: Space = field(default_factory=Space)
    sources: Sources = field(default_factory=Sources)
    hints: dict[Symbol, int] = field(default_factory=dict)
    guards: dict[tuple[Any, ...], Guard] = field(default_factory=dict)
    relied: Reliance = field(init=False)
    sizes: list[SizeGuard] = field(default_factory=list)
    entry_sizes: list[SizeGuard] = field(default_factory=list)  # these outlive forks
    given: list[tuple[Condition | bool, object]] = field(default_factory=list)  # so do these facts
    declared: DeclaredSizes | None = None
    front: Callable[[Sequence[Any]], bool] | None = None  # the test of what is declared
    named_sizes: dict[str, Expr] = field(default_factory=dict)
    symbol_names: dict[Symbol, str] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)
    input_sources: list[tuple[Source, Value]] = field(default_factory=list)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    parameters: list[torch.Tensor] = field(default_factory=list)
    hooks: list[dict[Any, Any]] = field(default_factory=list)
    marked: list[tuple[Symbol, Mark, str]] = field(default_factory=list)
    locations: dict[tuple[CodeType, int], Location] = field(default_factory=dict)
    scalars: list[ScalarGuard] = field(default_factory=list)
    scalar_hints: dict[ScalarInput, float] = field(default_factory=dict)
    bound: dict[Scalar, Expr] = field(default_factory=dict)
    named: dict[Scalar, ScalarInput] = field(default_factory=dict)
    written: dict[Value, None] = field(default_factory=dict)
    spent: set[Value] = field(default_factory=set)  # results whose gradients have been taken
    takes_gradients: bool = True  # are calls of `torch.autograd.grad` captured?
    taken: set[Value] = field(default_factory=set)  # what they have given
    runs: dict[str, ExampleRun] = field(default_factory=dict)  # by the device that they ran on
    layouts_read: bool = False  # has the program asked how a tensor lies since then?
    laid: dict[Value, None] = field(default_factory=dict)  # whose strides have been asked for
    replaced: Replaced = field(default_factory=Replaced)
    identified: dict[Source, None] = field(default_factory=dict)  # what was compared by identity
    changed: set[type] = field(default_factory=set)  # the classes of outside objects written
    values: bool = True  # may a program rely on the values of what differs from call to call?
    picks_are_views: bool = False  # is `x[i]`, with a number in a tensor, never a copy?
    own_strides: bool = False  # do types say those of an argument's dimensions of one element?
    asked: dict[Value, None] = field(default_factory=dict)  # of what they are views, and where
    whole: bool = False  # is a break an error, so that a float's value is rather relied on?
    expected: Expectations = field(default_factory=Expectations)
    refused: frozenset[Location] = frozenset()  # calls that eager refuses, by its own word
    checkpoints: bool = True  # are calls of `torch.utils.checkpoint` that record captured?
    checkpointed: int = 0  # how many of them there have been
    resumed: bool = False  # does the segment begin behind a graph break?
    depth: int = 0  # forks that are open
    premise: Operand | None = None  # on which side of what data decides; None on one of sizes
    frame: Callable[[], Frame | None] | None = None  # gives the current one
    contents: ScalarContents = field(default_factory=ScalarContents)
    calls: list[Called] = field(default_factory=list)
    choices: Choices = field(default_factory=Choices)
    entry_modes: execution_modes.TorchModes = field(default_factory=execution_modes.current_modes)
    entry_snapshot: tuple[Any, ...] = field(default_factory=execution_modes.snapshot)
    modes: execution_modes.TorchModes = field(init=False)
    cx: TypeContext = field(init=False)
    builder: Builder = field(init=False)
    _node_modes: tuple[execution_modes.TorchModes, Modes] | None = None
    hooked: dict[int, Any] = field(default_factory=dict)
    _tensors: dict[int, tuple[torch.Tensor, TensorValue, Source]] = field(default_factory=dict)
    _proxies: dict[Value, tuple[torch.Tensor, TensorValue, Source]] = field(default_factory=dict)
    _measured: dict[Source, SizeValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.modes = self.entry_modes
        self.relied = Reliance(self.sources)
        self.cx = TypeContext(self.space, Facts(self.space), self.hints)
        self.cx.on_guard = self.guard_size
        self.builder = Builder(self.cx)
        self.cx.on_check = self.builder.check

    @property
    def is_dropped(self) -> bool:
        """Whether what is recorded now may be dropped again, so that nothing may be relied on."""
        return self.depth > 0 and self.premise is None

    # ---- sources and guards ----------------------------------------------------------------------
    def location(self) -> Location | None:
        """The user's line that is being executed."""
        if self.frame is None or (frame := users_frame(self.frame())) is None:
            return None
        code, index = frame.code, max(frame.index - 1, 0)
        if (key := (code.code, index)) not in self.locations:
            self.locations[key] = locate(code, index)
        return self.locations[key]

    def last_location(self) -> Location | None:
        """The user's line that is being executed, or the last one that did something."""
        return self.location() or self.builder.location

    def here(self) -> None:
        """What is made and learned from now on belongs to the user's line being executed."""
        self.builder.location = self.cx.location = self.location()

    def guard(self, source: Source, kind: str, expected: Any) -> None:
        """Relies on one atom; said twice is said once."""
        if type(expected) in CONSTANTS or (type(expected) is tuple and is_simple(expected)):
            key: tuple[Any, ...] = (id(source), kind, type(expected), expected)
        else:  # no code of the program is to run
            key = (id(source), kind, id(expected))
        if key in self.guards:
            return
        self.guards[key] = Guard(source, kind, expected, self.location())

    def is_the_same(self, obj: Any) -> bool:
        """Whether an object is the very one in each call: one that has no source, or is one, is."""
        source = self.sources.of(obj)
        if source is None or source.kind == "const":
            return True
        return any((id(source), kind, id(obj)) in self.guards for kind in ("is", "refers"))

    def guard_identities(self) -> None:
        """Relies on different objects being different ones, where that matters."""
        first, *others = distinct_objects(
            self.sources, self.identified, frozenset(self.changed)
        ) or [None]
        if first is not None:
            self.guard(first, "distinct", tuple(others))

    def guard_size(self, condition: Condition) -> None:
        """Relies on a relation between sizes (the facts learn it from whoever asked)."""
        self.sizes.append(SizeGuard(condition, self.location(), self.symbol_names))

    def decide(self, condition: Condition | bool) -> bool:
        """The truth of a condition, by facts or by a guard; breaks where neither can be."""
        self.here()
        try:
            return self.cx.decide_without_data(condition)
        except Undecided as undecided:
            raise self._not_decided(undecided.condition) from None

    def rely(self, condition: Condition | bool) -> None:
        """Relies on what holds in the example; breaks where what is checked of data denies it."""
        if not self.decide(condition):
            raise self._not_decided(condition)

    def decide_or_check(self, condition: Condition | bool, message: str) -> bool:
        """As `decide` for what should be true: where data decides, it is checked while running."""
        if isinstance(condition, bool) or self.cx.hint(condition) is not None:
            return self.decide(condition)
        if (known := self.cx.known(condition)) is not None:
            return known
        try:
            self.cx.require(condition, message)
        except Undecided as undecided:
            raise self._not_decided(undecided.condition) from None
        return True

    def _not_decided(self, condition: Condition | bool) -> Break:
        return broken("undecided-size", condition=self.condition_text(condition))

    def condition_text(self, condition: Condition | bool) -> str:
        """An undecided condition as the user would write it: the side that the example is on."""
        try:
            holds = bool(evaluate(condition, self.hints))
        except (KeyError, ValueError, ZeroDivisionError):
            holds = True
        side = condition if holds or isinstance(condition, bool) else ~condition
        return str(side) if isinstance(side, bool) else self.spelled(side)

    def spelled(self, what: Dim | Condition | Scalar) -> str:
        """Python text in which sizes are read off the arguments."""
        return render_scalar(what, lambda s: self.symbol_names.get(s, s.name), lambda n: n.name)

    def specialize(self, expr: Dim, why: str) -> int:
        """The value of a size as a plain int, guarded."""
        expr = self.cx.facts.simplify(expr)
        if not isinstance(expr, Expr):
            return expr
        value = self.hint_of(expr)
        if value is None or self.is_dropped or not self.values:
            raise self._needed(value, why, expr)
        relied_on = len(self.sizes)
        self.rely(eq(expr, value))
        self.tells_value(relied_on)
        return value

    def tells_value(self, relied_on: int) -> None:
        """What was relied on of sizes since then says what they are."""
        self.sizes[relied_on:] = [replace(guard, by_value=True) for guard in self.sizes[relied_on:]]

    def count(self, size: Dim, why: str) -> int:
        """How many items there are, guarded, or checked to be as many as the program unpacks."""
        wanted = None if self.depth else self.unpacked()
        size = self.cx.facts.simplify(size)
        self.here()
        if wanted is None or self.hint_of(size) is not None:
            return self.expected.length(self.cx, size) or self.specialize(size, why)
        try:
            self.cx.require(eq(size, wanted), f"{why}: expected {wanted} values to unpack")
        except OpError:
            return self.specialize(size, why)
        return wanted

    def unpacked(self) -> int | None:
        """How many values Python takes apart of the result of this very instruction."""
        return None if self.frame is None else targets_of(self.frame())

    def decide_scalar(self, scalar: Any, *, by_value: bool = False) -> bool:
        """The truth of a scalar, guarded on the hint's side; breaks where data is in it."""
        value = self.scalar_hint(scalar)
        if value is None or self.is_dropped:
            raise self.undecided(scalar)
        self.scalars.append(ScalarGuard(scalar, bool(value), self.location(), by_value))
        return bool(value)

    def undecided(self, scalar: Any) -> Break:
        """The break at a branch on a number that is not known here."""
        if any(unknown not in self.scalar_hints for unknown in scalar_inputs(scalar)):
            return broken("tensor-branch")
        return broken("undecided-size", condition=self.spelled(scalar))

    def specialize_scalar(self, scalar: Any, why: str) -> Any:
        """The value of a float over sizes, guarded."""
        value = self.scalar_hint(scalar)
        of_data = not self.whole and any(scalar_inputs(scalar))
        if value is None or self.is_dropped or of_data or not self.values:
            raise self._needed(None if of_data else value, why)
        for test in comparisons_with(scalar, value):
            self.decide_scalar(test, by_value=True)
        return value

    def _needed(self, value: Any, what: str, expr: Expr | None = None) -> Break:
        kind = "size-needed" if value is None or self.is_dropped else "size-changes"
        if expr is None:
            return broken(kind, what=what)
        where = self._origin(expr)
        known = expr.symbols <= self.hints.keys()
        example = int(evaluate(expr, self.hints)) if known else 1
        check = f"anyshape.check({self.condition_text(eq(expr, example))}), or "
        return broken(kind, what=what, first="" if where else check, where=where)

    def _origin(self, expr: Expr) -> str:
        """Where the sizes in it that only data decides are made, for the reader of a message."""
        made = dict(origins(self.builder.nodes))
        found = [made_by(made[s]) for s in sorted(expr.symbols, key=str) if s in made]
        return "".join(f"; the number comes from {text}" for text in dict.fromkeys(found))

    def is_symbolic(self, value: Any) -> bool:
        """Whether a value of the virtual stack is a number that is another one in other calls."""
        if type(value) is SizeValue:
            return isinstance(self.cx.facts.simplify(value.expr), Expr)
        return type(value) is ScalarValue and value.kind is not bool

    def is_known(self, scalar: Any) -> bool:
        """Whether a scalar is computed from what is known when the function is called."""
        return all(
            name in self.scalar_hints or name in self.hints and name.policy == "backed"
            for name in names_of(scalar)
        )

    def scalar_hint(self, scalar: Any) -> Any:
        """The example value of a scalar; None where it depends on data."""
        try:
            inputs = {unknown: self.scalar_hints[unknown] for unknown in scalar_inputs(scalar)}
            return evaluate_scalar(scalar, self.hints, inputs)
        except KeyError:
            return None

    def hint_of(self, expr: Dim) -> int | None:
        """The example value, None where a symbol has none."""
        if not isinstance(expr, Expr):
            return expr
        if any(s not in self.hints or s.policy != "backed" for s in expr.symbols):
            return None
        return int(evaluate(expr, self.hints))

    def forget(self) -> None:
        """Lets go of the objects that were read; sources and guards name what they rely on."""
        self._tensors.clear()
        self._proxies.clear()
        self.sources.forget()
        self.frame = self.cx.on_guard = self.cx.on_check = None  # no cycle is left

    # ---- forks -----------------------------------------------------------------------------------
    def mark(self) -> RecorderMark:
        """Remembers graph, facts and modes; guards on outside objects stay in any case."""
        return RecorderMark(
            self.builder.mark(),
            self.cx.facts,
            len(self.sizes),
            self.modes,
            len(self.bindings),
            len(self.constants),
            len(self.given),
            len(self.scalars),
        )

    def rollback(self, mark: RecorderMark) -> None:
        """Goes back to the mark, except for inputs: an argument that was read stays an argument."""
        self.builder.rollback(mark.builder.keeping_inputs(self.builder.mark()))
        self.restore_facts(mark)
        del self.sizes[mark.sizes :], self.scalars[mark.scalars :]
        self.modes = mark.modes

    def restore_facts(self, mark: RecorderMark) -> None:
        """The facts of the mark, and what was learned of arguments since."""
        self.cx.facts = mark.facts
        for condition, reason in self.given[mark.given :]:
            self.cx.facts.assume(condition, reason)

    # ---- modes -----------------------------------------------------------------------------------
    def node_modes(self) -> Modes:
        """The modes of a node made now."""
        if self._node_modes is None or self._node_modes[0] is not self.modes:
            self._node_modes = (self.modes, self.modes.of_nodes())
            self.cx.default_dtype = self._node_modes[1].default_dtype
            self.cx.default_device = self._node_modes[1].default_device
        return self._node_modes[1]

    # ---- nodes -----------------------------------------------------------------------------------
    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Appends one row's application to the graph; breaks where eager would raise."""
        builder, grad = self.builder, self.modes.grad
        args, kwargs = with_replaced(self.replaced, builder, self.spent, name, args, kwargs, grad)
        if name == "item" and (content := self.contents.read(self.builder, args[0])) is not None:
            return content
        refuse_in_vain(name, self.premise)
        self.here()
        builder.modes = self.node_modes()
        before = len(builder.nodes)
        counted = name in OPS and OPS[name].counted and not self.depth
        self.cx.wanted = self.unpacked() if counted else None
        try:
            if any(on for on, _ in self.modes.autocast):
                casting = Casting(builder, self.modes.autocast)
                args, kwargs = casting.arguments(name, args, kwargs)
                builder.prepare = casting.arguments if name in COMPOSED else None
            known = self.specialize, self.specialize_scalar, self.decide, self.decide_scalar
            args, kwargs = with_integers(builder, self.contents, name, args, kwargs, *known)
            args, kwargs = in_eager_order(builder, name, args, kwargs)
            refusals.refuse_dtypes(name, (*args, *kwargs.values()))
            refusals.refuse_ranks(name, args, kwargs)
            if grad and name in refusals.UNDIFFERENTIABLE:
                refusals.refuse_gradients(name, args, kwargs)
            refuse_overlaps(builder, name, args, kwargs)
            refusals.refuse_numbers(name, args, kwargs)
            check_numbers(builder, name, args, kwargs)
            if builder.location in self.refused:
                raise OpError("eager raises for arguments like these")
            made = builder.call(name, *args, **kwargs)
        except NoRow as error:
            raise broken("operator-unknown", what=name, why=str(error), row=False) from None
        except OpError as error:
            raise broken("operator-raises", what=name, why=str(error)) from None
        except Undecided as undecided:
            raise broken(
                "undecided-size", what=name, condition=self.condition_text(undecided.condition)
            ) from None
        except Contradiction as error:
            raise broken("operator-raises", what=name, why=str(error)) from None
        except Exception as error:  # eager torch tells whose mistake it is
            if is_interrupt(error):
                raise
            why = said(error)
            mistake = "\n".join([f"the type rule of {name}: {why}", *origin(error)])
            raise broken("operator-raises", what=name, why=why, mistake=mistake) from error
        finally:
            builder.prepare = None
        propagate(self.cx, builder.nodes, before, self.modes.grad)
        self.contents.note(builder, before, None if self.depth else self.cx.facts)
        if len(builder.nodes) > before:
            self.calls.append(Called(name, args, kwargs, made, builder.location, not self.depth))
        return made

    def wrap(self, made: Any) -> Any:
        """Values of the graph as they lie on the virtual stack."""
        if isinstance(made, tuple):
            return tuple(self.wrap(item) for item in made)
        if not isinstance(made, Value):
            return made
        if isinstance(made.type, TensorType):
            return TensorValue(made)
        number = made.type.expr
        if isinstance(number, Expr):
            return SizeValue(number)
        return ScalarValue(number, {"float": float, "bool": bool}[made.type.kind])

    # ---- inputs ----------------------------------------------------------------------------------
    def declare(self, binding: BoundDeclaration) -> DeclaredSizes:
        """Takes the declaration of this call; from now on arguments have declared sizes."""
        self.declared = DeclaredSizes(binding, self.learn)
        return self.declared

    def learn(self, condition: Condition | bool, reason: object) -> None:
        """A fact about arguments that holds in every call: it outlives the fork it is met in."""
        if condition is not True:
            self.given.append((condition, reason))
            self.cx.facts.assume(condition, reason)

    def tensor(
        self, tensor: torch.Tensor, source: Source, shape: tuple[Dim, ...] | None = None
    ) -> TensorValue:
        """The proxy of a real tensor found at `source`; one tensor has one proxy."""
        if (known := self._tensors.get(id(tensor))) is not None:
            if known[2] is not source and not source.is_pinned:
                self.guard(source, "same", known[2])
            elif known[2] is not source and not known[2].is_pinned:
                self.guard(known[2], "same", source)
            return known[1]
        refuse_unless_plain(tensor)
        if source.is_pinned and shape is None:  # with a shape, its elements may lie elsewhere
            value = self._static(tensor, source)
        else:
            value = self._argument(tensor, source, shape)
        proxy = TensorValue(value, type(tensor))
        proxy.identified = partial(self.identified.setdefault, source, None)
        self._tensors[id(tensor)] = self._proxies[value] = (tensor, proxy, source)
        return proxy

    def real_tensor(self, proxy: TensorValue) -> torch.Tensor | None:
        """The outside tensor that a proxy stands for, if it is one."""
        known = self._proxies.get(proxy.value)
        return None if known is None else known[0]

    def proxy_of(self, value: Value) -> TensorValue | None:
        """The proxy of an input of the graph that is a tensor."""
        known = self._proxies.get(value)
        return None if known is None else known[1]

    def source_of(self, value: Value) -> Source | None:
        """Where an input of the graph comes from; None for what the graph makes."""
        known = self._proxies.get(value)
        return None if known is None else known[2]

    def constant(self, tensor: torch.Tensor, name: str) -> Value:
        """A tensor made while capturing, baked into the segment."""
        return self._static(tensor, self.sources.const(tensor, name), "constant")

    def _static(self, tensor: torch.Tensor, source: Source, kind: InputKind = "parameter") -> Value:
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        dtype, device = DTYPE_OF_TORCH[tensor.dtype], device_text(tensor.device)
        made = TensorType(dtype, device, shape, strides, tensor.requires_grad)
        value = self.builder.input(made, kind, source.text)
        self.constants[value.name] = tensor
        self.parameters.append(tensor)
        return value

    def _argument(
        self, tensor: torch.Tensor, source: Source, shape: tuple[Dim, ...] | None
    ) -> Value:
        spec = TensorSpec.guarding(tensor)
        self.guard(source, "tensor", spec)
        if shape is None:
            shape = argument_shape(self, tensor, source)
        if spec.layout == "contiguous":
            strides = contiguous_strides(shape)
        elif spec.layout == "permuted":
            strides = permuted_strides(shape, spec.order)
        else:
            strides = argument_strides(self, tensor, source)
        if self.own_strides and spec.layout != "strided":
            shape, strides = with_own_strides(self, tensor, source, shape, strides)
        dtype, device = DTYPE_OF_TORCH[tensor.dtype], device_text(tensor.device)
        made = TensorType(dtype, device, shape, strides, tensor.requires_grad)
        value = self.builder.input(made, "argument", source.text)
        self.input_sources.append((source, value))
        return value

    def number(self, value: int | float, source: Source) -> Any:
        """A Python number handed in that has had more than one value: symbolic."""
        self.guard(source, "type", type(value))
        if type(value) is int:
            return self._integer(value, source, signed=True)
        unknown = ScalarInput(self.space.free_name("f"), "float")
        self.scalar_hints[unknown] = value
        self.bindings.append(NumberBinding(source, unknown))
        self.handed_in(Value(unknown.name, ScalarType("float", unknown)), source)
        return ScalarValue(unknown, float)

    def length(self, value: int, source: Source) -> SizeValue:
        """The length of a container, which has had more than one: symbolic."""
        return self.measured(value, self.sources.child(source, "len", None))

    def measured(self, value: int, source: Source, *, signed: bool = False) -> SizeValue:
        """A number that each call reads anew at a source; one source has one symbol."""
        if source not in self._measured:
            self._measured[source] = self._integer(value, source, signed=signed)
        return self._measured[source]

    def _integer(self, value: int, source: Source, *, signed: bool = False) -> SizeValue:
        symbol = self.space.fresh("n", signed=signed)
        self.hints[symbol.symbol] = value  # type: ignore[index] # a fresh one is a symbol
        self.number_input(symbol, source, "number")
        return SizeValue(symbol)

    def number_input(self, symbol: Expr, source: Source, what: str) -> None:
        """An int input of the graph that gives a symbol; code is generated by the symbol's name."""
        found = symbol.symbol
        assert found is not None
        self.symbol_names[found] = source.text
        if what == "number":
            self.bindings.append(NumberBinding(source, found))
        self.handed_in(Value(found.name, ScalarType("int", symbol)), source)

    def handed_in(self, number: Value, source: Source) -> None:
        """A number that is an input of the graph."""
        self.builder.inputs.append(Input(number, "argument", source.text))
        self.input_sources.append((source, number))
