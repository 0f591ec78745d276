"""A matrix product and what follows it as a Triton module: tiles for tensor cores.

In: a kernel that ``products.py`` knows to be one, and a schedule with ``columns``. Out: its text,
as of ``kernel.py``. A program takes tiles until none are left; the summed axis is walked ``fiber``
elements at a time, which Triton loads ahead of the product that needs them.
"""

from __future__ import annotations

from anyshape.ir.loops import Const, Load, PointerParam, Reduce, SizeParam
from anyshape.nouns import mutable
from anyshape.targets.reduction_phases import analyse
from anyshape.targets.triton.elements import ElementPrinter
from anyshape.targets.triton.prelude import HEADER
from anyshape.targets.triton.products import tiled_product


@mutable(eq=False)
class ProductPrinter(ElementPrinter):
    """Prints the kernel; ``constants`` are those of the function, by name."""

    def text(self, constants: dict[str, int], begin: str) -> str:
        kernel = self.kernel
        self.phases = analyse(kernel)
        self.columns = frozenset(axis.name for axis in kernel.axes)
        self._line(begin)
        for param in kernel.params:
            if isinstance(param, SizeParam) and param.in_memory:
                self._line(f"{param.name} = tl.load({param.name})")
        self._tiles()
        names = [p.name for p in kernel.params]
        sizes = [p.name for p in kernel.params if not isinstance(p, PointerParam)]
        given = ", ".join([*names, *(f"{name}: tl.constexpr" for name in constants)])
        head = f"@triton.jit(do_not_specialize={sizes!r})\ndef {self.name}({given}):"
        launch = {
            "function": self.name,
            "arguments": names,
            "constants": constants,
            "num_warps": self.schedule.warps,
        }
        body = "\n".join(self.lines)
        return f"{HEADER}\n\n{head}\n{body}\n\n\nLAUNCH = {launch!r}\n"

    def _tiles(self) -> None:
        kernel = self.kernel
        (rows, columns), (summed,) = kernel.axes, kernel.reduction_axes
        for name, axis in (("xtotal", rows), ("ytotal", columns), ("rtotal", summed)):
            self._line(f"{name} = tl.full([], 1, {self._index}) * ({self._dim(axis.extent)})")
        self._line("across = tl.cdiv(ytotal, YBLOCK)")
        self._line("tiles = tl.cdiv(xtotal, XBLOCK) * across")
        first = f"tl.program_id(0).to({self._index})"
        self._open(f"for tile in range({first}, tiles, tl.num_programs(0)):")
        for name, operation, block in (("x", "//", "XBLOCK"), ("y", "%", "YBLOCK")):
            turned = "[:, None]" if name == "x" else "[None, :]"
            part = f"tl.arange(0, {block}).to({self._index})"
            self._line(f"{name} = ({part} + (tile {operation} across) * {block}){turned}")
        self._line(f"{rows.name} = x")
        self._line(f"{columns.name} = y")
        self._product()
        self._line("xmask = (x < xtotal) & (y < ytotal)")
        self._line("zero = x * 0 + y * 0")
        self._rest()
        self.depth -= 1

    def _product(self) -> None:
        found = tiled_product(self.kernel)
        assert found is not None
        left, right, total = found
        made = f"v{total}"
        self._line(f"{made} = tl.zeros([XBLOCK, YBLOCK], tl.float32)")
        self._open("for start in range(0, rtotal, RBLOCK):")
        self._line(f"r = start + tl.arange(0, RBLOCK).to({self._index})")
        self._factor(left, "r[None, :]", "x < xtotal")
        self._factor(right, "r[:, None]", "y < ytotal")
        self._line(f"{made} = tl.dot(f{left}, f{right}, {made})")
        self.depth -= 1

    def _factor(self, number: int, index: str, inside: str) -> None:
        """A tile of an operand, with zeros past its end."""
        load = self.kernel.elements[number]
        assert isinstance(load, Load)
        name = self.kernel.reduction_axes[0].name
        self._line(f"{name} = {index}")
        mask = f"({inside}) & ({name} < rtotal)"
        address = f"{load.pointer} + ({self._dim(load.index)})"
        self._line(f"f{number} = tl.load({address}, mask={mask}, other=0)")

    def _rest(self) -> None:
        """What is made of the product, and where it goes."""
        phases, stores = self.phases, self.kernel.stores
        done = {n for n, e in enumerate(self.kernel.elements) if isinstance(e, Reduce)}
        roots = [
            n
            for store in stores
            for n in (store.value, *([] if store.mask is None else [store.mask]))
        ]
        for n in phases.closure(roots, done):
            if isinstance(self.kernel.elements[n], Const) or not phases.in_fiber(n):
                self._element(n)
        for store in stores:
            self._store(store, always_masked=True)
