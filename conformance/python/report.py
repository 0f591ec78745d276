"""The page of the exam, docs/python.md: a row a module, the first reasons, and what is not right.

In: the methods with their outcomes. Out: text.
"""

from __future__ import annotations

import platform
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from conformance.python.results import Method

COLUMNS = ("right", "break", "E901", "wrong", "hang", "unjudged")
NOT_RIGHT = ("wrong", "hang", "E901", "unjudged")

HEAD = """# Python as Python has it

CPython's own tests (`Lib/test` of Python {version}), each method called by a compiled function
between two tensor operations: natively first, then under `fullgraph=True` and `False`, each in a
process of its own. `make exam` runs them all and writes this page (that of another version:
[3.11](python.md), [3.12](python-3.12.md), [3.13](python-3.13.md)); `make test` runs a sample.
Methods that do not pass natively, or take longer than five seconds there, are not counted.
{part}

- **one graph**: right, under `fullgraph=True` too
- **breaks**: right, with graph breaks; `fullgraph=True` says where
- **E901**: a mistake of ours is met, and said; the function runs natively
- **wrong**: another result than CPython's, under either
- **unjudged**: the exam's own code fails after the method, whose result is not known
- **peer's terms**: one graph where `unittest`'s `clear_frames` and `subTest` are left out, as in
  Dynamo's port of these tests
- **interpreted**: no part of the function was left to CPython as a whole
"""


RANDOM = """## Random programs

`tests/fuzz_python` grows programs of Python from a seed: containers of containers and of
themselves, classes with special methods and of builtin types, generators, closures, exceptions
in handlers, `with`, `match`, augmented assignment on every target, aliases between what lies
outside and locals, with operations on a tensor between. Half of them run with a break after
every first, second, third or any instruction. Compared with CPython are results, what lies
outside afterwards, who is the same object, the order of effects, and what is raised, with
causes, contexts and lines, over three calls of one compiled function. `make test` runs seeds 0
to 499; `make fuzz-python PROGRAMS=200000` runs more, goes on where it was stopped and prints
what differs by cause; `tests/fuzz_python/test_hash_seeds.py` runs some under other seeds of hashes.
Seeds 1355, 1467, 1469, 1490, 2018 and 910077 are known to differ. What was found and
mended is in
`tests/capture/python/test_found_by_fuzzing.py`, `test_in_place.py` and
`test_what_c_asks_of_iterables.py`.

Not compared, because it differs:

- who is who among bound methods of C (`values.append`) that a program is handed and gives back
- the order in which a set is iterated over, and the type of an iterator behind a break
- `f_lineno` of a frame that still runs: the line that raised
- `__len__` of a class that is iterated over by `__getitem__` alone, which C asks for a hint
- a `__hash__` that raises or notes that it was called, on keys of a dict or set made before a
  break
"""


def page(methods: Sequence[Method], every: int = 1, absent: Iterable[str] = ()) -> str:
    """The page, of every n-th method of each module but those that are `absent`."""
    counted = [m for m in methods if m.counted]
    rows = defaultdict(list)
    for method in counted:
        rows[method.module].append(method)
    parts = [
        HEAD.format(version=platform.python_version(), part=_part(every, sorted(absent))),
        _table(rows, counted),
    ]
    parts += [_reasons(counted), _bad(counted), ""]
    return "\n".join(parts)


def _part(every: int, absent: Sequence[str]) -> str:
    said = "" if every == 1 else f"\nThis page was made of one method in {every} of each module.\n"
    return said + (f"\nNot run here: {', '.join(absent)}.\n" if absent else "")


def summary(methods: Iterable[Method]) -> str:
    """One line."""
    counted = [m for m in methods if m.counted]
    kinds = Counter(m.kind for m in counted)
    peers = sum(m.for_peers == "right" for m in counted)
    told = ", ".join(f"{kind} {kinds[kind]} ({_share(kinds[kind], counted)})" for kind in COLUMNS)
    return (
        f"{len(counted)} methods: {told}; one graph on the peer's terms {_share(peers, counted)}; "
        f"interpreted {_share(sum(map(_interpreted, counted)), counted)}"
    )


def _share(part: int, whole: Sequence[object]) -> str:
    return f"{100 * part / max(len(whole), 1):.1f} %"


def _interpreted(method: Method) -> bool:
    return method.outcomes["pieces"].interpreted


def _table(rows: dict[str, list[Method]], counted: Sequence[Method]) -> str:
    titles = ("module", "methods", "one graph", "breaks", "E901", "wrong", "hangs", "unjudged",
              "peer's terms", "interpreted")  # fmt: skip
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += [_row(name, rows[name]) for name in sorted(rows)]
    lines.append(_row("**all**", counted))
    return "\n".join([*lines, ""])


def _row(name: str, methods: Sequence[Method]) -> str:
    kinds = Counter(m.kind for m in methods)
    peers = sum(m.for_peers == "right" for m in methods)
    cells = [name, len(methods), *(kinds[kind] for kind in COLUMNS)]
    cells += [peers, _share(sum(map(_interpreted, methods)), methods)]
    return "| " + " | ".join(map(str, cells)) + " |"


def _reasons(counted: Sequence[Method]) -> str:
    """The first reasons for breaks on the peer's terms, the most frequent ones."""
    found = Counter(
        family(m.outcomes.get("peers", m.outcomes["whole"]).why)
        for m in counted
        if m.for_peers == "break"
    )
    lines = [f"| {count} | {text} |" for text, count in found.most_common(40)]
    head = ["## First reasons for breaks (peer's terms)", "", "| methods | reason |", "|---|---|"]
    return "\n".join([*head, *lines, ""])


def family(why: str) -> str:
    """A reason without names of one program's objects."""
    what = why.split(" | ")[0]
    return re.sub(r"0x[0-9a-f]+", "0x", what).replace("|", "/")[:120]


def _bad(counted: Sequence[Method]) -> str:
    lines = ["## Not right", ""]
    for kind in NOT_RIGHT:
        bad = sorted((m.module, m.name, m.why) for m in counted if m.kind == kind)
        if bad:
            lines += [f"### {kind} ({len(bad)})", ""]
            lines += [f"- `{module}:{name}` {_quoted(why)}" for module, name, why in bad]
            lines.append("")
    return "\n".join(lines) if len(lines) > 2 else "## Not right\n\nNothing.\n"


FOLDERS = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")
"""Where a file lies on the machine of the exam."""


def _quoted(why: str) -> str:
    text = FOLDERS.sub("", why).replace("`", "'").replace("<", "&lt;").replace("\n", " ")
    return re.sub(r"0x[0-9a-f]+|\d{9,}", "...", text)[:140]


KNOWN = re.compile(r"^- `(\S+):(\S+)`", re.MULTILINE)


def known_bad(text: str) -> set[tuple[str, str]]:
    """The methods that a page says are not right."""
    return {(module, name) for module, name in KNOWN.findall(text)}
