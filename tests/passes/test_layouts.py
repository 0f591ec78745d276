"""Between convolutions channels lie innermost, and nobody outside can tell."""

import pytest
import torch
import torch.nn.functional as F

import anyshape

torch.manual_seed(0)
STEM = torch.randn(8, 3, 3, 3) / 5
BODY = torch.randn(8, 8, 3, 3) / 8
POINT = torch.randn(8, 8, 1, 1) / 3
DEPTHWISE = torch.randn(8, 1, 3, 3) / 3
WIDE = torch.randn(8, 16, 3, 3) / 12
SCALE = torch.randn(8, 1, 1)


def residual(x):
    y = F.relu(F.conv2d(x, STEM, None, 1, 1))
    return y + F.conv2d(y * SCALE, BODY, None, 1, 1)


def in_between_is_returned(x):
    y = F.conv2d(x, STEM, None, 1, 1)
    z = F.relu(y)
    return y, z, F.conv2d(z, BODY, None, 2, 1)


def views_of_images(x):
    y = F.conv2d(x, STEM, None, 1, 1)
    z = F.conv2d(y, POINT)
    return z.flatten(2).transpose(1, 2), y.permute(0, 2, 3, 1), z[:, 2:5], y.reshape(-1) * 2


def products_of_images(x):
    y = F.conv2d(F.conv2d(x, STEM, None, 1, 1), BODY, None, 1, 1)
    return y.flatten(2) @ y.flatten(2).transpose(1, 2)


def pools(x):
    y = F.max_pool2d(F.conv2d(x, STEM, None, 1, 1), 3, 1, 1)
    z = F.avg_pool2d(F.conv2d(y, BODY, None, 1, 1), 3, 1, 1)
    return y, z.mean((2, 3)), F.adaptive_avg_pool2d(z, 1)


def joins(x):
    y = F.conv2d(x, STEM, None, 1, 1)
    z = F.conv2d(F.pad(y, (1, 1, 1, 1)), BODY)
    return F.conv2d(torch.cat((y, z), 1), WIDE, None, 1, 1)


def grouped(x):
    y = F.conv2d(x, STEM, None, 1, 1)
    return F.conv2d(F.conv2d(y, DEPTHWISE, None, 1, 1, 1, 8), POINT)


def written(x):
    y = F.conv2d(x, STEM, None, 1, 1)
    y.mul_(0.5)
    y[:, 0] = 0
    x.add_(1)
    return F.conv2d(y.relu_(), BODY, None, 1, 1), x


def strided_by_hand(x):
    y = F.conv2d(F.conv2d(x, STEM, None, 1, 1), BODY, None, 1, 1)
    return torch.as_strided(y, (y.shape[0], 3), (y.stride(0), 1))


def normed(x):
    y = F.group_norm(F.conv2d(x, STEM, None, 1, 1), 2)
    return F.layer_norm(F.conv2d(F.silu(y), BODY, None, 1, 1), (x.shape[-1],))


def masked(x):
    y = F.conv2d(x, STEM, None, 1, 1)
    return F.conv2d(torch.where(y > 0, y, y.exp() - 1), BODY, None, 1, 1) * (y > 0)


PROGRAMS = (
    residual, in_between_is_returned, views_of_images, products_of_images, pools, joins, grouped,
    written, strided_by_hand, normed, masked,
)  # fmt: skip
SHAPES = ((2, 3, 5, 4), (1, 3, 1, 1), (3, 3, 1, 17), (1, 3, 2, 1), (0, 3, 4, 4), (2, 3, 19, 33))


def steps(x):
    return [step for size, step in zip(x.shape, x.stride(), strict=True) if size > 1]


def check(fast, fn, x):
    found, expected = fast(x.clone()), fn(x.clone())
    pairs = zip(*((r,) if torch.is_tensor(r) else r for r in (found, expected)), strict=True)
    for got, wanted in pairs:
        assert got.dtype is wanted.dtype and got.shape == wanted.shape
        assert got.numel() == 0 or steps(got) == steps(wanted)
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fn", PROGRAMS)
def test_values_and_strides_are_eagers_at_every_size(fn):
    # a stride that the program reads is another one where sizes are 1, which is guarded
    fast = anyshape.compile(fn, fullgraph=True, options={"max_variants": 16})
    for shape in SHAPES:
        check(fast, fn, torch.randn(shape))
        check(fast, fn, torch.randn(shape).to(memory_format=torch.channels_last))
        check(fast, fn, torch.randn(shape).transpose(2, 3))


@pytest.mark.parametrize("fn", (residual, pools, joins))
def test_every_pass_keeps_the_result(fn):
    fast = anyshape.compile(fn, options={"verify": True})
    check(fast, fn, torch.randn(2, 3, 6, 5))


def copies(fn, x):
    fast = anyshape.compile(fn, fullgraph=True)
    fast(x)
    return fast


def test_one_convolution_alone_stays_as_it_is():
    fast = copies(lambda x: F.relu(F.conv2d(x, STEM)), torch.randn(2, 3, 5, 5))
    assert "channels" not in fast.code()


def test_convolutions_side_by_side_stay_as_they_are():
    fast = copies(lambda x: (F.conv2d(x, STEM), F.conv2d(x, STEM + 1)), torch.randn(2, 3, 5, 5))
    assert "channels" not in fast.code()


def test_images_between_convolutions_are_not_copied():
    fast = copies(residual, torch.randn(2, 3, 5, 5))
    made = [line for line in fast.code().splitlines() if "_channels = empty" in line]
    assert len(made) == 3, "the picture and two weights"


def test_images_between_gradients_are_not_copied():
    """Both halves of a residual network, and a whole step, keep their channels innermost."""

    def loss(x, weights):
        stem, first, second = weights
        y = F.conv2d(x, stem, None, 1, 1)
        z = F.conv2d(F.relu(F.conv2d(y, first, None, 1, 1)), second, None, 1, 1)
        return F.batch_norm(y + z, None, None, training=True).exp().mean()

    def step(x, weights):
        loss(x, weights).backward()
        return [weight.grad for weight in weights]

    shapes = ((4, 3, 3, 3), (4, 4, 3, 3), (4, 4, 3, 3))
    torch.manual_seed(0)
    values = [torch.randn(shape) for shape in shapes]
    made = [[value.clone().requires_grad_() for value in values] for _ in range(2)]
    half, whole = anyshape.compile(loss, fullgraph=True), anyshape.compile(step, fullgraph=True)
    for size in ((2, 3, 5, 4), (1, 3, 4, 1), (3, 3, 9, 17)):
        x = torch.randn(size)
        for run in (lambda x, w: half(x, w).backward(), whole):
            for weights in made:
                for weight in weights:
                    weight.grad = None
            run(x, made[0])
            loss(x, made[1]).backward()
            for ours, theirs in zip(*made):
                torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)
                assert ours.grad.stride() == theirs.grad.stride()
    for code in (half.code(), whole.code()):
        copied = {line.split("_")[0].strip() for line in code.splitlines() if "_channels =" in line}
        assert copied == {"x"}, "the picture and the weights, which are arguments"
        rows = [line for line in code.splitlines() if "_contiguous = empty" in line]
        assert all("weight_gradient" in line for line in rows) and len(rows) == 3
