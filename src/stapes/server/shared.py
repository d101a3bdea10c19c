"""What the routes of one server share."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from starlette.requests import HTTPConnection, Request

from stapes.server.config import ServerConfig
from stapes.server.metrics import Metrics
from stapes.server.scheduling import Line, Worker
from stapes.server.served import Served
from stapes.server.uploads import Form, UploadGate, read_form

_LOG = logging.getLogger("stapes.server")


@dataclass(frozen=True)
class Shared:
    """The models, what is permitted, who works, what is counted, and what is coming.

    `lines` work for the voice models, by their names.
    """

    served: Served
    config: ServerConfig
    worker: Worker
    metrics: Metrics
    uploads: UploadGate
    lines: Mapping[str, Line]

    async def form(self, request: Request) -> Form:
        """The form of a request, when there may be a place for it. See `read_form`; BusyError."""
        self.worker.check_open()  # before anything is uploaded in vain
        with self.uploads.passed():
            return await read_form(request, self.config.max_upload_bytes, self.config.idle_s)

    def failed(self, error: BaseException) -> None:
        """Write down an error that no client caused and that came after the response began."""
        _LOG.error("An answer failed midway", exc_info=error)


def shared_of(connection: HTTPConnection) -> Shared:
    """What the server of a request shares."""
    return cast("Shared", connection.app.state.shared)
