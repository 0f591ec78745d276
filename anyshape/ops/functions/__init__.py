"""Mathematical functions: activations, special functions, spectra, shorthands for a few others."""

from anyshape.ops.functions import activation, shorthand, special, spectra

__all__ = ["activation", "shorthand", "special", "spectra"]
