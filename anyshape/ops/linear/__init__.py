"""Linear algebra: products, einsum, traces and determinants, factorizations, solvers."""

from anyshape.ops.linear import algebra, einsum, factorizations, products, solve

__all__ = ["algebra", "einsum", "factorizations", "products", "solve"]
