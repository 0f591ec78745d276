"""Random graphs of rows over sizes a and b: views, broadcasts, reductions, writes and mixed dtypes."""

from __future__ import annotations

import random
from typing import Any

import torch
from programs import Sketch

from anyshape.ir import dtypes

FLOATS = (dtypes.float32, dtypes.float64)


class Maker:
    """Grows one graph; every choice comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sketch = Sketch()
        self.b = self.sketch.builder
        self.a, self.n = self.sketch.size("a"), self.sketch.size("b")
        self.inputs: list[tuple[str, Any, tuple[int, ...]]] = []
        self.values: list[Any] = []
        for sizes in self.random.choices(
            ("a b", "b a", "a", "b", "a 6", "a 1 b", "2 a 3", "b 4 a"), k=3
        ):
            self.input(sizes)

    def input(self, sizes: str, dtype: Any = None) -> Any:
        dtype = dtype or self.random.choice(
            (*FLOATS[:1] * 4, dtypes.int64, dtypes.bool_, dtypes.int8)
        )
        order = list(range(len(sizes.split())))
        self.random.shuffle(order)
        value = self.sketch.input(sizes, dtype, order)
        self.inputs.append((sizes, dtype, tuple(order)))
        self.values.append(value)
        return value

    def pick(self) -> Any:
        return self.random.choice(self.values[-6:] if self.random.random() < 0.8 else self.values)

    def float(self, x: Any) -> Any:
        return x if x.dtype.is_floating else self.b.to_dtype(x, dtypes.float32)

    def step(self) -> None:
        made = getattr(self, self.random.choice(STEPS))(self.pick())
        if made is not None:
            self.values.append(made)

    def unary(self, x: Any) -> Any:
        name = self.random.choice(("tanh", "neg", "abs", "relu", "sin", "sigmoid", "exp"))
        x = self.float(x)
        return self.b.call(name, self.b.tanh(x) if name == "exp" else x)

    def binary(self, x: Any) -> Any:
        y = self.pick()
        if len(x.shape) != len(y.shape) or any(
            p is not q and p != q for p, q in zip(x.shape, y.shape)
        ):
            y = self.b.sum(self.float(y), (), False) if self.random.random() < 0.5 else x
        name = self.random.choice(("add", "sub", "mul", "maximum", "minimum", "lt", "ge"))
        if x.dtype is dtypes.bool_ or y.dtype is dtypes.bool_:
            x, y = self.float(x), self.float(y)
        return self.b.call(name, x, self.b.tanh(self.float(y)) if name == "mul" else y)

    def where(self, x: Any) -> Any:
        return self.b.where(self.b.gt(self.float(x), 0.1), self.float(x), 0.25)

    def reduce(self, x: Any) -> Any:
        if not x.shape:
            return None
        dims = tuple(
            sorted(self.random.sample(range(len(x.shape)), self.random.randint(1, len(x.shape))))
        )
        name = self.random.choice(("sum", "mean", "any", "all"))
        x = self.float(x) if name == "mean" else x
        return self.b.call(name, x, dims, self.random.random() < 0.6)

    def normalise(self, x: Any) -> Any:
        if not x.shape:
            return None
        x, dim = self.float(x), self.random.randrange(len(x.shape))
        if self.random.random() < 0.5:
            return self.b.softmax(x, dim)
        return self.b.sub(x, self.b.mean(x, (dim,), True))

    def cumsum(self, x: Any) -> Any:
        return (
            self.b.cumsum(self.float(x), self.random.randrange(len(x.shape))) if x.shape else None
        )

    def permute(self, x: Any) -> Any:
        order = list(range(len(x.shape)))
        self.random.shuffle(order)
        return self.b.permute(x, tuple(order))

    def merge(self, x: Any) -> Any:
        if len(x.shape) < 2:
            return None
        d = self.random.randrange(len(x.shape) - 1)
        return self.b.reshape(x, (*x.shape[:d], x.shape[d] * x.shape[d + 1], *x.shape[d + 2 :]))

    def split(self, x: Any) -> Any:
        for d, size in enumerate(x.shape):
            for by in (2, 3):
                if isinstance(size, int) and size > by and size % by == 0:
                    return self.b.reshape(x, (*x.shape[:d], by, size // by, *x.shape[d + 1 :]))
        return None

    def slice(self, x: Any) -> Any:
        for d, size in enumerate(x.shape):
            if isinstance(size, int) and size > 2:
                start = self.random.randrange(size - 1)
                return self.b.slice(
                    x, d, start, (size - start + 1) // 2, 2 if size - start > 2 else 1
                )
        return None

    def flip(self, x: Any) -> Any:
        return self.b.flip(x, (self.random.randrange(len(x.shape)),)) if x.shape else None

    def cat(self, x: Any) -> Any:
        if not x.shape:
            return None
        x = self.float(x)
        return self.b.cat((x, self.b.neg(x)), self.random.randrange(len(x.shape)))

    def pad(self, x: Any) -> Any:
        return self.b.torch_pad(self.float(x), (1, 2), "constant", 0.5) if x.shape else None

    def unsqueeze(self, x: Any) -> Any:
        if len(x.shape) > 3:
            return None
        d = self.random.randrange(len(x.shape) + 1)
        x = self.b.unsqueeze(x, d)
        if self.random.random() < 0.5:
            return self.b.expand(x, (*x.shape[:d], 3, *x.shape[d + 1 :]))
        return x

    def select(self, x: Any) -> Any:
        for d, size in enumerate(x.shape):
            if isinstance(size, int) and size > 1:
                return self.b.select(x, d, 1)
        return None

    def gather(self, x: Any) -> Any:
        for d, size in enumerate(x.shape):
            if isinstance(size, int) and size > 1:
                positions = self.b.remainder(self.b.arange(self.a, 0, 3, dtypes.int64, "cpu"), size)
                return self.b.index_select(x, d, positions)
        return None

    def index_add(self, x: Any) -> Any:
        for d, size in enumerate(x.shape):
            if isinstance(size, int) and size > 1:
                x = self.float(x)
                positions = self.b.remainder(self.b.arange(size, 0, 3, dtypes.int64, "cpu"), size)
                return self.b.index_add(x, d, positions, self.b.neg(x))
        return None

    def graph(self, steps: int) -> Any:
        for _ in range(steps):
            self.step()
        outputs = self.random.sample(self.values[3:], min(2, len(self.values) - 3))
        return self.sketch.finish(*outputs, self.values[-1])

    def tensors(self, a: int, b: int) -> list[torch.Tensor]:
        made = []
        generator = torch.Generator().manual_seed(100 * a + b)
        for sizes, dtype, order in self.inputs:
            shape = [{"a": a, "b": b}.get(n) if not n.isdigit() else int(n) for n in sizes.split()]
            x = torch.randn([shape[d] for d in order], generator=generator)
            x = (x > 0) if dtype is dtypes.bool_ else (x * 2).to(getattr(torch, dtype.name))
            made.append(x.permute([order.index(d) for d in range(len(shape))]))
        return made


STEPS = (
    "unary unary binary binary binary where reduce reduce normalise cumsum permute permute merge split slice "
    "flip cat pad unsqueeze select gather index_add"
).split()
