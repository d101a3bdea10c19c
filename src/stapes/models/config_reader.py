"""Reading a Hugging Face configuration: every number comes from the file, or it is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stapes.errors import ConfigError

_SIMPLE_ROPE = ("default", "mrope")


class ConfigReader:
    """Typed access to one section of a config.json.

    Args:
        values: the section.
        where: how messages call it, such as "config.json's text_config".
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def section(self, key: str) -> ConfigReader:
        """A nested section, which must be an object."""
        value = self._values.get(key)
        if not isinstance(value, dict):
            raise ConfigError(f"{self.where} has no section {key}.")
        return ConfigReader(value, f"{self.where}'s {key}")

    def integer(self, *keys: str, at_most: int | None = None) -> int:
        """The first of the keys that is there, a whole number."""
        key, value = self._first(keys)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{self.where}'s {key} is {value!r}, not a whole number.")
        if at_most is not None and value > at_most:
            raise ConfigError(f"{self.where}'s {key} is {value}, more than {at_most}.")
        return value

    def number(self, *keys: str) -> float:
        """The first of the keys that is there, a number."""
        key, value = self._first(keys)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{self.where}'s {key} is {value!r}, not a number.")
        return float(value)

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """True or false; without a default the key must be there."""
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{self.where}'s {key} is {value!r}, not true or false.")
        return value

    def require(self, key: str, *allowed: object) -> None:
        """A key that changes the computation: absent, or one of the values that are implemented."""
        value = self._values.get(key)
        if value is not None and value not in allowed:
            known = " or ".join(repr(choice) for choice in allowed)
            raise ConfigError(f"{self.where}'s {key} is {value!r}; only {known} is supported.")

    def rope_theta(self) -> float:
        """RoPE's base, wherever the file keeps it; scaled kinds of RoPE are refused.

        The sections of multimodal RoPE do not matter when its axes are equal, as for audio.
        """
        found = [self.section(key) for key in ("rope_parameters", "rope_scaling") if key in self]
        for rope in found:
            rope.require("rope_type", *_SIMPLE_ROPE)
            rope.require("type", *_SIMPLE_ROPE)
        for section in (*found, self):
            section.require("partial_rotary_factor", 1.0)
        holder = next((rope for rope in found if "rope_theta" in rope), self)
        return holder.number("rope_theta")

    def _first(self, keys: tuple[str, ...]) -> tuple[str, Any]:
        for key in keys:
            if key in self:
                return key, self._values[key]
        raise ConfigError(f"{self.where} has no {' or '.join(keys)}.")
