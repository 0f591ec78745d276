"""What happens at each call: guards choose a segment, the trampoline runs between segments, a miss
is captured.

Stands above capture and runtime, and knows both; the driver's `compile_graph` is handed to it.
"""

from anyshape.dispatch.callables import parameters_of
from anyshape.dispatch.compiled import Compiled
from anyshape.dispatch.stats import Explanation, Stats
from anyshape.known_builtins import keep

__all__ = ["Compiled", "Explanation", "Stats", "parameters_of"]

keep("anyshape.capture.", "anyshape.dispatch.", "anyshape.runtime.")
