"""The results of a compiled graph as eager's lie: strides, offsets, storages, and which are views.

In: the function of a compiled graph, and the captured graph. Out: the function that also asks
eager torch, once for each pattern of sizes or layouts, where only those tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from anyshape.ir.graph import Graph
from anyshape.ops import OPS
from anyshape.passes.ambiguous_layouts import ambiguous_layouts
from anyshape.passes.ambiguous_offsets import ambiguous_offsets
from anyshape.passes.copied_storages import copied_storages
from anyshape.passes.outputs import detached_bases, outputs_as_views
from anyshape.passes.refused_views import refused_views
from anyshape.passes.sure_copies import sure_copies
from anyshape.runtime.chosen_layouts import empty_as_eager, layouts_as_eager
from anyshape.runtime.copied_storages import CopiedStorages
from anyshape.runtime.refused_views import RefusedViews
from anyshape.runtime.result_layouts import (
    EagerLayouts,
    EagerOffsets,
    Run,
    offsets_as_eager,
    without_views,
)


def results_as_eager(
    run: Run, graph: Graph, lent: Iterable[int], constants: Mapping[str, torch.Tensor]
) -> Run:
    """``run`` itself where nothing is to be asked. ``lent``: the positions of results that lie in
    the memory of arguments."""
    copied = sure_copies(graph, OPS)
    usual, odd, lines = [
        None
        if found is None
        else EagerLayouts.of(found.graph, found.outputs, constants, inside, found.where_empty)
        for found, inside in zip(ambiguous_layouts(graph, OPS, copied), (True, False, False))
    ]
    never, sometimes = outputs_as_views(graph, lent, OPS)
    ambiguous = ambiguous_offsets(graph, OPS, sometimes, copied)
    run = empty_as_eager(layouts_as_eager(run, graph, usual, odd), graph, odd)
    run = layouts_as_eager(run, graph, None, lines)
    if ambiguous is not None:
        own = ambiguous.graph, ambiguous.outputs, ambiguous.moved, ambiguous.lent
        run = offsets_as_eager(run, EagerOffsets(*own, ambiguous.where_empty, constants))
    if (copies := copied_storages(graph, OPS)) is not None:
        run = CopiedStorages(*copies, constants).after(run)
    for views in refused_views(graph, OPS):
        run = RefusedViews(views, constants).before(run, graph)
    return without_views(run, never, detached_bases(graph, OPS))
