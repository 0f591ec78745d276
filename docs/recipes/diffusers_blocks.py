"""diffusers: `compile_repeated_blocks(backend="anyshape")`, after `anyshape.install()`.

Images of every size are served by the first compile. Blocks of one class share their kernels.
"""

import copy

import torch
from diffusers import UNet2DConditionModel

import anyshape

anyshape.install()
torch.manual_seed(0)
model = UNet2DConditionModel(
    sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, cross_attention_dim=8,
    block_out_channels=(8, 16), attention_head_dim=4, norm_num_groups=4,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
).eval()  # fmt: skip
plain = copy.deepcopy(model)
model.compile_repeated_blocks(backend="anyshape", fullgraph=True)
with torch.no_grad():
    for height, width in ((8, 8), (8, 4), (16, 8)):
        image, text = torch.randn(2, 4, height, width), torch.randn(2, 5, 8)
        wanted = plain(image, 3, text).sample
        torch.testing.assert_close(model(image, 3, text).sample, wanted, atol=1e-4, rtol=1e-4)
blocks = [m for m in model.modules() if type(m).__name__ in model._repeated_blocks]
assert all(block._compiled_call_impl.stats().specializations == 1 for block in blocks)
print(blocks[0]._compiled_call_impl.stats())
anyshape.uninstall()
