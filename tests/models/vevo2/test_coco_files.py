"""The tokenizers' folders: sizes from tensors, leftovers of training, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from models.vevo2.tokenizer_checkpoint import (
    CONTENT_STYLE,
    PROSODY,
    coco_tensors,
    statistics,
    whisper_config,
    whisper_tensors,
    write_coco,
    write_whisper,
)
from stapes.errors import CheckpointError, TensorFileError
from stapes.graph import Engine
from stapes.models.vevo2.tokenizers.coco_weights import CocoSpec, expected_tensors, is_unused
from stapes.models.vevo2.tokenizers.load import TokenizerLoader
from tensors.torch_archive import write_tensors

LOADER = TokenizerLoader(Engine(1))


def test_sizes_are_those_of_the_tensors(tmp_path):
    spec = LOADER.prosody(write_coco(tmp_path / "p", coco_tensors(PROSODY))).coco.spec
    assert spec == CocoSpec(24, 0, 40, 3, 24, 56, 3, 50, 8)
    assert [spec.codes(frames) for frames in (1, 8, 9, 16, 17)] == [1, 1, 2, 2, 3]


def test_the_published_sizes_have_the_published_number_of_weights():
    """234 MB is what the content-style tokenizer's file takes, in f32, with what training left."""
    spec = CocoSpec(24, 1024, 1024, 2, 384, 2048, 12, 16384, 8)
    shapes = expected_tensors(spec)
    assert shapes["encoder.0.convnext.11.pwconv1.weight"] == (2048, 384)
    assert shapes["quantizer.quantizers.0.in_project.weight_v"] == (8, 1024, 1)
    read = sum(int(np.prod(shape)) for shape in shapes.values())
    decoder = 7 * 1024 * 384 + 12 * (2 * 384 * 2048) + 384 * 1024
    left = decoder + 2 * 4 * 1024 * 1024 + 1024 * (1024 + 24) + 1024 * 8
    assert 225e6 < 4 * (read + left) < 245e6


@pytest.mark.parametrize(
    ("name", "unused"),
    [
        ("upsample_layers.0.weight", True),
        ("decoder.0.convnext.3.gamma", True),
        ("whisper_output_layer.bias", True),
        ("quantizer.quantizers.0.out_project.weight_g", True),
        ("quantizer.quantizers.1.codebook.weight", False),
        ("encoder.0.convnext.12.gamma", False),
        ("downsample_layers.6.bias", False),
    ],
)
def test_what_training_left_is_not_read(name, unused):
    assert is_unused(name) is unused


def test_a_folder_of_the_other_tokenizer_is_refused(tmp_path):
    prosody = write_coco(tmp_path / "p", coco_tensors(PROSODY))
    content_style = write_coco(tmp_path / "c", coco_tensors(CONTENT_STYLE))
    whisper = LOADER.whisper(
        write_whisper(tmp_path / "w", whisper_tensors(), whisper_config()),
        write_tensors(tmp_path / "whisper_stats.pt", statistics()),
    )
    assert LOADER.content_style(content_style, whisper).coco.spec.whisper_dim == 32
    with pytest.raises(CheckpointError, match="holds a content-style tokenizer, not one of pros"):
        LOADER.prosody(content_style)
    with pytest.raises(CheckpointError, match="holds a prosody tokenizer, not one of content"):
        LOADER.content_style(prosody, whisper)
    wide = write_coco(tmp_path / "wide", coco_tensors(type(CONTENT_STYLE)(48, 2, 300)))
    with pytest.raises(CheckpointError, match=r"reads 48 Whisper features a frame, but .* has 32"):
        LOADER.content_style(wide, whisper)


def test_tensors_that_do_not_fit(tmp_path):
    good = coco_tensors(PROSODY)
    cases = {
        "no codebook": ({"quantizer.quantizers.0.codebook.weight": None}, "no Coco tokenizer"),
        "no norm": ({"encoder.0.norm.bias": None}, "1 missing: encoder.0.norm.bias"),
        "second": ({"quantizer.quantizers.1.codebook.weight": np.zeros((2, 2))}, "1 unexpected"),
        "taps": ({"encoder.0.embed.weight": np.zeros((24, 40, 5))}, "mis-shaped"),
        "chroma": ({"chromagram_input_layer.weight": np.zeros((40, 12))}, "reads 12 chroma"),
        "nan": ({"encoder.0.norm.weight": np.full(24, np.nan)}, "not finite"),
    }
    for name, (change, reason) in cases.items():
        tensors = {**good, **{k: v for k, v in change.items() if v is not None}}
        for removed in (key for key, value in change.items() if value is None):
            del tensors[removed]
        floats = {key: value.astype(np.float32) for key, value in tensors.items()}
        with pytest.raises(CheckpointError, match=reason):
            LOADER.prosody(write_coco(tmp_path / name, floats))
    with pytest.raises(TensorFileError, match="does not exist"):
        LOADER.prosody(tmp_path / "nowhere")
