"""The flags of classes that capture asks for; they have these bits in CPython 3.11 to 3.13.

In: nothing. Out: masks for ``cls.__flags__``. Source: ``Py_TPFLAGS_*`` in CPython's ``object.h``.
"""

SEQUENCE = 1 << 5  # what a pattern `[...]` matches
MAPPING = 1 << 6  # what a pattern `{...}` matches
IMMUTABLE_TYPE = 1 << 8  # its attributes are never set
HEAP_TYPE = 1 << 9  # made while Python runs: every class that Python code defines, and some of C
MATCHES_ITSELF = 1 << 22  # the one positional pattern in `int(...)` is the object itself
