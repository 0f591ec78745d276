"""What things cost, in one place: policy only, no result depends on it.

In: nothing. Out: ``COSTS``, one frozen record that scheduling, printing and dispatch ask. The
numbers were measured on the machine of docs/benchmarks.md; ``python -m benchmarks.costs`` measures
them on this one, and prints them beside these."""

from __future__ import annotations

from anyshape.nouns import frozen


@frozen
class CostModel:
    """Times in microseconds; the decisions that follow from them are methods."""

    segment_us: float = 60.0
    """From one segment to the next: flatten frames, test guards, make the frames that go on."""
    instruction_us: float = 1.0
    """One bytecode instruction that is interpreted between segments."""
    operator_us: float = 2.0
    """What an operator of a compiled graph saves over eager torch, whatever its size."""
    element_us: float = 0.0002
    """What it saves for each element of the largest tensor."""
    eager_operator_us: float = 6.0
    """One small operator of eager torch."""
    patience: int = 3
    """Calls that lost, one after the other, before a function is called natively."""
    retry_calls: int = 32
    """Calls after which segments are tried again, and then after twice as many."""
    retry_growth: int = 4
    """How much larger than in the calls that lost an argument may be."""
    few_elements: int = 1 << 15
    """A tensor of more is worth fusing even for few operators."""
    threads_cells: int = 1 << 15
    """Cells of a kernel, weighted by what they cost, below which threads cost more than they
    bring."""
    whole_launch: int = 8
    """Times so many cells as are worth threads: a launch of a list that has more is shared by
    threads even where each could do one of its own."""
    kernel_operators: int = 96
    """Of one kernel: more make its compile longer, and save little memory traffic."""
    kernel_parts: int = 16
    """Parts that the joins of one kernel have in all: its code has a loop for each."""
    nested_joins: int = 4
    """Joins and pads of joins and pads in one kernel: what lies below is written once for each
    way."""
    kernels_alike: int = 8
    """Kernels that differ in whole numbers alone, from which on one is handed these numbers: each
    takes the compiler about 30 ms, and constants make each a little faster."""
    region_steps: int = 2
    """Computing steps from which on one C function runs them: a call of it costs one call."""
    long_region_steps: int = 8
    """From so many on, the last ones are a native region of their own: their outputs are not
    allocated while the arena of the others is alive."""
    long_gpu_region_steps: int = 4
    gpu_region_steps: int = 32
    """The same on a GPU, whose memory is scarcer, and of how many steps one is: what they leave is
    allocated before them."""
    replayed_steps: int = 4
    replayed_call: int = 3
    """Computing steps of a native region on a GPU from which on it may be a graph of the device's,
    whose launch costs what one of theirs does, and looking for it half of that; and as how many of
    them a library's call counts."""
    kept_nodes: int = 16
    """Of a graph whose translation is kept on disk: of fewer it takes as long as looking there."""
    interpreted_instructions: int = 5_000
    """Run between segments before a segment is tried again."""

    def is_loss(self, segments: int, operators: int, instructions: int, elements: int) -> bool:
        """Whether eager torch would have been faster than these segments."""
        spent = segments * self.segment_us + instructions * self.instruction_us
        return spent > operators * (self.operator_us + elements * self.element_us)

    @property
    def few_operators(self) -> int:
        """Fewer operators than this: eager torch is faster than entering a segment."""
        return round(self.segment_us / self.eager_operator_us)

    def is_worth_a_segment(self, operators: int, elements: int) -> bool:
        """Whether so many operators on tensors of this size are run as a segment."""
        return operators >= self.few_operators or (operators > 0 and elements > self.few_elements)

    @property
    def interpreted_operators(self) -> int:
        """Met between segments: there is more there than it seemed, and a segment is tried."""
        return 5 * self.few_operators

    def why_kernel_is_full(self, operators: int, parts: int, joins: int) -> str | None:
        """Why a kernel of so many operators, whose joins have so many parts and lie inside so many
        others, would be too large; None if it would not."""
        if operators > self.kernel_operators:
            return "the kernel is large enough"
        if parts > self.kernel_parts:
            return "the kernel joins enough parts"
        if joins > self.nested_joins:
            return "enough conditions lead to its elements"
        return None

    def cells_for_threads(self, weight: int) -> int:
        """The cells from which on a kernel is shared among threads; ``weight`` is what a cell
        costs, in simple operations."""
        return max(self.threads_cells * 4 // max(weight, 4), 1)


COSTS = CostModel()
