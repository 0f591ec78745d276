"""What Python's builtins, classes and standard library mean when they are called. No torch.

builtins.py builtin_*.py   handlers of builtins
stdlib.py itertools_polyfills.py   functions of the standard library
program_times.py time_polyfills.py percent.py   operators and methods of C that ask the program
pickles.py pickle_polyfills.py   `_pickle`; jsons.py json_polyfills.py: `_json`
texts_of_parts.py    texts of containers, `str.format`
instances.py         calling classes
language.py          all of it as the Language of a machine; `python_machine(domain)`
"""
