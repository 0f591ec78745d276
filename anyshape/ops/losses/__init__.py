"""Losses of torch.nn.functional: of class labels, and of elements."""

from anyshape.ops.losses import classes, elements

__all__ = ["classes", "elements"]
