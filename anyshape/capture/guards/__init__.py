"""What a specialization relies on, and how each call tests it.

guard_code.py        guards, and the straight-line function that tests them
definitions.py       what decides what functions and classes do
guard_failures.py    which guard failed, and what a further specialization does about it
tensor_specs.py      the guard of one tensor; execution_modes.py: the guard of torch's modes
reliance.py          what is relied on without being named; identities.py, no_alias.py, overlaps.py:
                     which objects and which memory are different ones
marks.py declared.py counters.py   sizes that are marked or declared, numbers that always change
constant_kinds.py    which classes are relied on by value, by identity or by equality
"""
