"""The index of a sharded checkpoint: which tensor lies in which file."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from stapes.errors import TensorFileError
from stapes.tensors.header import unique_pairs


def read_index(path: Path) -> dict[str, frozenset[str]]:
    """Shard name -> the tensors that the index promises in it, shards in sorted order.

    Raises TensorFileError when the index is not valid JSON of the known form, names a file
    outside its folder, or names files that do not exist (all of them are listed).
    """
    promised: defaultdict[str, set[str]] = defaultdict(set)
    for name, shard in _read_weight_map(path).items():
        promised[_check_shard_name(path, name, shard)].add(name)
    absent = [shard for shard in sorted(promised) if not (path.parent / shard).is_file()]
    if absent:
        raise TensorFileError(
            f"{path} names {len(promised)} files, of which {len(absent)} are missing: "
            f"{', '.join(absent)}."
        )
    return {shard: frozenset(promised[shard]) for shard in sorted(promised)}


def _read_weight_map(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_text("utf-8"), object_pairs_hook=unique_pairs)
    except (OSError, ValueError, RecursionError) as error:
        raise TensorFileError(f"{path} cannot be read as JSON: {error}.") from error
    weight_map = fields.get("weight_map") if isinstance(fields, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise TensorFileError(f"{path} has no weight_map that names tensors.")
    return weight_map


def _check_shard_name(path: Path, name: str, shard: Any) -> str:
    """A plain file name, on every system: an index must not reach outside its folder."""
    plain = (
        isinstance(shard, str)
        and shard not in ("", ".", "..")
        and "\0" not in shard
        and PurePosixPath(shard).name == shard
        and PureWindowsPath(shard).name == shard
    )
    if not plain:
        raise TensorFileError(
            f"{path}: tensor {name!r} must lie in a file beside the index, not in {shard!r}."
        )
    return str(shard)


def check_promises(
    path: Path,
    promised: Mapping[str, frozenset[str]],
    found: Mapping[str, Iterable[str]],
) -> None:
    """Compares shard by shard what the index promises with what is there.

    Raises TensorFileError with the full list of what is missing from and surplus in each shard.
    """
    wrong: list[str] = []
    for shard, names in promised.items():
        there = set(found[shard])
        if names - there:
            wrong.append(f"{shard} lacks {', '.join(sorted(names - there))}")
        if there - names:
            wrong.append(f"{shard} holds, against the index, {', '.join(sorted(there - names))}")
    if wrong:
        raise TensorFileError(f"{path} does not fit its files: {'; '.join(wrong)}.")
