"""The control-flow graph of a code object: what may follow an instruction, and where paths meet.

In: a decoded code object and an instruction's index. Out: indices of instructions; RETURN stands
for the end of the frame. Exceptions are left out.
"""

from __future__ import annotations

from anyshape.capture.interpreter.frame import Code, Frame

RETURN = -1
ENDS = ("RETURN_VALUE", "RETURN_CONST")
RAISES = ("RAISE_VARARGS", "RERAISE")


def successors(code: Code, index: int) -> list[int]:
    """The instructions that may follow `index`; RETURN for the end of the frame; exceptions
    left out."""
    name, _ = code.opcodes[index]
    if name in ENDS:
        return [RETURN]
    if name in RAISES:
        return []
    target = code.instructions[index][1]
    if name in ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"):
        return [target]
    if "JUMP" in name or name == "FOR_ITER":
        return [index + 1, target]
    if name == "SEND":
        return [index + 1, getattr(target, "target", index + 1)]
    return [index + 1]


def targets_of(frame: Frame | None) -> int | None:
    """How many targets the result of the current instruction is assigned to, as in
    ``q, k, v = x.chunk(3)``: Python raises where it has another length."""
    while frame is not None:
        current = frame.code.opcodes[max(frame.index - 1, 0) : frame.index + 1]
        for name, arg in current:
            if name == "UNPACK_SEQUENCE":
                return int(arg)
        if frame.continuation or current[-1][0] != "RETURN_VALUE":
            return None
        frame = frame.back
    return None


def only_raises(code: Code, start: int) -> bool:
    """Whether no path from an instruction returns, except through an exception."""
    found = reachable(code, start)
    return RETURN not in found and len(code.instructions) not in found


def ends_loop(code: Code, index: int) -> bool:
    """Whether a jump has a side that comes back to it and one that does not."""
    sides = [index in reachable(code, side) for side in successors(code, index)]
    return any(sides) and not all(sides)


def reachable(code: Code, start: int) -> set[int]:
    """The instructions on all paths from one on, itself included, exceptions left out."""
    waiting, seen = [start], {start}
    while waiting:
        index = waiting.pop()
        if index != RETURN and index < len(code.instructions):
            new = set(successors(code, index)) - seen
            seen |= new
            waiting += new
    return seen


def copies(code: Code) -> list[int]:
    """For each instruction the last of those that do the same from there to the end of the frame:
    CPython 3.12 gives each side of a branch its own copy of a short end (`x * (1 if c else 2)`)."""
    last: dict[tuple[object, ...], int] = {}
    same = list(range(len(code.instructions) + 1))
    for i in range(len(code.instructions) - 1, -1, -1):
        name, arg = code.opcodes[i]
        following = [j if j == RETURN else same[j] for j in successors(code, i)]
        row = code.handled_by[i]
        handled = row and (row.target, row.depth, row.lasti)
        target = "JUMP" in name or len(following) > 1  # then the raw argument is a distance
        kind = (name, None if target else arg, code.lines[i], handled, *following)
        same[i] = last.setdefault(kind, i)
    return same


def meeting_point(code: Code, index: int) -> tuple[int, frozenset[int]]:
    """The immediate postdominator of an instruction, and with it all its copies; RETURN where the
    paths meet only at the frame's return."""
    count = len(code.instructions)
    same = copies(code)
    reach = postdominators(code, same)
    mine = reach[index] & ~(1 << same[index])
    best, size = RETURN, -1
    for candidate in range(count):
        if mine >> candidate & 1:
            covered = bin(reach[candidate]).count("1")
            if covered > size:
                best, size = candidate, covered
    return best, frozenset(i for i in range(count) if same[i] == best)


def postdominators(code: Code, same: list[int]) -> list[int]:
    """For each instruction the set (as bits) of instructions that every path from it to a
    return passes, itself included; a copy is what it is a copy of."""
    count = len(code.instructions)
    everything = (1 << count) - 1
    sets = [everything] * count
    following = [successors(code, i) for i in range(count)]
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            common = everything
            for j in following[i]:
                common &= 0 if j == RETURN or j >= count else sets[j]
            found = common | (1 << same[i]) if following[i] else everything
            if found != sets[i]:
                sets[i] = found
                changed = True
    return sets
