"""Mathematical functions: activations, special functions, shorthands for a few others."""

from anyshape.ops.functions import activation, shorthand, special

__all__ = ["activation", "shorthand", "special"]
