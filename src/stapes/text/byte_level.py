"""The byte-level alphabet: one printable character for every byte.

GPT-2's mapping, which every byte-level BPE vocabulary is written in: printable Latin-1 characters
stand for themselves, the other bytes, in order, for U+0100 and up.
"""

from __future__ import annotations


def _alphabet() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    mapping = {chr(byte): byte for byte in printable}
    mapping.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return mapping


BYTE_OF_CHARACTER: dict[str, int] = _alphabet()
CHARACTER_OF_BYTE: dict[int, str] = {byte: char for char, byte in BYTE_OF_CHARACTER.items()}

# The bytes that occur in UTF-8 at all.
UTF8_BYTES = frozenset(range(0x100)) - {0xC0, 0xC1} - frozenset(range(0xF5, 0x100))


def piece_bytes(piece: str) -> bytes:
    """The bytes that a vocabulary piece stands for; its UTF-8 if it is not in the alphabet."""
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in piece])
    except KeyError:
        return piece.encode("utf-8")
