"""Where the parts lie in the published folder of Vevo2 (RMSnow/Vevo2).

    tokenizer/prosody_fvq512_6.25hz/           model.safetensors
    tokenizer/contentstyle_fvq16384_12.5hz/    model.safetensors
    contentstyle_modeling/posttrained/         a Hugging Face folder of Qwen2; amphion_config.json
    contentstyle_modeling/pretrained/          the same before its last training
    acoustic_modeling/fm_emilia101k_singnet7k_repa/   config.json, weights, whisper_stats.pt
    vocoder/                                   config.json, model.safetensors (others are unused)

Whisper medium's encoder is published elsewhere and is looked for inside the folder or beside it, as
whisper-medium/. amphion_config.json and the configurations of flow matching and vocoder are JSON5.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stapes.errors import ModelError
from stapes.models.hub import VOICE_FOLDER
from stapes.models.vevo2.json5_files import read_json5_object

#: What the weights may be used for, as their publisher says.
LICENSE = "CC-BY-NC-ND-4.0 (no commercial use, no redistribution of converted weights)"

AR_FOLDER = VOICE_FOLDER
AR_VARIANTS = ("posttrained", "pretrained")  # of the AR; the first that is there is taken
_WEIGHTS = "model.safetensors"
_WHISPER = "whisper-medium"


@dataclass(frozen=True)
class Part:
    """A part of the model: its folder below the root, and the files that it cannot do without."""

    folder: str
    files: tuple[str, ...]


PARTS = {
    "prosody_tokenizer": Part("tokenizer/prosody_fvq512_6.25hz", (_WEIGHTS,)),
    "content_style_tokenizer": Part("tokenizer/contentstyle_fvq16384_12.5hz", (_WEIGHTS,)),
    "flow_matching": Part(
        "acoustic_modeling/fm_emilia101k_singnet7k_repa",
        ("config.json", _WEIGHTS, "whisper_stats.pt"),
    ),
    "vocoder": Part("vocoder", ("config.json", _WEIGHTS)),
}


@dataclass(frozen=True)
class Vevo2Layout:
    """The folders of one published model, as absolute paths.

    Attributes:
        ar: of the autoregressive stage, which may be missing where there are other parts.
        root: above all parts; None when the AR's folder stands by itself.
    """

    ar: Path
    root: Path | None

    def folder(self, part: str) -> Path:
        """The folder of one of `PARTS`.

        Raises:
            ModelError: a file that the part needs is not there; the message names it.
        """
        if self.root is None:
            raise ModelError(
                f"{self.ar} holds the autoregressive stage alone: the {_words(part)} is looked for "
                f"in the folder that has it in {AR_FOLDER}."
            )
        found = self.root / PARTS[part].folder
        missing = [name for name in PARTS[part].files if not (found / name).exists()]
        if missing:
            raise ModelError(f"The {_words(part)} in {found} lacks {', '.join(missing)}.")
        return found

    def config(self, part: str) -> dict[str, Any]:
        """The config.json of one of `PARTS`, which is JSON5. ModelError when it cannot be read."""
        return read_json5_object(self.folder(part) / "config.json")

    def ar_config(self) -> dict[str, Any]:
        """What the publisher's code trained the AR with; loading the AR needs nothing of it.

        ConfigError when it is missing or no JSON5.
        """
        return read_json5_object(self.ar / "amphion_config.json")

    def whisper(self) -> Path:
        """The folder with Whisper medium. ModelError when there is none."""
        places = [] if self.root is None else [self.root / _WHISPER, self.root.parent / _WHISPER]
        for place in places:
            if (place / "config.json").exists() or any(place.glob("*.pt")):
                return place
        looked = " or ".join(map(str, places)) or f"the folder above {AR_FOLDER}"
        raise ModelError(
            f"There is no Whisper medium: config.json or a .pt file was looked for in {looked}."
        )

    def whisper_stats(self) -> Path:
        """Means and deviations of Whisper's features, beside the weights of flow matching.

        The publisher's configuration names another file, below its own source folder, with the same
        content.
        """
        return self.folder("flow_matching") / "whisper_stats.pt"


def find_layout(path: str | Path) -> Vevo2Layout:
    """The layout of a model that is given by its root or by its AR's folder.

    Raises:
        ModelError: neither is there.
    """
    given = Path(os.path.abspath(path))  # the working directory may change later
    ar = ar_folder(given)
    if ar is None and (given / "config.json").exists():
        ar = given
    if ar is None and any((given / part.folder).is_dir() for part in PARTS.values()):
        return Vevo2Layout(given / AR_FOLDER / AR_VARIANTS[0], given)
    if ar is None:
        wanted = " or ".join(f"{AR_FOLDER}/{variant}" for variant in AR_VARIANTS)
        raise ModelError(f"{path} holds no Vevo2 model: neither config.json nor {wanted}.")
    return Vevo2Layout(ar, ar.parents[1] if ar.parent.name == AR_FOLDER else None)


def ar_folder(root: Path) -> Path | None:
    """The folder of the AR below the root of a published model, or None when there is none."""
    for variant in AR_VARIANTS:
        folder = root / AR_FOLDER / variant
        if (folder / "config.json").exists():
            return folder
    return None


def _words(part: str) -> str:
    return part.replace("_", " ")
