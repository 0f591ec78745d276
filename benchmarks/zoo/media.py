"""Pictures, sound, time series and mixtures of them, from transformers."""

from __future__ import annotations

import torch

from benchmarks.zoo.entry import (
    ONE_PICTURE,
    PICTURES,
    WORDS,
    Entry,
    Sizes,
    hf,
    ids,
    pictures,
)
from benchmarks.zoo.text import GROUPED, SEQ2SEQ

SOUND: tuple[Sizes, ...] = ((2, 1600), (1, 1000), (3, 2400), (1, 800))
FRAMES: tuple[Sizes, ...] = ((2, 40), (1, 33), (3, 64), (1, 20))
DETAILED: tuple[Sizes, ...] = ((2, 128), (1, 192), (3, 160))
BIG_PICTURES: tuple[Sizes, ...] = ((2, 64), (1, 64), (1, 96), (3, 128))

VISION = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
WINDOWS = {
    "image_size": 64,
    "patch_size": 4,
    "embed_dim": 8,
    "depths": [1, 1],
    "num_heads": [1, 2],
    "window_size": 4,
}
PATCHES = {**VISION, "image_size": 32, "patch_size": 8}
SPEECH = {
    **VISION,
    "vocab_size": 32,
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "layerdrop": 0.0,
}
TOWER_TEXT = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 77,
    "projection_dim": 32,
}
LAYERS = {
    "hidden_size": 32,
    "num_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
SERIES = {
    "prediction_length": 4,
    "context_length": 12,
    "lags_sequence": [1, 2, 3],
    "num_time_features": 2,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}


def resized(batch: int, size: int, generator: torch.Generator) -> dict[str, object]:
    """Pictures of a size that the positions are not made for."""
    return {**pictures(batch, size, generator), "interpolate_pos_encoding": True}


def sound(batch: int, samples: int, generator: torch.Generator) -> dict[str, object]:
    mask = torch.ones(batch, samples, dtype=torch.int64)
    mask[-1, samples - samples // 5 :] = 0
    wave = torch.randn(batch, samples, generator=generator)
    return {"input_values": wave, "attention_mask": mask}


def wave(batch: int, samples: int, generator: torch.Generator) -> dict[str, object]:
    return {"input_values": torch.randn(batch, 1, samples, generator=generator)}


def frames(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    features = torch.randn(batch, length, 16, generator=generator)
    decoder = ids(batch, max(1, length // 4), generator)
    return {"input_features": features, "decoder_input_ids": decoder}


def whisper(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    """Spectrograms of the one length that Whisper takes; the text varies."""
    features = torch.randn(batch, 16, 60, generator=generator)
    return {"input_features": features, "decoder_input_ids": ids(batch, length, generator)}


def pair(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    """Pictures, and texts of the given length."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, max(1, length - 2) :] = 0
    return {
        "input_ids": ids(batch, length, generator),
        "attention_mask": mask,
        "pixel_values": torch.randn(batch, 3, 32, 32, generator=generator),
    }


def described_pictures(batch: int, size: int, generator: torch.Generator) -> dict[str, object]:
    """Pictures, each with a text whose length is made of the size."""
    length = 3 + size // 32
    return {
        "pixel_values": torch.randn(batch, 3, size, size, generator=generator),
        "pixel_mask": torch.ones(batch, size, size, dtype=torch.int64),
        "input_ids": ids(batch, length, generator),
        "attention_mask": torch.ones(batch, length, dtype=torch.int64),
        "token_type_ids": torch.zeros(batch, length, dtype=torch.int64),
    }


def pair_without_mask(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    given = pair(batch, length, generator)
    del given["attention_mask"]
    return given


def picture_in_text(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    """Sixteen picture tokens (id 98), then text."""
    spots = torch.full((batch, 16), 98)
    text = torch.randint(3, 97, (batch, length), generator=generator)
    return {
        "input_ids": torch.cat([spots, text], 1),
        "attention_mask": torch.ones(batch, 16 + length, dtype=torch.int64),
        "pixel_values": torch.randn(batch, 3, 32, 32, generator=generator),
    }


def typed_picture_in_text(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    """As above, all of it prefix; without the types the library masks otherwise when compiled."""
    given = picture_in_text(batch, length, generator)
    return {**given, "token_type_ids": torch.zeros(batch, 16 + length, dtype=torch.int64)}


def pages(batch: int, cells: int, generator: torch.Generator) -> dict[str, object]:
    """Pages of cells by cells patches of 8 pixels, a token (98) for each four; then text."""
    spots = torch.full((batch, (cells // 2) ** 2), 98)
    text = torch.randint(3, 97, (batch, 5), generator=generator)
    side = 8 * cells
    return {
        "input_ids": torch.cat([spots, text], 1),
        "attention_mask": torch.ones(batch, spots.shape[1] + 5, dtype=torch.int64),
        "pixel_values": torch.randn(batch, 3, side, side, generator=generator),
        "image_sizes": torch.full((batch, 2), side),
    }


def questions(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    """Pictures of one size, a token (98) for each of 17 features; texts of the given length."""
    text = torch.randint(3, 97, (batch, length), generator=generator)
    return {
        "input_ids": torch.cat([torch.full((batch, 17), 98), text], 1),
        "attention_mask": torch.ones(batch, 17 + length, dtype=torch.int64),
        "pixel_values": torch.randn(batch, 3, 32, 32, generator=generator),
        "decoder_input_ids": ids(batch, max(1, length // 2), generator),
    }


def named_objects(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    """Pictures of one size, texts of the given length."""
    return {
        "pixel_values": torch.randn(batch, 3, 56, 56, generator=generator),
        "input_ids": ids(batch, length, generator),
        "attention_mask": torch.ones(batch, length, dtype=torch.int64),
    }


def histories(count: int, length: int, generator: torch.Generator) -> dict[str, object]:
    """Series of different lengths."""
    lengths = [length + 3 * i for i in range(count)]
    return {"past_values": [torch.randn(n, generator=generator) for n in lengths]}


def masked_pictures(batch: int, size: int, generator: torch.Generator) -> dict[str, object]:
    mask = torch.ones(batch, size, size, dtype=torch.int64)
    mask[-1, :, size // 2 :] = 0
    return {**pictures(batch, size, generator), "pixel_mask": mask}


def noisy_pictures(batch: int, size: int, generator: torch.Generator) -> dict[str, object]:
    """For masked autoencoders: the noise that picks the patches is given."""
    return {
        **pictures(batch, size, generator),
        "noise": torch.rand(batch, (size // 8) ** 2, generator=generator),
    }


def clicks(batch: int, points: int, generator: torch.Generator) -> dict[str, object]:
    return {
        "pixel_values": torch.randn(batch, 3, 64, 64, generator=generator),
        "input_points": torch.rand(batch, 1, points, 2, generator=generator) * 64,
        "input_labels": torch.ones(batch, 1, points, dtype=torch.int64),
    }


def videos(batch: int, size: int, generator: torch.Generator) -> dict[str, object]:
    return {"pixel_values": torch.randn(batch, 4, 3, 32, 32, generator=generator)}


def series(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    return {"past_values": torch.randn(batch, 24, 3, generator=generator)}


def past_and_future(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "past_values": draw(batch, 15),
        "past_time_features": draw(batch, 15, 2),
        "past_observed_mask": torch.ones(batch, 15),
        "future_values": draw(batch, 4),
        "future_time_features": draw(batch, 4, 2),
    }


def spectrogram(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    return {"input_values": torch.randn(batch, 64, 16, generator=generator)}


def boxed_text(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    low = torch.randint(0, 400, (batch, length, 2), generator=generator)
    size = torch.randint(1, 400, (batch, length, 2), generator=generator)
    return {"input_ids": ids(batch, length, generator), "bbox": torch.cat([low, low + size], -1)}


SHORT_TEXT: tuple[Sizes, ...] = ((2, 7), (1, 12), (3, 20), (2, 1), (1, 1))

CLASSIFIERS = (
    hf("vision", "ViTForImageClassification", resized, PICTURES, **PATCHES),
    hf("vision", "DeiTModel", resized, PICTURES, **PATCHES),
    hf("vision", "BeitModel", pictures, ONE_PICTURE, **PATCHES),
    hf("vision", "Dinov2Model", pictures, PICTURES, hidden_size=64, num_hidden_layers=2,
       num_attention_heads=4, image_size=32, patch_size=8),
    hf("vision", "Dinov2WithRegistersModel", pictures, PICTURES, hidden_size=64,
       num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8),
    hf("vision", "DINOv3ViTModel", pictures, PICTURES, **PATCHES),
    hf("vision", "SiglipVisionModel", pictures, ONE_PICTURE, **PATCHES),
    hf("vision", "CLIPVisionModel", resized, PICTURES, **PATCHES),
    hf("vision", "SwinForImageClassification", pictures, PICTURES, image_size=32, patch_size=2,
       embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
    hf("vision", "Swinv2Model", pictures, PICTURES, image_size=32, patch_size=2, embed_dim=16,
       depths=[2, 2], num_heads=[2, 4], window_size=4),
    hf("vision", "ConvNextForImageClassification", pictures, PICTURES, hidden_sizes=[8, 16, 24, 32],
       depths=[1, 1, 2, 1]),
    hf("vision", "ConvNextV2Model", pictures, PICTURES, hidden_sizes=[8, 16, 24, 32],
       depths=[1, 1, 2, 1]),
    hf("vision", "ResNetForImageClassification", pictures, PICTURES, embedding_size=8,
       hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    hf("vision", "RegNetModel", pictures, PICTURES, embedding_size=8,
       hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], groups_width=4),
    hf("vision", "BitModel", pictures, PICTURES, embedding_size=8, hidden_sizes=[8, 16, 24, 32],
       depths=[1, 1, 1, 1], num_groups=2),
    hf("vision", "EfficientNetModel", pictures, PICTURES, width_coefficient=0.25,
       depth_coefficient=0.3, hidden_dim=320),
    hf("vision", "MobileNetV2Model", pictures, PICTURES, depth_multiplier=0.25),
    hf("vision", "MobileViTModel", pictures, BIG_PICTURES, hidden_sizes=[16, 24, 32],
       neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32], num_attention_heads=2, image_size=64),
    hf("vision", "PoolFormerModel", pictures, BIG_PICTURES, hidden_sizes=[8, 16, 24, 32],
       depths=[1, 1, 1, 1]),
    hf("vision", "PvtV2Model", pictures, BIG_PICTURES, image_size=64, hidden_sizes=[8, 16, 24, 32],
       depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4]),
    hf("vision", "CvtModel", pictures, PICTURES, embed_dim=[8, 16, 32], num_heads=[1, 2, 4],
       depth=[1, 2, 3]),
    hf("vision", "LevitModel", pictures, ONE_PICTURE, image_size=32, hidden_sizes=[16, 24, 32],
       num_attention_heads=[2, 2, 2], depths=[1, 1, 1], key_dim=[8, 8, 8], patch_size=16),
    hf("vision", "FocalNetModel", pictures, PICTURES, image_size=32, patch_size=2, embed_dim=16,
       depths=[2, 2], focal_levels=[2, 2], focal_windows=[3, 3]),
    hf("vision", "HieraModel", resized, ONE_PICTURE, embed_dim=16, image_size=[32, 32],
       depths=[1, 1, 1], num_heads=[1, 2, 4], patch_size=[3, 3], patch_padding=[1, 1],
       patch_stride=[2, 2], masked_unit_size=[4, 4], query_stride=[2, 2], num_query_pool=2,
       masked_unit_attention=[True, True, False]),
    hf("vision", "SwiftFormerModel", pictures, ONE_PICTURE, image_size=32, depths=[1, 1, 1, 1],
       embed_dims=[8, 16, 24, 32]),
    hf("vision", "ViTMAEForPreTraining", noisy_pictures, ONE_PICTURE, **PATCHES,
       decoder_hidden_size=32, decoder_num_hidden_layers=1, decoder_num_attention_heads=2,
       decoder_intermediate_size=64),
    hf("vision", "VideoMAEModel", videos, ONE_PICTURE, **PATCHES, num_frames=4),
    hf("vision", "TimesformerModel", videos, ONE_PICTURE, **PATCHES, num_frames=4),
    hf("vision", "IJepaModel", resized, PICTURES, **PATCHES),
    hf("vision", "PerceiverForImageClassificationLearned", pictures, ONE_PICTURE, num_latents=8,
       d_latents=32, num_blocks=1, num_self_attends_per_block=1, image_size=32,
       num_self_attention_heads=2, num_cross_attention_heads=1),
)  # fmt: skip

FINDERS = (
    hf("detection", "DetrForObjectDetection", masked_pictures, BIG_PICTURES, d_model=32,
       encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
       encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=6, use_timm_backbone=False,
       use_pretrained_backbone=False, backbone=None,
       backbone_config=("ResNetConfig", {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32],
                        "depths": [1, 1, 1, 1], "out_features": ["stage4"]})),
    hf("detection", "DeformableDetrForObjectDetection", masked_pictures, BIG_PICTURES, d_model=32,
       encoder_layers=1, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
       encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=6, use_timm_backbone=False,
       use_pretrained_backbone=False, backbone=None,
       backbone_config=("ResNetConfig", {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32],
                        "depths": [1, 1, 1, 1], "out_features": ["stage2", "stage3", "stage4"]})),
    hf("detection", "RTDetrForObjectDetection", pictures, BIG_PICTURES, d_model=32,
       encoder_hidden_dim=32, encoder_in_channels=[16, 24, 32], encoder_ffn_dim=32,
       decoder_ffn_dim=32, decoder_layers=1, decoder_attention_heads=2, encoder_attention_heads=2,
       num_queries=6, decoder_in_channels=[32, 32, 32], hidden_expansion=1.0,
       backbone_config=("RTDetrResNetConfig", {"embedding_size": 8,
                        "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
                        "out_features": ["stage2", "stage3", "stage4"]})),
    hf("detection", "YolosForObjectDetection", pictures, ONE_PICTURE, **{**PATCHES,
       "image_size": [32, 32]}, num_detection_tokens=5),
    hf("segmentation", "SegformerForSemanticSegmentation", pictures, BIG_PICTURES,
       hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4],
       decoder_hidden_size=32, num_labels=5),
    hf("segmentation", "Mask2FormerForUniversalSegmentation", pictures, BIG_PICTURES,
       hidden_dim=32, feature_size=32, mask_feature_size=32, encoder_layers=1, decoder_layers=2,
       num_attention_heads=2, dim_feedforward=32, encoder_feedforward_dim=32, num_queries=6,
       num_labels=5, backbone_config=("SwinConfig", {"image_size": 64, "patch_size": 4,
       "embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2], "window_size": 4,
       "out_features": ["stage1", "stage2", "stage3", "stage4"]})),
    hf("segmentation", "MaskFormerForInstanceSegmentation", pictures, BIG_PICTURES,
       fpn_feature_size=32, mask_feature_size=32, num_labels=5,
       backbone_config=("SwinConfig", {"image_size": 64, "patch_size": 4, "embed_dim": 8,
       "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2], "window_size": 4,
       "out_features": ["stage1", "stage2", "stage3", "stage4"]}),
       decoder_config=("DetrConfig", {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
       "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32,
       "decoder_ffn_dim": 32, "num_queries": 6})),
    hf("segmentation", "SamModel", clicks, ((1, 1), (1, 3), (2, 2)),
       vision_config=("SamVisionConfig", {"hidden_size": 32, "output_channels": 16,
       "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 64, "patch_size": 8,
       "window_size": 4, "global_attn_indexes": [1], "num_pos_feats": 8, "mlp_dim": 64}),
       prompt_encoder_config=("SamPromptEncoderConfig", {"hidden_size": 16, "image_size": 64,
       "patch_size": 8, "mask_input_channels": 4}),
       mask_decoder_config=("SamMaskDecoderConfig", {"hidden_size": 16, "mlp_dim": 32,
       "num_attention_heads": 2, "iou_head_hidden_dim": 16})),
    hf("segmentation", "DPTForDepthEstimation", pictures, ONE_PICTURE, **{**PATCHES,
       "num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 16, 16],
       fusion_hidden_size=16, is_hybrid=False),
    hf("segmentation", "DepthAnythingForDepthEstimation", pictures, ((2, 28), (1, 56), (3, 42)),
       patch_size=14, reassemble_hidden_size=32, neck_hidden_sizes=[8, 8, 16, 16],
       fusion_hidden_size=16, head_hidden_size=8, backbone=None,
       backbone_config=("Dinov2Config", {"hidden_size": 32, "num_hidden_layers": 4,
       "num_attention_heads": 2, "image_size": 28, "patch_size": 14, "reshape_hidden_states": False,
       "out_features": ["stage1", "stage2", "stage3", "stage4"]})),
    hf("segmentation", "GLPNForDepthEstimation", pictures, BIG_PICTURES,
       hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4],
       decoder_hidden_size=16),
    hf("segmentation", "MaskFormerSwinModel", pictures, BIG_PICTURES, **WINDOWS),
    hf("segmentation", "DonutSwinModel", pictures, BIG_PICTURES, **WINDOWS),
    hf("detection", "GroundingDinoForObjectDetection", described_pictures, DETAILED, d_model=32,
       encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
       encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=6, max_text_len=16, backbone=None,
       use_timm_backbone=False, use_pretrained_backbone=False, text_config=("BertConfig",
       {**VISION, "vocab_size": WORDS}), backbone_config=("SwinConfig", {**WINDOWS,
       "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2],
       "out_features": ["stage2", "stage3", "stage4"]})),
    hf("detection", "Sam3Model", named_objects, SHORT_TEXT[:3], vision_config=("Sam3VisionConfig", {
       "fpn_hidden_size": 32, "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
       "backbone_config": ("Sam3ViTConfig", {"hidden_size": 32, "intermediate_size": 64,
       "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 7,
       "window_size": 4, "global_attn_indexes": [1], "pretrain_image_size": 28})}),
       text_config=("CLIPTextConfig", {**TOWER_TEXT, "eos_token_id": 98}),
       geometry_encoder_config=("Sam3GeometryEncoderConfig", {**LAYERS, "roi_size": 3}),
       detr_encoder_config=("Sam3DETREncoderConfig", LAYERS),
       detr_decoder_config=("Sam3DETRDecoderConfig", {**LAYERS, "num_queries": 6}),
       mask_decoder_config=("Sam3MaskDecoderConfig", {"hidden_size": 32,
       "num_attention_heads": 2, "num_upsampling_stages": 3})),
    hf("super resolution", "Swin2SRForImageSuperResolution", pictures, PICTURES, image_size=32,
       embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4, upscale=2),
)  # fmt: skip

LISTENERS = (
    hf("audio", "Wav2Vec2ForCTC", sound, SOUND, **SPEECH),
    hf("audio", "HubertModel", sound, SOUND, **SPEECH),
    hf("audio", "WavLMModel", sound, SOUND, **SPEECH),
    hf("audio", "UniSpeechModel", sound, SOUND, **SPEECH),
    hf("audio", "SEWModel", sound, SOUND, **{**SPEECH, "conv_stride": (5, 2, 2)}),
    hf("audio", "Data2VecAudioModel", sound, SOUND, **{k: v for k, v in SPEECH.items()
       if k != "num_conv_pos_embedding_groups"}),
    hf("audio", "WhisperForConditionalGeneration", whisper, SHORT_TEXT, **{**SEQ2SEQ,
       "max_source_positions": 30, "max_target_positions": 64}, num_mel_bins=16),
    hf("audio", "Speech2TextForConditionalGeneration", frames, FRAMES, **SEQ2SEQ,
       input_feat_per_channel=16, conv_channels=32, max_source_positions=200,
       max_target_positions=64),
    hf("audio", "ASTModel", spectrogram, ONE_PICTURE, **VISION, max_length=64, num_mel_bins=16,
       patch_size=8),
    hf("audio", "EncodecModel", wave, SOUND, num_filters=4, hidden_size=16, codebook_size=16,
       upsampling_ratios=[4, 2], num_lstm_layers=1),
    hf("audio", "DacModel", wave, SOUND, encoder_hidden_size=8, decoder_hidden_size=16,
       downsampling_ratios=[2, 4], upsampling_ratios=[4, 2], n_codebooks=2, codebook_size=16,
       codebook_dim=4),
    hf("audio", "MimiModel", wave, SOUND, num_filters=4, hidden_size=16, codebook_size=16,
       upsampling_ratios=[4, 2], num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
       num_key_value_heads=2, head_dim=8, num_quantizers=4, num_semantic_quantizers=1,
       codebook_dim=16, vector_quantization_hidden_dimension=16, upsample_groups=16),
)  # fmt: skip

MIXED = (
    hf("text and pictures", "CLIPModel", pair, SHORT_TEXT, text_config=TOWER_TEXT,
       vision_config=PATCHES, projection_dim=32),
    hf("text and pictures", "SiglipModel", pair, SHORT_TEXT, text_config=TOWER_TEXT,
       vision_config=PATCHES),
    hf("text and pictures", "ChineseCLIPModel", pair, SHORT_TEXT, text_config=TOWER_TEXT,
       vision_config=PATCHES, projection_dim=32),
    hf("text and pictures", "BlipForImageTextRetrieval", pair, SHORT_TEXT, text_config={
       **TOWER_TEXT, "encoder_hidden_size": 64}, vision_config=PATCHES, image_text_hidden_size=32),
    hf("text and pictures", "ViltModel", pair, SHORT_TEXT, **PATCHES, vocab_size=WORDS),
    hf("text and pictures", "LayoutLMModel", boxed_text, name="LayoutLMModel (boxes)",
       vocab_size=WORDS, **VISION, max_position_embeddings=512),
    hf("text and pictures", "GitForCausalLM", pair, SHORT_TEXT, vocab_size=WORDS, **VISION,
       vision_config=PATCHES),
    hf("text and pictures", "LlavaForConditionalGeneration", picture_in_text, SHORT_TEXT,
       image_token_index=98, vision_feature_layer=-1, vision_feature_select_strategy="default",
       text_config=("LlamaConfig", GROUPED), vision_config=("CLIPVisionConfig", PATCHES)),
    hf("text and pictures", "PaliGemmaForConditionalGeneration", typed_picture_in_text, SHORT_TEXT,
       image_token_index=98, projection_dim=64, text_config=("GemmaConfig",
       {**GROUPED, "head_dim": 16}), vision_config=("SiglipVisionConfig",
       {**PATCHES, "projection_dim": 64, "vision_use_head": False})),
    hf("text and pictures", "LightOnOcrForConditionalGeneration", pages, ((1, 4), (2, 6), (1, 8)),
       image_token_id=98, text_config=("Qwen3Config", {**GROUPED, "head_dim": 16}),
       vision_config=("PixtralVisionConfig", {**PATCHES, "image_size": 64, "head_dim": 16})),
    hf("text and pictures", "Florence2ForConditionalGeneration", questions, SHORT_TEXT[:3],
       image_token_id=98, text_config=("BartConfig", SEQ2SEQ), vision_config=(
       "Florence2VisionConfig", {"depths": [1, 1], "patch_size": [7, 3], "patch_stride": [4, 2],
       "patch_padding": [3, 1], "patch_prenorm": [False, True], "embed_dim": [16, 32],
       "num_heads": [2, 2], "num_groups": [2, 2], "window_size": 4, "projection_dim": 64})),
)  # fmt: skip

FORECASTERS = (
    hf("time series", "PatchTSTModel", series, ONE_PICTURE, num_input_channels=3,
       context_length=24, patch_length=4, patch_stride=4, d_model=32, num_hidden_layers=2,
       num_attention_heads=4, ffn_dim=64),
    hf("time series", "PatchTSMixerModel", series, ONE_PICTURE, num_input_channels=3,
       context_length=24, patch_length=4, patch_stride=4, d_model=16, num_layers=2),
    hf("time series", "InformerModel", past_and_future, ONE_PICTURE, **SERIES),
    hf("time series", "AutoformerModel", past_and_future, ONE_PICTURE, **SERIES,
       moving_average=5, label_length=4),
    hf("time series", "TimeSeriesTransformerModel", past_and_future, ONE_PICTURE, **SERIES),
    hf("time series", "TimesFm2_5ModelForPrediction", histories, ((2, 40), (1, 64), (3, 90)),
       patch_length=8, context_length=64, horizon_length=16, num_hidden_layers=2, hidden_size=32,
       intermediate_size=32, head_dim=8, num_attention_heads=4, num_key_value_heads=4,
       output_quantile_len=32),
)  # fmt: skip

ENTRIES: tuple[Entry, ...] = (*CLASSIFIERS, *FINDERS, *LISTENERS, *MIXED, *FORECASTERS)
