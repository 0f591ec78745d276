"""What differs between the versions of CPython beside their opcodes, which are in `opcodes.py` and
`instructions.py`: a row of facts for each version.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType

from anyshape.nouns import frozen, replace

PYTHON = sys.version_info[:2]


@frozen
class Version:
    """How one version of CPython runs a program."""

    leaves_ended: bool
    """FOR_ITER and SEND leave what has ended on the stack, for END_FOR and END_SEND."""
    generators_guard_themselves: bool
    """Their own code makes a RuntimeError of a StopIteration that leaves them (PEP 479)."""
    close_gives_result: bool
    """`generator.close()` gives what the generator returned."""
    checks_made_causes: bool
    """`raise ... from C` asks whether what `C()` gives is an exception."""
    warns_of_thrown_parts: bool
    """`generator.throw(type, value, traceback)` is deprecated."""
    subsets_intersect: bool
    """`set.issubset` asks for no more items once it has found every element."""
    reverse_is_number: bool
    """`list.sort` takes `reverse` as a number, not as true or false."""
    unwraps_classes: bool
    """`inspect.unwrap` follows the `__wrapped__` of a class."""
    empty: str
    """What `min` and `max` say of no items."""
    class_word: str
    """What a pattern's class must be."""
    without_dict: str
    """What is added where an attribute is set on an object that takes none."""


_V311 = Version(
    leaves_ended=False,
    generators_guard_themselves=False,
    close_gives_result=False,
    checks_made_causes=False,
    warns_of_thrown_parts=False,
    subsets_intersect=False,
    reverse_is_number=True,
    unwraps_classes=True,
    empty="arg is an empty sequence",
    class_word="type",
    without_dict="",
)
_V312 = replace(
    _V311,
    leaves_ended=True,
    generators_guard_themselves=True,
    warns_of_thrown_parts=True,
    subsets_intersect=True,
    reverse_is_number=False,
    empty="iterable argument is empty",
    class_word="class",
)
_V313 = replace(
    _V312,
    close_gives_result=True,
    checks_made_causes=True,
    unwraps_classes=False,
    without_dict=" and no __dict__ for setting new attributes",
)

VERSIONS: Mapping[tuple[int, int], Version] = MappingProxyType(
    {(3, 11): _V311, (3, 12): _V312, (3, 13): _V313}
)
VERSION = VERSIONS.get(PYTHON, _V313)
*_FIRST, _LAST = ("{}.{}".format(*version) for version in VERSIONS)
NAMES = f"CPython {', '.join(_FIRST)} and {_LAST}"
