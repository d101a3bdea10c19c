"""How a server is run."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from stapes.errors import RequestError
from stapes.models.recording import ReadingLimits

MEGABYTE = 2**20
_LEAST_KEY = 16  # characters: shorter keys can be guessed

_LIMITS = ReadingLimits(most_s=8 * 3600, most_work_s=1800)


@dataclass(frozen=True)
class ServerConfig:
    """What a server permits, and to whom.

    Attributes:
        host: address to listen at.
        port: TCP port; 0 takes one that is free.
        api_keys: keys of which each request must show one; () asks for none.
        insecure: permits an address that others can reach without keys.
        max_upload_bytes: of one request, counted as they come; of a live stream, those that wait.
        max_queue: requests to a model that may wait beside those that run.
        max_streams: live streams of a model at once.
        limits: of what reading one recording may cost.
        idle_s: seconds for which an upload may pause.
        stream_idle_s: seconds for which a live stream may pause.
        stop_s: seconds that a server which is told to stop waits for running requests.

    Raises:
        RequestError: the address is public, and there are neither keys nor `insecure`.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    insecure: bool = False
    max_upload_bytes: int = 512 * MEGABYTE
    max_queue: int = 64
    max_streams: int = 8
    limits: ReadingLimits = _LIMITS
    idle_s: float = 30.0
    stream_idle_s: float = 300.0
    stop_s: float = 300.0

    def __post_init__(self) -> None:
        if not self.is_local and not self.api_keys and not self.insecure:
            raise RequestError(
                f"Others can reach {self.host}: give --api-key-file, or --insecure to let anybody "
                "use the server."
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def read_keys(path: Path) -> tuple[str, ...]:
    """The keys in a file, one a line; empty lines and those that begin with # are skipped.

    Raises:
        RequestError: the file cannot be read, holds no key, or one that is not printable ASCII
            without spaces of at least 16 characters. The message never holds a key.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise RequestError(f"The key file {path} cannot be read: {reason}.") from error
    numbered = [(number, line.strip()) for number, line in enumerate(lines, start=1)]
    keys = [(n, key) for n, key in numbered if key and not key.startswith("#")]
    for number, key in keys:
        if len(key) < _LEAST_KEY:
            raise RequestError(
                f"The key in line {number} of {path} has {len(key)} characters; "
                f"at least {_LEAST_KEY} are needed."
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise RequestError(f"The key in line {number} of {path} is not plain printable ASCII.")
    if not keys:
        raise RequestError(f"The key file {path} holds no key.")
    return tuple(key for _, key in keys)
