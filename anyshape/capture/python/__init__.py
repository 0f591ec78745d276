"""What Python's builtins, classes and standard library mean when they are called. No torch.

builtins.py builtin_*.py   handlers of builtins
stdlib.py itertools_polyfills.py   functions of the standard library
instances.py         calling classes
language.py          all of it as the Language of a machine; `python_machine(domain)`
"""
