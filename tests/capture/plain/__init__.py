"""Plain Python programs, without torch, that the interpreter must run as CPython does."""
