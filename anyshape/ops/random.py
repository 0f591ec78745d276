"""Random rows: torch's own generators, in program order, so that the stream is eager's."""

from __future__ import annotations

from typing import Any

from anyshape.ir.dtypes import int64
from anyshape.ir.graph import Arg, TensorType
from anyshape.nouns import replace
from anyshape.ops.context import NoRow, TypeContext
from anyshape.ops.layout import formatted_strides, pointwise_strides
from anyshape.ops.rules import (
    contiguous_like,
    created,
    like,
    new,
    of_numbers,
    same_as,
    sizes_of,
    tensor,
)
from anyshape.ops.table import Extern, OneByOne, OpDef, Signature, add_row, op
from anyshape.ops.view import Normal, sequence

_OPTIONS = (
    "dtype=None, device=None, generator=None, layout=None, requires_grad=False, pin_memory=False"
)


def _sized(
    cx: TypeContext,
    size: Arg,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
    **rest: Arg,
) -> Normal:
    kwargs = {"dtype": dtype or cx.default_dtype, "device": device or cx.default_device}
    return (sequence(size),), kwargs | ({"generator": generator} if generator else {})


def random(
    name: str,
    signature: str,
    rule: Any,
    *,
    torch: str = "",
    spellings: tuple[str, ...] = (),
    normalize: Any = None,
    differentiable: bool = True,
    one_by_one: OneByOne | None = None,
) -> OpDef:
    """A random row that torch computes."""
    function = torch or f"torch.{name}"
    return op(
        name,
        signature,
        torch=function,
        one_by_one=one_by_one,
        spellings=spellings,
        type=rule,
        random=True,
        normalize=normalize,
        lower=Extern(function),
        differentiable=differentiable,
    )


def _created(
    cx: TypeContext, size: Any, *, dtype: Any, device: Any, generator: Any = None
) -> TensorType:
    return created(cx, size, dtype, device)


for _name in ("rand", "randn"):
    random(_name, f"size, *, {_OPTIONS}", _created, normalize=_sized, one_by_one=OneByOne(0))


def _randint_normal(
    cx: TypeContext,
    low: Any = 0,
    high: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    **rest: Arg,
) -> Normal:
    if size is None:  # torch.randint(high, size)
        low, high, size = 0, low, high
    elif high is None:  # torch.randint(high, size=size)
        low, high = 0, low
    return (low, high, sequence(size)), {
        "dtype": dtype or int64,
        "device": device or cx.default_device,
    }


random(
    "randint",
    f"low=0, high=None, size=None, *, {_OPTIONS}",
    lambda cx, low, high, size, *, dtype, device: created(cx, size, dtype, device),
    normalize=_randint_normal,
)
random(
    "randperm",
    f"n, *, {_OPTIONS}",
    lambda cx, n, *, dtype, device: created(cx, (n,), dtype, device),
    normalize=lambda cx, n, *, dtype=None, device=None, **rest: (
        (n,),
        {"dtype": dtype or int64, "device": device or cx.default_device},
    ),
)


def _like(
    cx: TypeContext, x: Any, *args: Arg, dtype: Any = None, device: Any = None, **rest: Arg
) -> TensorType:
    t = tensor(x)
    strides = formatted_strides(cx, t, rest.get("memory_format"))
    return TensorType(dtype or t.dtype, device or t.device, t.shape, strides)


def _options(
    cx: TypeContext,
    *args: Arg,
    dtype: Any = None,
    device: Any = None,
    memory_format: Arg = None,
    **rest: Arg,
) -> Normal:
    return args, {"dtype": dtype, "device": device, "memory_format": memory_format}


_LIKE = (
    "*, dtype=None, device=None, layout=None, requires_grad=False, pin_memory=False, "
    "memory_format=None"
)
for _name, _more in (("rand_like", ""), ("randn_like", "")):
    random(_name, f"input{_more}, {_LIKE}", _like, normalize=_options, differentiable=False)
random(
    "randint_like",
    f"input, low=0, high=None, {_LIKE}",
    _like,
    torch="anyshape.eager_random.randint_like",
    spellings=("torch.randint_like",),
    normalize=_options,
    differentiable=False,
)
random(
    "bernoulli",
    "input, p=None, *, generator=None",
    lambda cx, x, p=None, generator=None: new(cx, tensor(x), tensor(x).shape),
    torch="anyshape.eager_random.bernoulli",
    spellings=("torch.bernoulli", "torch.Tensor.bernoulli"),
)


def _multinomial_type(
    cx: TypeContext, x: Any, num_samples: Any, *rest: Arg, **kwargs: Arg
) -> TensorType:
    t = tensor(x)
    return new(cx, t, (*t.shape[:-1], num_samples), int64)


