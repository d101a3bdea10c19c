"""Errors as OpenAI's clients read them: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from stapes.errors import AudioError, CapacityError, ModelError, RequestError, StapesError
from stapes.server.scheduling import BusyError


class WrongPairError(ValueError):
    """A field whose value does not go with that of another."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name!r} {why}")
        self.name = name


_MOST_NAME = 200  # characters of a client's name for a field that are told back
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}


class ApiError(Exception):
    """An error that becomes a response.

    Args:
        status: of HTTP.
        message: one sentence for the user.
        param: name of the field that is wrong, or None.
        code: short name of the error for programs, or None.
        headers: of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON object of the response."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = _TYPES.get(self.status, kind)
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> JSONResponse:
        """The whole response."""
        return JSONResponse(self.body(), self.status, self.headers)


def translated(error: BaseException) -> ApiError | None:
    """What a client is told of an error; None of one that is a mistake of ours."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BusyError):
        # What is still under way of an upload is not read.
        headers = {"Retry-After": str(error.retry_s), "Connection": "close"}
        return ApiError(503, str(error), None, "busy", headers)
    if isinstance(error, AudioError):
        return ApiError(400, str(error), "file", "invalid_audio")
    if isinstance(error, CapacityError):
        return ApiError(400, str(error), None, "does_not_fit")
    if isinstance(error, RequestError):
        return ApiError(400, str(error), None, "invalid_value")
    if isinstance(error, MemoryError):
        return ApiError(503, "The memory does not suffice.", None, "does_not_fit")
    if isinstance(error, ModelError):
        return ApiError(500, str(error), None, "model_error")
    if isinstance(error, StapesError):
        return ApiError(500, str(error), None, "internal_error")
    return None


INTERNAL = ApiError(500, "Something went wrong in the server.", None, "internal_error")


def of_validation(error: ValidationError) -> ApiError:
    """The first thing that is wrong with a request's fields, by name."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, WrongPairError):
        return ApiError(400, f"The field {cause}.", cause.name, "invalid_value")
    parts = (str(part) for part in first["loc"] if not str(part).startswith("function-"))
    name = ".".join(parts)[:_MOST_NAME]
    kind = first["type"]
    if kind == "extra_forbidden":
        return ApiError(400, f"The field {name!r} is not supported.", name, "unsupported_field")
    if kind == "missing":
        return ApiError(400, f"The field {name!r} is missing.", name, "missing_field")
    if kind == "json_invalid":
        return ApiError(400, "The body of the request is not JSON.", None, "invalid_json")
    if not name:
        return ApiError(400, "The body of the request is no JSON object.", None, "invalid_json")
    reason = first["msg"].removeprefix("Value error, ").rstrip(".")
    given = f"{first['input']!r:.80}"
    return ApiError(400, f"The field {name!r} cannot be {given}: {reason}.", name, "invalid_value")
