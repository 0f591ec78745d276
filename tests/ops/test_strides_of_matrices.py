"""Strides of what LAPACK makes, as results and read, where matrices have no elements or one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

linalg = torch.linalg

FACTORED: dict[str, Callable[[torch.Tensor], Any]] = {
    "cholesky": linalg.cholesky,
    "cholesky_ex": linalg.cholesky_ex,
    "the older cholesky": torch.cholesky,
    "cholesky_inverse": torch.cholesky_inverse,
    "cholesky_solve": lambda x: torch.cholesky_solve(x, x),
    "inv": linalg.inv,
    "eigh": linalg.eigh,
    "matrix_exp": torch.matrix_exp,
    "svd": linalg.svd,
    "a reduced svd": lambda x: linalg.svd(x, full_matrices=False),
    "the older svd": torch.svd,
    "the older svd without vectors": lambda x: torch.svd(x, compute_uv=False),
    "qr": linalg.qr,
    "a complete qr": lambda x: linalg.qr(x, mode="complete"),
    "r of a qr": lambda x: linalg.qr(x, mode="r")[1],
    "geqrf": torch.geqrf,
    "lu": linalg.lu,
    "lu_factor": linalg.lu_factor,
    "lstsq": lambda x: linalg.lstsq(x, x)[0],
    "solve_triangular": lambda x: linalg.solve_triangular(x, x, upper=True),
}
RECTANGULAR = {name for name in FACTORED if any(n in name for n in ("svd", "qr", "lu"))}
SQUARE = [(0, 0), (1, 1), (2, 0, 0), (0, 2, 2), (0, 0, 0), (3, 2, 1, 1)]
OTHERS = [(0, 3), (3, 0), (1, 0), (2, 0, 3), (2, 3, 0)]


@pytest.mark.filterwarnings("ignore")  # older functions say what replaces them
@pytest.mark.parametrize("name", FACTORED)
def test_strides_of_matrices_without_elements_are_eagers(name: str) -> None:
    program = FACTORED[name]
    result = anyshape.compile(program)
    read = anyshape.compile(lambda x: [t.stride() for t in tensors(program(x))])
    for shape in SQUARE + (OTHERS if name in RECTANGULAR else []):
        for x in laid_out(shape):
            wanted = [t.stride() for t in tensors(program(x))]
            assert [t.stride() for t in tensors(result(x))] == wanted, (shape, x.stride())
            assert read(x) == wanted, (shape, x.stride())


def laid_out(shape: tuple[int, ...]) -> list[torch.Tensor]:
    x = torch.eye(*shape[-2:]).expand(shape)
    turned = torch.empty(shape[::-1]).permute(*range(len(shape))[::-1])
    return [torch.empty(shape).copy_(x), turned.copy_(x)]


def tensors(made: Any) -> tuple[torch.Tensor, ...]:
    return (made,) if isinstance(made, torch.Tensor) else tuple(made)
