"""Are these parameters still where and what they were, and these hook dictionaries still empty?
Answered in microseconds.

In: pinned tensors and dictionaries. Out: a function that says whether any changed. A few
hundred tensors asked one by one through Python cost more than a whole call may; so a small C
function compares the bytes of their `TensorImpl`s with a copy, the data pointers, and whether
gradients are required, which lies in what autograd keeps of a tensor. Where the bytes differ, or
where the layout of these cannot be worked out, Python asks the tensors themselves.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyshape.capture.guards.guard_code import GuardSet, compile_entry
from anyshape.capture.guards.tensor_specs import parameter_state
from anyshape.dispatch.dict_version_guards import DictVersionGuards
from anyshape.dispatch.mode_guards import ModeTest
from anyshape.dispatch.native_guards import compared
from anyshape.errors import MISTAKES, AnyshapeError
from anyshape.nouns import frozen, mutable
from anyshape.options import Options

IMPL_BYTES = (
    176  # of a TensorImpl: storage, sizes and strides, offset, dtype, device, keys all lie within
)
STORAGE_BYTES = 48
META_WORDS = 64  # of an AutogradMeta: whether gradients are required lies within
FEW = 8  # so few tensors are asked one by one


@frozen
class Layout:
    """Where a TensorImpl has its storage and its AutogradMeta, a StorageImpl its data pointer, and
    an AutogradMeta whether gradients are required, in bytes."""

    storage: int
    data: int
    meta: int
    required: int

    @classmethod
    def find(cls) -> Layout | None:
        """Worked out from tensors of this very torch; None unless all agree."""
        found = {cls._of(torch.empty(shape)) for shape in ((3,), (2, 5), (7, 1, 2))}
        return found.pop() if len(found) == 1 and None not in found else None

    @classmethod
    def _of(cls, tensor: torch.Tensor) -> Layout | None:
        storage = _words(tensor._cdata, IMPL_BYTES)
        owner = tensor.untyped_storage()._cdata
        if storage.count(owner) != 1:
            return None
        inside = _words(owner, STORAGE_BYTES)
        if (
            tensor.data_ptr() not in inside
        ):  # it may be there twice: as data, and as what the deleter gets
            return None
        found = _find_flag(tensor)
        if found is None:
            return None
        return cls(8 * storage.index(owner), 8 * inside.index(tensor.data_ptr()), *found)

    def flag(self, tensor: torch.Tensor) -> int:
        """The address of the byte that says whether the tensor requires gradients; 0 where autograd
        keeps nothing of it yet."""
        meta = _words(tensor._cdata, IMPL_BYTES)[self.meta // 8]
        return meta + self.required if meta else 0


def _find_flag(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Where a new tensor gets an AutogradMeta, and which byte of that `requires_grad_` changes."""
    before = _words(tensor._cdata, IMPL_BYTES)
    after = _words(tensor.requires_grad_()._cdata, IMPL_BYTES)
    made = [n for n, word in enumerate(before) if not word and after[n]]
    if len(made) != 1:
        return None
    meta = after[made[0]]
    for offset in range(0, 8 * META_WORDS, 8):  # no further than to the one that is sought
        with_it = ctypes.string_at(meta + offset, 8)
        tensor.requires_grad_(False)
        without = ctypes.string_at(meta + offset, 8)
        tensor.requires_grad_()
        changed = [n for n in range(8) if with_it[n] != without[n]]
        if changed:
            is_flag = len(changed) == 1 and with_it[changed[0]] == 1 and not without[changed[0]]
            return (8 * made[0], offset + changed[0]) if is_flag else None
    return None


def _words(address: int, size: int) -> list[int]:
    return list((ctypes.c_int64 * (size // 8)).from_address(address))


def parameter_test(
    parameters: tuple[torch.Tensor, ...], hooks: tuple[Any, ...], options: Options
) -> Callable[[], bool] | None:
    """A function that says whether the parameters are as they are now and the hook dictionaries
    empty; None if there is nothing to ask."""
    if not parameters and not hooks:
        return None
    slow = _Asked(parameters, [parameter_state(p) for p in parameters], hooks)
    if len(parameters) <= FEW and len(hooks) <= 8 * FEW:
        return slow.holds
    fast = _compare_bytes(parameters, hooks, slow, options)
    return slow.holds if fast is None else fast


def entry_of(
    guards: GuardSet, snapshot: Callable[[], tuple[Any, ...]], options: Options
) -> tuple[Callable[[Sequence[Any]], list[Any] | None], Callable[[], bool] | None]:
    """`compile_entry`'s function, with what C tests for it; and if the parameters are fresh."""
    fresh = parameter_test(guards.parameters, guards.hooks, options)
    by_version = DictVersionGuards.of(guards.guards, options)
    modes = ModeTest(guards.modes, snapshot, options)
    if by_version is None:
        entry = compile_entry(guards, modes.hold, fresh)
    else:
        tested = by_version.all_guards()
        entry = compile_entry(guards, modes.hold, fresh, by_version.holds, tested)
    modes.entry = weakref.ref(entry)
    return entry, fresh


@mutable(eq=False)
class _Asked:
    """The slow way: Python asks each tensor."""

    parameters: tuple[torch.Tensor, ...]
    expected: list[tuple[Any, ...]]
    hooks: tuple[Any, ...]

    def holds(self) -> bool:
        return (
            not any(self.hooks) and [parameter_state(p) for p in self.parameters] == self.expected
        )


def _compare_bytes(
    parameters: tuple[torch.Tensor, ...], hooks: tuple[Any, ...], slow: _Asked, options: Options
) -> Callable[[], bool] | None:
    layout = Layout.find()
    plain = all(
        p.dim() <= 5 and p.layout is torch.strided and p.device.type in ("cpu", "cuda")
        for p in parameters
    )
    if layout is None or not plain or not all(isinstance(table, dict) for table in hooks):
        return None
    try:
        compare = compared(options)["anyshape_fresh"]
    except AnyshapeError as error:
        if error.code in MISTAKES:
            raise
        return None
    count, words = len(parameters), (IMPL_BYTES - layout.storage) // 8
    impls = (ctypes.c_int64 * count)(*(p._cdata for p in parameters))
    copies = (ctypes.c_int64 * (count * words))(
        *(w for p in parameters for w in _words(p._cdata + layout.storage, words * 8))
    )
    pointers = (ctypes.c_int64 * count)(*(_data(p, layout) for p in parameters))
    flags = (ctypes.c_int64 * count)(*(layout.flag(p) for p in parameters))
    required = (ctypes.c_bool * count)(*(p.requires_grad for p in parameters))
    tables = (ctypes.c_int64 * len(hooks))(*(id(table) for table in hooks))
    given = (
        *(
            count,
            ctypes.addressof(impls),
            ctypes.addressof(copies),
            layout.storage,
            words,
            layout.storage,
        ),
        *(layout.data, ctypes.addressof(pointers), ctypes.addressof(flags)),
        *(ctypes.addressof(required), len(hooks), ctypes.addressof(tables)),
    )
    kept = (impls, copies, pointers, flags, required, tables, parameters, hooks)

    def fresh(kept: Any = kept) -> bool:
        """Bytes that differ may mean nothing (a gradient was made): then the tensors are asked."""
        return compare(*given) == 0 or slow.holds()

    return fresh


def _data(parameter: torch.Tensor, layout: Layout) -> int:
    owner = _words(parameter._cdata, IMPL_BYTES)[layout.storage // 8]
    return _words(owner, STORAGE_BYTES)[layout.data // 8]
