"""Python functions of torch in a form that sizes nobody knows can go through.

Each stands in for the function named in `STAND_INS`, is interpreted like a program's own code (see
polyfills.py) and gives what that function gives for plain tensors.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan as torch_scan
from torch.autograd import forward_ad
from torch.masked import _ops as masked
from torch.optim import asgd
from torch.utils import _foreach_utils as foreach
from torch.utils import _pytree as pytree

from anyshape.capture.tensors.scans import is_linear
from anyshape.eager import alias, linear_recurrence

FLAGGED = {torch.nn.Parameter: "_is_param", torch.nn.Buffer: "_is_buffer"}
"""Classes that a tensor with this attribute is an instance of, whatever its class."""


def has_flag(tensor: Any, name: str) -> bool:
    return True if getattr(tensor, name, False) else False


def input_mask(input: Any, *args: Any, mask: Any = None, **kwargs: Any) -> Any:
    """The mask in the input's shape: broadcast whether or not it has that shape already."""
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    if mask.ndim > input.ndim:
        raise IndexError(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the "
            "input)"
        )
    return torch.broadcast_to(mask, input.shape).to(torch.bool)


def combine_input_and_mask(op: Any, input: Any, mask: Any, *args: Any) -> Any:
    """The input with the operator's identity where the mask is False; makes no class."""
    if mask is None:
        return input
    identity = masked._reduction_identity(op.__name__, input, *args)
    return torch.where(input_mask(input, mask=mask), input, identity)


def named_members(
    self: Any,
    get_members_fn: Any,
    prefix: str = "",
    recurse: bool = True,
    remove_duplicate: bool = True,
) -> Any:
    """All at once: a list needs no frames of generators, whoever iterates over it."""
    if recurse:
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
    else:
        modules = [(prefix, self)]
    known = set()
    found = []
    for position, module in modules:
        for key, value in get_members_fn(module):
            if value is None or id(value) in known:
                continue
            if remove_duplicate:
                known.add(id(value))
            found.append((f"{position}.{key}" if position else key, value))
    return iter(found)


def named_parameters(
    self: Any, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
) -> Any:
    """The iterator itself."""
    members = lambda module: module._parameters.items()  # noqa: E731
    return self._named_members(
        members, prefix=prefix, recurse=recurse, remove_duplicate=remove_duplicate
    )


def named_buffers(
    self: Any, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
) -> Any:
    """The iterator itself."""
    members = lambda module: module._buffers.items()  # noqa: E731
    return self._named_members(
        members, prefix=prefix, recurse=recurse, remove_duplicate=remove_duplicate
    )


def parameters(self: Any, recurse: bool = True) -> Any:
    """An iterator over a list."""
    return iter([value for _, value in self.named_parameters(recurse=recurse)])


def buffers(self: Any, recurse: bool = True) -> Any:
    """An iterator over a list."""
    return iter([value for _, value in self.named_buffers(recurse=recurse)])


def weights_have_changed(self: Any) -> bool:
    """What the weak references of a recurrent network refer to lies in its list of weights."""
    for kept, name in zip(self._flat_weights, self._flat_weights_names):
        if kept is not None and hasattr(self, name) and getattr(self, name) is not kept:
            return True
    return False


def itself(method: Any) -> Any:
    """The method under another identity, for which nothing stands in. Those that are called as a
    whole, natively, `segments/callables.py` lists."""
    return types.FunctionType(
        method.__code__,
        method.__globals__,
        method.__name__,
        method.__defaults__,
        method.__closure__,
    )


