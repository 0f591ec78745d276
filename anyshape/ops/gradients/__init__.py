"""Gradient rules: what the column ``vjp`` of rows is made of.

A rule ``rule(b, g, y, *args, **kwargs)`` builds the gradient of one argument with the builder
``b``: ``g`` is the cotangent of the row's result ``y`` (tuples of both where there are several
results, and a cotangent that is absent is ``None``), the rest are the row's own arguments. A rule
may give a gradient of the shape that the argument broadcasts to, in any floating dtype: who calls
it sums and casts (``autograd/differentiate.py``). A rule reads what eager's own formula saves, and
raises ``NoRow`` for arguments that it has no formula for.
"""
