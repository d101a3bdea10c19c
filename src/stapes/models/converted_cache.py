"""Models of the hub in converted form, kept in a folder of the user's: converted once.

A model's files lie in a folder of its repository, OWNER--NAME. A file's name says what it is of:
`model`, or the quoted path of a GGUF file; the formats of decoder and encoder; the version of the
layout; and the revision of the repository.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from stapes.errors import RequestError, TensorFileError
from stapes.models.convert import convert
from stapes.models.converted import open_converted
from stapes.models.hub import HubName, commit_of, find
from stapes.options import RuntimeOptions
from stapes.weights.packed_file import VERSION

_WHOLE = "model"
_SUFFIX = ".stapes"
_BETWEEN = "--"  # occurs in no repository's name


@dataclass(frozen=True)
class Kept:
    """A converted file.

    Attributes:
        name: of the model it was made of.
        formats: of decoder and encoder.
        version: of the layout.
        commit: the revision of the repository.
    """

    path: Path
    name: HubName
    formats: tuple[str, str]
    version: str
    commit: str


class ConvertedCache:
    """The folder; it need not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, name: HubName, options: RuntimeOptions) -> Path | None:
        """A file that holds the model in these formats; asks no server.

        It is of the revision in the hub's cache, or, when the original has been deleted there, of
        the last one that was converted. A damaged file is removed.
        """
        kept = [file for file in self._of(name, options) if file.version == VERSION]
        original = find(name) if kept else None
        if original is not None:
            kept = [file for file in kept if file.commit == commit_of(original)]
        kept.sort(key=lambda file: file.path.stat().st_mtime)
        return kept[-1].path if kept and _is_sound(kept[-1].path) else None

    def keep(self, name: HubName, original: Path, options: RuntimeOptions) -> Path:
        """Convert what the hub's cache holds of a model; earlier revisions are forgotten.

        Several processes may do so at a time: each file appears whole.

        Raises:
            CapacityError: it does not fit into memory or onto the disk.
            RequestError: the folder cannot be written to. ModelError: it is no model.
        """
        commit = commit_of(original)
        file = self._folder(name) / f"{self._stem(name, options)}.{VERSION}.{commit}{_SUFFIX}"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(f"{file.parent} cannot be made: {error.strerror}.") from error
        convert(original, file, options, force=True)
        for other in self._of(name, options):
            if other.path != file:
                other.path.unlink(missing_ok=True)
        return file

    def files(self) -> Iterator[Kept]:
        """Everything that is kept, in the order of names."""
        for path in sorted(self.folder.glob(f"*{_BETWEEN}*/*{_SUFFIX}")):
            kept = _parse(path)
            if kept is not None:
                yield kept

    def remove(self, repository: str) -> None:
        """Remove all that was converted of a repository, half-made files too.

        Raises:
            RequestError: a file cannot be removed.
        """
        folder = self._folder(HubName(repository))
        try:
            if folder.is_dir():
                for path in folder.iterdir():
                    path.unlink(missing_ok=True)
                folder.rmdir()
        except OSError as error:
            raise RequestError(f"{folder} cannot be removed: {error.strerror}.") from error

    def _folder(self, name: HubName) -> Path:
        return self.folder / name.repository.replace("/", _BETWEEN)

    def _stem(self, name: HubName, options: RuntimeOptions) -> str:
        what = _WHOLE if name.file is None else quote(name.file, safe=" []")
        return f"{what}.{options.decoder_format}-{options.encoder_format}"

    def _of(self, name: HubName, options: RuntimeOptions) -> list[Kept]:
        pattern = f"{glob.escape(self._stem(name, options))}.*.*{_SUFFIX}"
        found = map(_parse, self._folder(name).glob(pattern))
        return [kept for kept in found if kept is not None and kept.name == name]


def _parse(path: Path) -> Kept | None:
    """What a file's name says; None of a file that is none of ours."""
    try:
        what, formats, version, commit = path.name.removesuffix(_SUFFIX).rsplit(".", 3)
        owner, name = path.parent.name.split(_BETWEEN)
        decoder, encoder = formats.split("-")
    except ValueError:
        return None
    file = None if what == _WHOLE else unquote(what)
    return Kept(path, HubName(f"{owner}/{name}", file), (decoder, encoder), version, commit)


def _is_sound(path: Path) -> bool:
    try:
        return open_converted(path) is not None
    except TensorFileError:
        path.unlink(missing_ok=True)
        return False
