"""Numbers nobody knows yet, as Python sees them.

beside_numpy.py      the same beside numpy's scalars
numbers.py           ints, floats and bools with symbols in them, with CPython's semantics
join.py merging.py   a branch on sizes runs both sides, and one state is made of two
data_join.py         a branch that data decides runs both sides (written_containers.py), and
                     chooses
formed_texts.py      texts with sizes in them
"""
