"""What most calls find, where data decides: something rather than nothing, and finite numbers
(``expected_numbers.py``).

    if rows.numel() == 0: continue               ->  check(rows.numel() != 0)
    torch.bincount(x, minlength=8).tolist()      ->  check(len(...) == 8)

In: a condition, or a length, that neither facts nor both sides of a branch decide. Out: what is
expected of it, which a check tests while the program runs: where it fails the segment has not
happened, and the call runs natively. Dispatch captures again, without, where that is often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anyshape.capture.interpreter.frame import Code, Frame
from anyshape.capture.recording.expected_numbers import ExpectedNumbers
from anyshape.nouns import mutable
from anyshape.ops.context import TypeContext
from anyshape.ops.dynamic import SOME
from anyshape.symbolic import Condition, Dim, Expr, Symbol, eq, evaluate, symbols_of

MOST = 256  # things that a loop over as many as there can be goes through


@mutable
class Expectations:
    """Those of one capture. ``allowed``: calls have not denied them, and a break is no error.
    ``nothing_raises``: a side that can only raise is not the one that data says; ``raising``: that
    was relied on."""

    allowed: bool = True
    nothing_raises: bool = True
    raising: bool = False
    texts: dict[str, None] = field(default_factory=dict)
    jumps: set[tuple[Code, int]] = field(default_factory=set)  # where one was relied on
    numbers: ExpectedNumbers = field(default_factory=ExpectedNumbers)

    def side(self, cx: TypeContext, condition: Condition, frame: Frame) -> bool | None:
        """The expected truth of a jump's condition, checked from here on; None where nothing is
        expected: where it does not ask whether there is something, or a function calls itself."""
        if not self.allowed or cx.on_check is None or _is_recursive(frame):
            return None
        expected = _of_some(condition, cx.hints)
        if expected is not None:
            self._relied_on(cx, condition if expected else ~condition)
            self.jumps.add((frame.code, frame.index))
        return expected

    def truth(self, cx: TypeContext, truth: bool | None, frame: Frame, what: str) -> bool | None:
        """The same of a number that data decides. The caller makes the check."""
        if truth is None or not self.allowed or cx.on_check is None or _is_recursive(frame):
            return None
        self._note(cx, what if truth else f"not {what}")
        self.jumps.add((frame.code, frame.index))
        return truth

    def knows(self, frame: Frame) -> bool:
        """Has this jump been taken as expected before?"""
        return (frame.code, frame.index) in self.jumps

    def length(self, cx: TypeContext, size: Dim) -> int | None:
        """The bound that the program has given a length, above 0; None where there is none. In a
        fork no check may be made."""
        if not self.allowed or cx.on_check is None or not isinstance(size, Expr):
            return None
        low, high = cx.facts.bounds(size)
        bound = low or high
        if not bound or bound > MOST or any(symbol in cx.hints for symbol in symbols_of(size)):
            return None
        self._relied_on(cx, eq(size, bound))
        return bound

    def _relied_on(self, cx: TypeContext, condition: Condition | bool) -> None:
        text = str(condition)
        cx.require(condition, f"expected of data: {text}")
        self._note(cx, text)

    def _note(self, cx: TypeContext, text: str) -> None:
        self.texts[f"{text}  # {cx.location}" if cx.location else text] = None


def _of_some(condition: Condition, hints: Mapping[Symbol, int]) -> bool | None:
    """The truth of a condition on one number that data decides, if it is the same for all numbers
    of things and another one for none."""
    unknown = [symbol for symbol in condition.symbols if symbol not in hints]
    if len(unknown) != 1:
        return None
    try:
        none, *others = (bool(evaluate(condition, {**hints, unknown[0]: n})) for n in (0, *SOME))
    except (KeyError, ValueError, ZeroDivisionError):
        return None
    return others[0] if len({*others}) == 1 and none is not others[0] else None


def _is_recursive(frame: Frame) -> bool:
    """Data ends the recursion: it would not end here."""
    outer = frame.back
    while outer is not None:
        if outer.code is frame.code:
            return True
        outer = outer.back
    return False
