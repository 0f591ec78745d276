"""`_pickle` in Python, interpreted (polyfills.py): the standard library has the same there, so that
what pickling asks of the program is interpreted too.

What C gives is given, byte for byte; where it would differ, or C might raise (its errors have texts
of their own), the call is left to C: `left_to_c`, which ends the segment before it.
"""

from __future__ import annotations

import _pickle
import pickle
from io import BytesIO
from typing import Any, ClassVar

from anyshape.capture.interpreter.intrinsic_names import works_for

_Pickler = vars(pickle)["_Pickler"]
_Unpickler = vars(pickle)["_Unpickler"]
BATCHED = (list, dict, set)
BATCH = 1000
"""From so many on, C and Python group items in ways of their own."""
LONGEST = 1 << 15
"""Of more bytes C and Python make frames in ways of their own."""
DEEPEST = 100
"""C counts what lies in what against the recursion limit."""
ADD_ITEMS, SET = pickle.ADDITEMS[0], frozenset({set})


def left_to_c(name: str) -> None:
    """The call of this function is left to C: the interpreter answers it."""


class Pickler(_Pickler):  # type: ignore[misc, valid-type]
    depth = 0

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        self.depth += 1
        if self.depth > DEEPEST or (type(obj) in BATCHED and len(obj) >= BATCH):
            left_to_c("pickle.Pickler.dump")
        _Pickler.save(self, obj, save_persistent_id)
        self.depth -= 1


def _add_items(unpickler: Any) -> None:
    """C adds to subclasses of sets without asking them."""
    if type(unpickler.metastack[-1][-1]) not in SET:
        left_to_c("pickle.Unpickler.load")
    _Unpickler.load_additems(unpickler)


class Unpickler(_Unpickler):  # type: ignore[misc, valid-type]
    dispatch: ClassVar[dict[int, Any]] = {**_Unpickler.dispatch, ADD_ITEMS: _add_items}


# ---- functions -----------------------------------------------------------------------------------
def dumps(
    obj: Any, protocol: Any = None, *, fix_imports: Any = True, buffer_callback: Any = None
) -> bytes:
    file = BytesIO()
    dump(obj, file, protocol, fix_imports=fix_imports, buffer_callback=buffer_callback)
    return file.getvalue()


def dump(
    obj: Any,
    file: Any,
    protocol: Any = None,
    *,
    fix_imports: Any = True,
    buffer_callback: Any = None,
) -> None:
    try:
        pickler = made_pickler(file, protocol, fix_imports, buffer_callback)
    except BaseException:
        left_to_c("pickle.dump")
    dump_by(pickler, obj)


def loads(data: Any, /, **named: Any) -> Any:
    return load(BytesIO(data), **named)


def load(file: Any, **named: Any) -> Any:
    return load_by(made_unpickler("pickle.load", file, named))


def made_pickler(file: Any, protocol: Any, fix_imports: Any, buffer_callback: Any) -> Any:
    made = Pickler(file, protocol, fix_imports=fix_imports, buffer_callback=buffer_callback)
    made.file = file
    return made


def made_unpickler(asked: str, file: Any, named: Any) -> Any:
    try:
        return Unpickler(file, **named)
    except BaseException:
        left_to_c(asked)


def dump_by(pickler: Any, obj: Any) -> None:
    begin = pickler.file.tell()
    try:
        pickler.dump(obj)
    except BaseException:
        left_to_c("pickle.Pickler.dump")
    if pickler.file.tell() - begin > LONGEST:
        left_to_c("pickle.Pickler.dump")


def clear_memo_of(pickler: Any) -> None:
    pickler.memo.clear()


def load_by(unpickler: Any) -> Any:
    try:
        return unpickler.load()
    except BaseException:
        left_to_c("pickle.Unpickler.load")


# ---- objects -------------------------------------------------------------------------------------
def make_pickler(
    file: Any, protocol: Any = None, fix_imports: Any = True, buffer_callback: Any = None
) -> Any:
    try:
        made = made_pickler(file, protocol, fix_imports, buffer_callback)
    except BaseException:
        left_to_c("pickle.Pickler")
    return works_for(_pickle.Pickler, file, made)


def make_unpickler(file: Any, **named: Any) -> Any:
    made = made_unpickler("pickle.Unpickler", file, named)
    return works_for(_pickle.Unpickler, file, made)