def move(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`Module.to`: a module whose tensors all are what they are to become is left alone."""
    pairs = [(x.device, x.dtype) if isinstance(x, torch.Tensor) else (x,) for x in args]
    parse: Callable[..., Any] = torch._C._nn._parse_to
    device, dtype, _, form = parse(*[x for pair in pairs for x in pair], **kwargs)
    known = dtype is None or dtype.is_floating_point
    if form is None and known and is_there(self, device, dtype):
        return self
    return MOVED_NATIVELY(self, *args, **kwargs)


def converting(dtype: torch.dtype, native: Any) -> Callable[..., Any]:
    """The like of `Module.half`."""

    def convert(self: Any) -> Any:
        return self if is_there(self, None, dtype) else native(self)

    return convert


def is_there(module: Any, device: Any, dtype: Any) -> bool:
    """Whether converting a module to them would change nothing."""
    if (
        torch.__future__.get_overwrite_module_params_on_conversion()
        or torch.__future__.get_swap_module_params_on_conversion()
    ):
        return False
    for part in module.modules():
        if type(part)._apply is not torch.nn.Module._apply:
            return False
        for x in [*part._parameters.values(), *part._buffers.values()]:
            if x is None:
                continue
            floats = x.is_floating_point() or x.is_complex()
            if dtype is not None and floats and x.dtype != dtype:
                return False
            if device is not None and x.device != device:
                return False
    return True


def associative_scan(
    combine_fn: Any, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """A scan by `(a, b), (c, d) -> (a * c, b * c + d)` is a row, whatever the length."""
    leaves, form = pytree.tree_flatten(xs)
    if not is_mode_of(combine_mode, leaves) or not are_scanned(leaves, dim):
        return SCANNED_NATIVELY(combine_fn, xs, dim, reverse, combine_mode)
    left, right = ([x.select(dim, position) for x in leaves] for position in (0, -1))
    tree = [pytree.tree_unflatten(part, form) for part in (left, right)]
    if not is_linear(left, right, pytree.tree_leaves(combine_fn(*tree))):
        return SCANNED_NATIVELY(combine_fn, xs, dim, reverse, combine_mode)
    made = [torch.movedim(x, dim, 0) for x in leaves]
    if reverse:
        made = [x.flip([0]) for x in made]
    if leaves[0].shape[dim] > 1 or combine_mode == "pointwise":  # else it gives what it is given
        factors, terms = made
        products = torch.cumprod(factors.clone(memory_format=torch.contiguous_format), 0)
        made = [products, linear_recurrence(factors, terms)]
    if reverse:
        made = [x.flip([0]) for x in made]
    return pytree.tree_unflatten([torch.movedim(x, 0, dim) for x in made], form)


def is_mode_of(mode: Any, leaves: Any) -> bool:
    """Whether torch's own function takes such tensors in this mode: it compiles what is pointwise,
    for a GPU, and gradients of that are not right (torch 2.11)."""
    if mode == "pointwise":
        return all([isinstance(x, torch.Tensor) and x.device.type == "cuda" for x in leaves])
    return bool(mode == "generic")


def are_scanned(leaves: Any, dim: Any) -> bool:
    """Whether they are two tensors of one shape, with something to scan."""
    if len(leaves) != 2 or not all(isinstance(x, torch.Tensor) for x in leaves):
        return False
    a, b = leaves
    alike = a.dtype == b.dtype and a.device == b.device and a.ndim == b.ndim
    if not alike or not a.dtype.is_floating_point or not 0 <= dim < a.ndim:
        return False
    return all([m == n for m, n in zip(a.shape, b.shape)]) and a.shape[dim] > 0


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """A branch as Python has it: both sides are captured where that can be, else the graph breaks
    and one of them is."""
    if not isinstance(pred, (bool, int, float)):
        refuse_condition(pred, true_fn, false_fn, operands)
    return true_fn(*operands) if pred else false_fn(*operands)


def refuse_condition(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> None:
    """What `torch.cond` is not to be given."""
    if not isinstance(pred, torch.Tensor):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    leaves = pytree.tree_leaves(operands) if isinstance(operands, (tuple, list)) else [None]
    if not all([isinstance(leaf, torch.Tensor) for leaf in leaves]):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists "
            f"of tensor leaves, but got {operands}."
        )


def assert_nonzero(condition: Any, message: str) -> None:
    """`torch._assert_async` on the CPU."""
    if not condition:
        raise RuntimeError(message)


def fill_diagonal_(self: Any, value: Any) -> Any:
    """`Tensor.fill_diagonal_`, which checks what a view of a diagonal does not."""
    if self.dim() < 2:
        raise RuntimeError("dimensions must larger than 1")
    if self.dim() > 2 and any([size != self.shape[0] for size in self.shape[1:]]):
        raise RuntimeError("all dimensions of input must be of equal length")
    diagonal = self
    while diagonal.dim() > 1:
        diagonal = diagonal.diagonal()
    diagonal.fill_(value)
    return self


def unpack_dual(tensor: Any, *, level: Any = None) -> Any:
    """Outside every `dual_level` no tensor has a tangent."""
    if level is None and forward_ad._current_level < 0:
        return forward_ad.UnpackedDualTensor(tensor, None)
    return UNPACKED_NATIVELY(tensor, level=level)


WITHOUT_OVERRIDE = frozenset(
    {
        *(torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype, torch.device),
        *(bool, int, float, complex, list, tuple, dict, set, frozenset, str, bytes, slice),
        *(type(None), type(Ellipsis), type(NotImplemented), types.ModuleType),
    }
)
"""Classes whose instances never override torch's functions."""


def any_override(args: Any) -> bool:
    """Whether one of them overrides torch's functions (`torch.overrides.has_torch_function`)."""
    disabled = torch._C._disabled_torch_function_impl
    for arg in args:
        if type(arg) not in WITHOUT_OVERRIDE:
            if getattr(arg, "__torch_function__", disabled) is not disabled:
                return True
    return False


APPLY: Any = torch.autograd.Function.__dict__["apply"].__func__


class Context(torch.autograd.function.FunctionCtx):
    """What the `forward` of an `autograd.Function` is handed where no gradient is wanted."""

    def __init__(self, count: int) -> None:
        self.needs_input_grad = (False,) * count


def apply_forward(cls: Any, *args: Any) -> Any:
    """The `forward` of an `autograd.Function` whose gradient nobody wants."""
    ctx = Context(len(args))
    with torch.no_grad():
        if cls.setup_context is torch.autograd.Function.setup_context:
            output = cls.forward(ctx, *args)
        else:
            output = cls.forward(*args)
            cls.setup_context(ctx, args, output)
        handed = [x for x in args if isinstance(x, torch.Tensor)]
        written = getattr(ctx, "dirty_tensors", ())
        alone = [x for x in handed if not any(x is other for other in written)]
        if isinstance(output, tuple):
            return tuple([another(x, alone) for x in output])
        return another(output, alone)


def another(output: Any, given: list[Any]) -> Any:
    """What a function gives back as it was handed in is a view of it."""
    return alias(output) if any(output is x for x in given) else output


CONVERSIONS: Mapping[Any, torch.dtype] = types.MappingProxyType(
    {
        torch.nn.Module.float: torch.float32,
        torch.nn.Module.double: torch.float64,
        torch.nn.Module.half: torch.float16,
        torch.nn.Module.bfloat16: torch.bfloat16,
    }
)
UNPACKED_NATIVELY = itself(forward_ad.unpack_dual)
MOVED_NATIVELY = itself(torch.nn.Module.to)
CONVERTED_NATIVELY = types.MappingProxyType({method: itself(method) for method in CONVERSIONS})

SCANNED_NATIVELY = itself(torch_scan)
ENCODED_NATIVELY = itself(torch.nn.TransformerEncoder.forward)
ENCODED_AS_IT_IS = itself(torch.nn.TransformerEncoder.forward)  # not called as a whole

MEMBERS: Mapping[Any, Callable[..., Any]] = types.MappingProxyType(
    {
        torch.nn.Module.named_parameters: named_parameters,
        torch.nn.Module.named_buffers: named_buffers,
        torch.nn.Module.parameters: parameters,
        torch.nn.Module.buffers: buffers,
    }
)
"""What gives iterators over lists of a module's own."""


def enter_record_function(self: Any) -> Any:
    """Profilers see segments and kernels, not what the program calls a part of its code."""
    self.run_callbacks_on_exit = False
    return self


def group_tensors_by_device_and_dtype(tensorlistlist: Any, with_indices: bool = False) -> Any:
    """Lists of tensors, taken apart by what the tensors of the first one are."""
    groups: dict[Any, Any] = {}
    for index, first in enumerate(tensorlistlist[0]):
        key = (first.device, first.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in tensorlistlist], [])
        parts, indices = groups[key]
        for part, tensors in zip(parts, tensorlistlist):
            if tensors:
                part.append(tensors[index])
        if with_indices:
            indices.append(index)
    return groups