random(
    "multinomial",
    "input, num_samples, replacement=False, *, generator=None",
    _multinomial_type,
    spellings=("torch.Tensor.multinomial",),
)


random("_sample_dirichlet", "input, generator=None", contiguous_like(0))


def _dirichlet_grad_type(cx: TypeContext, x: Any, alpha: Any, total: Any) -> TensorType:
    """Torch's kernel reads all three as of one shape and dtype, and says nothing of others."""
    for other in (alpha, total):
        alike = tensor(other).dtype is tensor(x).dtype and len(other.shape) == len(x.shape)
        if not alike or not all(map(cx.same, x.shape, other.shape)):
            raise NoRow("its arguments are of several shapes or dtypes")
    return new(cx, tensor(x), x.shape)


op(
    "_dirichlet_grad",
    "x, alpha, total",
    torch="torch._dirichlet_grad",
    type=_dirichlet_grad_type,
    lower=Extern("torch._dirichlet_grad"),
)


def _normal_type(
    cx: TypeContext, mean: Any, std: Any = 1.0, size: Any = None, **kwargs: Any
) -> TensorType:
    if size is not None:
        return created(cx, sizes_of(size), kwargs.get("dtype"), kwargs.get("device"))
    tensors = [v.type for v in (mean, std) if hasattr(v, "type")]
    return new(cx, tensors[0], cx.broadcast_shapes([t.shape for t in tensors]))


random(
    "normal",
    "mean, std=1.0, size=None, *, dtype=None, device=None, generator=None, layout=None",
    _normal_type,
    torch="anyshape.eager_random.normal",
    spellings=("torch.normal",),
)
random(
    "rrelu_random",
    "input, lower, upper",
    lambda cx, x, lower, upper: new(cx, tensor(x), tensor(x).shape),
    torch="anyshape.eager_random.rrelu_random",
)


def _rrelu(b: Any, x: Any, lower: Any, upper: Any, training: Any, inplace: Any) -> Any:
    if training:
        return b.rrelu_random(x, lower, upper)
    slope = of_numbers("truediv", of_numbers("add", lower, upper), 2)
    return b.contiguous(b.leaky_relu(x, slope))


op(
    "rrelu",
    "input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False",
    torch="torch.nn.functional.rrelu",
    inline=True,
    expand=_rrelu,
)


def times_noise(cx: TypeContext, x: Any, *rest: Arg) -> TensorType:
    """The product of the argument and what is drawn in its format."""
    kept = _like(cx, x)
    return replace(kept, strides=pointwise_strides(cx, kept.shape, (tensor(x), kept)))


def _times_features(cx: TypeContext, x: Any, *rest: Arg) -> TensorType:
    """The product of the argument and one number for each of its channels."""
    t = tensor(x)
    noise = new(cx, t, (*t.shape[:2], *(1,) * (t.rank - 2)))
    return replace(t, strides=pointwise_strides(cx, t.shape, (t, noise)))


for _name in ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
    random(
        f"random_{_name}",
        "input, p=0.5, training=True, inplace=False",
        _times_features if _name[-2:] in ("1d", "2d", "3d") or "feature" in _name else times_noise,
        torch=f"anyshape.eager_random.random_{_name}",
    )


def _gumbel_type(cx: TypeContext, x: Any, *rest: Arg) -> TensorType:
    t = tensor(x)
    return new(cx, t, t.shape)


random(
    "gumbel_softmax",
    "logits, tau=1, hard=False, eps=1e-10, dim=-1",
    _gumbel_type,
    torch="torch.nn.functional.gumbel_softmax",
)

# In-place: ``x.normal_()`` draws what a fresh tensor in the layout of ``x`` would.
for _name, _signature in (
    ("normal_", "input, mean=0, std=1, *, generator=None"),
    ("uniform_", "input, *args, generator=None"),
    ("bernoulli_", "input, p=0.5, *, generator=None"),
    ("exponential_", "input, lambd=1, *, generator=None"),
    ("random_", "input, low=None, high=None, *, generator=None"),
):
    _text = _signature.replace("*args, ", "low=0.0, high=1.0, *, ")
    op(
        f"drawn_{_name[:-1]}",
        _text,
        torch=f"anyshape.eager_random.drawn_{_name[:-1]}",
        type=like(0),
        random=True,
        lower=Extern(f"anyshape.eager_random.drawn_{_name[:-1]}"),
    )
    add_row(
        OpDef(
            name=_name,
            signature=Signature.parse(_text),
            torch=f"{'anyshape.eager_random' if _name == 'random_' else 'torch.Tensor'}.{_name}",
            spellings=(f"torch.Tensor.{_name}",),
            type=same_as(0),
            mutates=("input",),
            functional=f"drawn_{_name[:-1]}",
            alias="view",
            random=True,
        )
    )
