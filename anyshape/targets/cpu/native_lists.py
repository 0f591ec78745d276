"""A list of launches as C: what its text is, whatever buffers and sizes the launches are on.

In: a ``LaunchList``. Out: lines over ``v``, ``n``, ``f`` and ``a`` (``native.py``): ``a`` has an
item for each launch, which says where its operands are, and its cells last. One team of threads
does the whole list: of launches that are ``divided``, each thread does the same number of cells, of
as many launches as it takes; of others, whole launches, where there are enough of them and none is
large, else all do one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyshape.costs import COSTS
from anyshape.ir.program import LaunchList
from anyshape.nouns import frozen
from anyshape.targets.cpu.c_loops import cell_cost

UNIT = 64
"""Cells that no two threads share, so that few write to one line of the cache."""


ALONE = "#pragma omp parallel num_threads(1)"
"""A kernel shares its loops among the threads of the innermost team, which is to be this thread."""


@frozen
class Table:
    """Where the items are: ``function`` and ``count`` (how many items) as text, the first item
    begins at ``a[begin]``, and each has so many elements."""

    function: str
    count: str
    begin: int
    width: int


def list_lines(
    launches: LaunchList, operands: Sequence[tuple[str, str]], table: Table
) -> list[str]:
    """The lines; ``operands`` are the type and the text of each operand of the function, of which
    the first cell and their number come last where they are ``divided``."""
    types = [kind for kind, _ in operands] + ["long", "long"] * launches.divided
    args = [text for _, text in operands] + ["first, end - first"] * launches.divided
    call = f"((void (*)({', '.join(types)})){table.function})({', '.join(args)});"
    least = COSTS.cells_for_threads(cell_cost(launches.launches[0].kernel))
    item = f"const long *item = a + {table.begin} + k * {table.width}; "
    item += f"long size = n[item[{table.width - 1}]];"
    each = f"for (long k = 0; k < {table.count}; k++)"
    sums = [
        "long cells = 0, most = 0;",
        f"{each} {{ {item} cells += size; most = size > most ? size : most; }}",
    ]
    if launches.divided:
        return [*sums, *_by_cells(item, each, call, least)]
    return [*sums, *_whole(item, each, call, table.count, least)]


def _by_cells(item: str, each: str, call: str, least: int) -> list[str]:
    return [
        f"#pragma omp parallel if (cells > {least})",
        "{",
        "    long of = omp_get_num_threads(), at = 0;",
        f"    long share = (cells / of / {UNIT} + 1) * {UNIT};",
        "    long from = share * omp_get_thread_num(), to = from + share;",
        f"    {ALONE}",
        f"    {each} {{",
        f"        {item}",
        "        long first = from > at ? from - at : 0, end = to - at < size ? to - at : size;",
        f"        if (first < end) {call}",
        "        at += size;",
        "    }",
        "}",
    ]


def _whole(item: str, each: str, call: str, count: str, least: int) -> list[str]:
    shared = f"cells > {least} && most <= {COSTS.whole_launch * least}"
    return [
        f"if ({shared} && {count} >= omp_get_max_threads()) {{",
        "    #pragma omp parallel for schedule(dynamic)",
        f"    {each} {{",
        f"        {item}",
        f"        {ALONE}",
        f"        {call}",
        "    }",
        f"}} else {each} {{ {item} {call} }}",
    ]