def check_graph_capture(self: torch.optim.Optimizer) -> None:
    """An optimizer refuses to be recorded in a CUDA graph unless it is made for that."""
    if not torch.cuda.is_available():
        return
    capturable = all(group["capturable"] for group in self.param_groups)
    capturing = torch.cuda.is_current_stream_capturing()
    if capturing and not capturable:
        name = self.__class__.__name__
        raise RuntimeError(
            f"Attempting CUDA graph capture of step() for an instance of {name} but param_groups' "
            "capturable is False."
        )
    warned = getattr(self, "_warned_capturable_if_run_uncaptured", False)
    if capturable and not capturing and not warned:
        warnings.warn(
            "This optimizer is capturable, but step() is running without CUDA graph capture.",
            stacklevel=2,
        )
        self._warned_capturable_if_run_uncaptured = True


def larger_float(a: Any, b: Any) -> float:
    """`max` as a float: which of an int and a float is the larger, data may decide."""
    one, other = float(a), float(b)
    return other if other > one else one


def with_floats(function: Any) -> Callable[..., Any]:
    """The function, for which `max` gives floats: it only divides by them."""
    names = {**function.__globals__, "max": larger_float}
    made = types.FunctionType(function.__code__, names, function.__name__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def encode(
    self: Any, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: Any = None
) -> Any:
    """`TransformerEncoder.forward`. Eager torch packs sequences whose padding comes last, and what
    it returns is 0 in place of the padding; torch's own code leaves that out while compiling."""
    if not packs_sequences(self, src, mask, src_key_padding_mask):
        return ENCODED_AS_IT_IS(self, src, mask, src_key_padding_mask, is_causal)
    if any(type(layer) is not torch.nn.TransformerEncoderLayer for layer in self.layers):
        return ENCODED_NATIVELY(self, src, mask, src_key_padding_mask, is_causal)
    output = src
    for layer in self.layers:
        output = layer(
            output, is_causal=is_causal is True, src_key_padding_mask=src_key_padding_mask
        )
    kept = src_key_padding_mask == 0
    positions = torch.arange(src.size(1), device=src.device)
    packed = (kept == (positions < kept.sum(1, keepdim=True))).all()
    output = torch.where(kept.unsqueeze(2) | ~packed, output, 0.0)
    return output if self.norm is None else self.norm(output)


def packs_sequences(self: Any, src: Any, mask: Any, padding: Any) -> bool:
    """Whether eager torch asks the padding if sequences can be packed."""
    first = self.layers[0]
    if padding is None or mask is not None or src.dim() != 3:
        return False
    if first.training or not getattr(self, "use_nested_tensor", False):
        return False
    if not getattr(self, "mask_check", True) or torch.is_autocast_enabled():
        return False
    if not torch.backends.mha.get_fastpath_enabled():
        return False
    recorded = torch.is_grad_enabled() and (
        src.requires_grad or any(weight.requires_grad for weight in first.parameters())
    )
    return src.device.type in ("cpu", "cuda") and not recorded


HEALTH_CHECKS = ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check")
"""What versions of torch call it."""

STAND_INS: Mapping[Any, Callable[..., Any]] = types.MappingProxyType(
    {
        masked._input_mask: input_mask,
        masked._combine_input_and_mask: combine_input_and_mask,
        torch.nn.RNNBase._weights_have_changed: weights_have_changed,
        torch_scan: associative_scan,
        torch.cond: cond,
        forward_ad.unpack_dual: unpack_dual,
        torch.nn.Module.to: move,
        torch.nn.TransformerEncoder.forward: encode,
        foreach._group_tensors_by_device_and_dtype: group_tensors_by_device_and_dtype,
        torch.autograd.profiler.record_function.__enter__: enter_record_function,
        **{
            function: with_floats(function)
            for function in (asgd._single_tensor_asgd, asgd._multi_tensor_asgd)
        },
        **{m: converting(CONVERSIONS[m], native) for m, native in CONVERTED_NATIVELY.items()},
        torch.nn.Module._named_members: named_members,
        **MEMBERS,
        **{
            getattr(torch.optim.Optimizer, name): check_graph_capture
            for name in HEALTH_CHECKS
            if hasattr(torch.optim.Optimizer, name)
        },
    }
)
