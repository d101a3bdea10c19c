"""Uploads: to disk, within limits, and gone afterwards in every case."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from server.serving import Running, serving
from server.sounds_for import long_recording
from server.told import EXAMPLES, EXPECTED
from stapes.models.recording import ReadingLimits
from stapes.server import run
from stapes.server.config import MEGABYTE
from stapes.server.lingering import LINGER_S
from stapes.server.served import Served

NAME = "digits-3.wav"
SOUND = (EXAMPLES / NAME).read_bytes()
ROUTE = "/v1/audio/transcriptions"
BOUNDARY = "b0undary"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of this test alone."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def open_temporary_files(folder: Path) -> int:
    """Files in a folder, those without a name among them, that this process has open."""
    count = len(list(folder.iterdir()))
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}").startswith(str(folder))
        except OSError:
            continue
    return count


def nothing_left(folder: Path) -> bool:
    ends = time.perf_counter() + 10
    while open_temporary_files(folder):
        if time.perf_counter() > ends:
            return False
        time.sleep(0.01)
    return True


def part(name: str, content: bytes | str, filename: str | None = None) -> bytes:
    value = content.encode() if isinstance(content, str) else content
    file = "" if filename is None else f'; filename="{filename}"'
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + value + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + END


def post(running: Running, body, route: str = ROUTE, **headers: str):
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    with running.client() as client:
        return client.post(route, content=body, headers=kind | headers)


def error_of(answer) -> dict:
    assert answer.headers["content-type"] == "application/json"
    return answer.json()["error"]


def in_blocks(body: bytes, size: int = 65_536):
    """A body whose length is not said beforehand."""
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("order", ["file first", "file last"])
@pytest.mark.parametrize("size", [1000, 3])
def test_fields_may_stand_in_any_order_and_blocks_anywhere(server, order, size):
    fields = [part("model", "tiny-en"), part("response_format", "text")]
    file = part("file", SOUND, NAME)
    body = form(file, *fields) if order == "file first" else form(*fields, file)
    if size == 3:  # the form's own lines are cut, the sound is not sent in so small blocks
        head = body[:200]
        blocks = [head[i : i + 3] for i in range(0, 200, 3)] + [body[200:]]
        answer = post(server, iter(blocks))
    else:
        answer = post(server, in_blocks(body, size))
    assert answer.text == EXPECTED[NAME] + "\n"


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        (form(part("model", "tiny-en")), "file", "'file' is missing"),
        (form(part("file", SOUND, NAME)), "model", "'model' is missing"),
        (form(part("model", "tiny-en"), part("file", "text")), "file", "holds no file"),
        (form(part("model", "a"), part("sound", SOUND, NAME)), "sound", "cannot be a file"),
        (form(part("model", "a"), part("file", b"", "a"), part("file", b"", "b")), None, "files"),
        (form(part("model", "a"), part("model", "b"), part("file", b"1", "a")), "model", "2 times"),
        (form(part("model", "tiny-en"), part("file", b"", "a.wav")), "file", "0 bytes"),
        (form(part("prompt", "x" * 300_000), part("file", b"1", "a")), None, "maximum size"),
        (form(*[part(f"f{i}", "x") for i in range(70)]), None, "fields"),
        (form(part("model", "a"), part("model[]", "b")), "model", "'model[]', too"),
        (form(part("model[]", "a"), part("model", "b")), "model", "'model[]', too"),
        (b"no form at all", None, "malformed"),
        (form(part("model", "tiny-en"), part("file", SOUND, NAME))[:500], None, "too early"),
        (b"", None, "too early"),
    ],
)
def test_malformed_forms(server, body, param, says, temporary):
    answer = post(server, body)
    assert answer.status_code == 400
    error = error_of(answer)
    assert error["param"] == param
    assert says in error["message"]
    assert nothing_left(temporary)


@pytest.mark.parametrize("charset", ["punycode", "undefined", "unicode_escape", "utf-16"])
def test_a_form_of_another_charset(server, charset):
    kind = f"multipart/form-data; boundary={BOUNDARY}; charset={charset}"
    answer = post(server, form(part("model", "a\\ud800-")), **{"Content-Type": kind})
    assert answer.status_code == 400
    assert charset in error_of(answer)["message"]


def test_a_form_that_says_its_charset(server):
    kind = f"multipart/form-data; boundary={BOUNDARY}; charset=UTF-8"
    body = form(part("model", "ä"), part("file", b"1", "a"))
    assert "'ä'" in error_of(post(server, body, **{"Content-Type": kind}))["message"]


def test_what_is_no_form(server):
    with server.client() as client:
        for answer in (
            client.post(ROUTE, json={"model": "tiny-en"}),
            client.post(ROUTE, data={"model": "tiny-en"}),
            client.post(ROUTE),
            client.post(ROUTE, content=b"x", headers={"Content-Type": "multipart/form-data"}),
        ):
            assert answer.status_code == 400
            assert "form" in error_of(answer)["message"] or "boundary" in answer.text


@pytest.fixture(scope="module")
def narrow(speech):
    """A server that takes 2 MB."""
    with serving(Served({"tiny-en": speech}), max_upload_bytes=2 * MEGABYTE, idle_s=0.5) as running:
        yield running


LARGE = form(part("model", "tiny-en"), part("file", bytes(6 * MEGABYTE), NAME))


@pytest.mark.parametrize("how", ["said", "not said", "not said, in one go"])
def test_too_large(narrow, temporary, how):
    blocks = {"said": LARGE, "not said": in_blocks(LARGE), "not said, in one go": iter([LARGE])}
    answer = post(narrow, blocks[how])
    assert answer.status_code == 413
    assert error_of(answer)["message"] == "The request has more than 2 MB."
    assert nothing_left(temporary)
    small = form(part("model", "tiny-en"), part("file", SOUND, NAME))
    assert post(narrow, small).json()["text"] == EXPECTED[NAME]


def test_too_large_for_the_real_client(narrow):
    import openai

    from server.serving import client_of

    with client_of(narrow) as client:
        for _ in range(3):
            with pytest.raises(openai.APIStatusError) as caught:
                client.audio.transcriptions.create(
                    model="tiny-en", file=("a.wav", bytes(40 * MEGABYTE))
                )
            assert caught.value.status_code == 413


@pytest.mark.parametrize("is_said", [True, False])
@pytest.mark.parametrize(("more", "status"), [(0, 400), (1, 413)])
def test_the_limit_is_met_to_the_byte(narrow, is_said, more, status):
    """A request of as many bytes as are permitted is read: zeros are no recording."""
    rest = 2 * MEGABYTE + more - len(form(part("model", "tiny-en"), part("file", b"", NAME)))
    body = form(part("model", "tiny-en"), part("file", bytes(rest), NAME))
    assert len(body) == 2 * MEGABYTE + more
    assert post(narrow, body if is_said else in_blocks(body)).status_code == status


@pytest.mark.parametrize("how", ["said", "chunked", "no route", "no form"])
def test_a_client_that_reads_only_when_it_has_sent_all_is_told(narrow, how):
    """Many do; a connection that is closed under them is all that they would tell of."""
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, Request, build_opener

    body = in_blocks(LARGE) if how == "chunked" else LARGE
    status, route = {"no route": (404, "/v1/none"), "no form": (400, ROUTE)}.get(how, (413, ROUTE))
    kind = "text/plain" if how == "no form" else f"multipart/form-data; boundary={BOUNDARY}"
    request = Request(narrow.url + route, body, {"Content-Type": kind})
    for _ in range(5):
        with pytest.raises(HTTPError) as caught:
            build_opener(ProxyHandler({})).open(request, timeout=20)
        with caught.value as answer:
            assert answer.code == status
            assert b"error" in answer.read()
        if how == "chunked":
            break  # the body is a generator


def test_a_client_that_never_ends_is_not_waited_for(narrow):
    started = time.perf_counter()
    with raw(narrow, f"{FORM_HEAD}\r\nContent-Length: {2**40}", b"x") as connection:
        answer = b""
        while received := connection.recv(65_536):
            answer += received
    assert answer.startswith(b"HTTP/1.1 413")
    assert LINGER_S - 1 < time.perf_counter() - started < 3 * LINGER_S


def test_an_upload_at_the_end_of_the_server(speech, monkeypatch, caplog):
    monkeypatch.setattr(run, "_GRACE_S", 1)
    with serving(Served({"tiny-en": speech})) as running:
        head = f"{FORM_HEAD}\r\nContent-Length: 10000"
        connection = raw(running, head, part("model", "tiny-en"))
        time.sleep(0.2)
    with connection:
        status, _, rest = connection.recv(65_536).partition(b"\r\n")
    assert status == b"HTTP/1.1 503 Service Unavailable"
    assert b"retry-after: 10\r\n" in rest
    assert json.loads(rest.partition(b"\r\n\r\n")[2])["error"]["code"] == "busy"
    assert not [record for record in caplog.records if record.exc_info]


def raw(running: Running, head: str, body: bytes = b"") -> socket.socket:
    """A connection to which a request of one's own has been written."""
    host, port = running.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    lines = [f"POST {ROUTE} HTTP/1.1", f"Host: {host}:{port}", head]
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    return connection


FORM_HEAD = f"Content-Type: multipart/form-data; boundary={BOUNDARY}"


def test_more_than_was_said_is_not_read(narrow):
    """A length that is too small cuts the form; the rest is no second request that is obeyed."""
    body = form(part("model", "tiny-en"), part("file", SOUND, NAME))
    with raw(narrow, f"{FORM_HEAD}\r\nContent-Length: 100", body) as connection:
        assert b" 400 " in connection.recv(100)


def test_less_than_was_said_is_waited_for_but_not_for_ever(narrow, temporary):
    body = form(part("model", "tiny-en"), part("file", bytes(MEGABYTE + 5), NAME))
    started = time.perf_counter()
    with raw(narrow, f"{FORM_HEAD}\r\nContent-Length: 2000000", body) as connection:
        assert open_temporary_files(temporary) or wait_for_file(temporary)
        assert b" 408 " in connection.recv(100)
    assert time.perf_counter() - started < 10
    assert nothing_left(temporary)


def wait_for_file(folder: Path) -> bool:
    ends = time.perf_counter() + 5
    while not open_temporary_files(folder):
        if time.perf_counter() > ends:
            return False
        time.sleep(0.005)
    return True


def test_bytes_now_and_then_are_no_upload(narrow, temporary):
    """Each pause is short enough, but a few such clients would take all places for uploads."""
    begun = part("prompt", "")[:-2]
    with raw(narrow, f"{FORM_HEAD}\r\nContent-Length: 1000000", begun) as connection:
        connection.settimeout(0.1)
        answer = b""
        for _ in range(100):
            connection.sendall(b"x")
            try:
                answer += connection.recv(65_536)
            except TimeoutError:
                continue
            if answer.endswith(b"}}"):
                break
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"100 bytes a second" in answer
    assert nothing_left(temporary)


def test_a_client_that_vanishes_during_the_upload(server, temporary):
    body = form(part("model", "tiny-en"), part("file", bytes(3 * MEGABYTE), NAME))
    head = f"{FORM_HEAD}\r\nContent-Length: {len(body)}"
    with raw(server, head, body[: 2 * MEGABYTE]):
        assert wait_for_file(temporary)
    assert nothing_left(temporary)
    assert server.worker.places_taken == 0


def test_nothing_is_left_of_good_and_bad_uploads(server, temporary):
    big = long_recording(4).getvalue()
    assert len(big) > MEGABYTE
    whole = form(part("model", "tiny-en"), part("file", big, NAME))
    assert post(server, whole).status_code == 200
    for model in ("whisper-1", "tiny-text"):
        assert post(server, form(part("model", model), part("file", big, NAME))).status_code >= 400
    broken = form(part("model", "tiny-en"), part("file", os.urandom(2 * MEGABYTE), NAME))
    assert post(server, broken).status_code == 400
    wrong = form(part("model", "tiny-en"), part("stream", "2"), part("file", big, NAME))
    assert post(server, wrong).status_code == 400
    assert nothing_left(temporary)


@pytest.mark.parametrize(
    "name", ["../../../tmp/stapes-owned", "/etc/passwd", "a\x00b.wav", "x" * 5000, "Ä'\\.wav", ""]
)
def test_names_of_files_are_names_and_nothing_else(server, name, temporary):
    raw_name = name.replace("\\", "\\\\")
    answer = post(server, form(part("model", "tiny-en"), part("file", SOUND, raw_name)))
    # A name that is longer than a header may be is refused; no other one matters.
    assert answer.status_code == (400 if len(name) > 4000 else 200)
    assert not Path("/tmp/stapes-owned").exists()
    assert nothing_left(temporary)


def flac_of_silence(folder: Path, seconds: int) -> bytes:
    import av
    import numpy as np

    path = folder / "long.flac"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("flac", rate=8000)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4096), np.int16), "s16p", "mono")
        frame.sample_rate = 8000
        for _ in range(seconds * 8000 // 4096):
            frame.pts = None
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path.read_bytes()


def test_a_small_file_that_is_very_long(speech, tmp_path, temporary):
    """Twenty minutes of silence in less than a megabyte; some promise their length, some do not."""
    small = flac_of_silence(tmp_path, 1200)
    assert len(small) < 1_000_000
    limits = ReadingLimits(most_s=600, most_work_s=60)
    with serving(Served({"tiny-en": speech}), limits=limits) as running:
        started = time.perf_counter()
        for body in (small, unpromised(small)):
            answer = post(running, form(part("model", "tiny-en"), part("file", body, "a.flac")))
            assert answer.status_code == 400
            assert "600 s are permitted" in error_of(answer)["message"]
        assert time.perf_counter() - started < 120
        assert nothing_left(temporary)


def unpromised(flac: bytes) -> bytes:
    """The same without its number of samples: 36 bits of the first block."""
    changed = bytearray(flac)
    changed[21] &= 0xF0
    changed[22:26] = bytes(4)
    return bytes(changed)


def test_a_header_that_claims_a_year(speech):
    """The size of a WAV file's data is checked against the file; a FLAC header is believed."""
    year = bytearray(unpromised(flac_of_silence_cached()))
    samples = 365 * 24 * 3600 * 8000 & (2**36 - 1)
    year[21] = year[21] & 0xF0 | samples >> 32
    year[22:26] = (samples & 0xFFFFFFFF).to_bytes(4, "big")
    limits = ReadingLimits(most_s=600, most_work_s=60)
    with serving(Served({"tiny-en": speech}), limits=limits) as running:
        answer = post(running, form(part("model", "tiny-en"), part("file", bytes(year), "a.flac")))
        assert answer.status_code == 400
        assert "permitted" in error_of(answer)["message"]


def flac_of_silence_cached() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return flac_of_silence(Path(folder), 5)


def test_decoding_that_takes_too_long(speech):
    limits = ReadingLimits(most_s=6000, most_work_s=1e-6)
    with serving(Served({"tiny-en": speech}), limits=limits) as running:
        answer = post(running, form(part("model", "tiny-en"), part("file", SOUND, NAME)))
        assert "takes too long" in error_of(answer)["message"]


def test_memory_does_not_grow_with_an_upload(speech, tmp_path):
    """300 MB of silence go through a process of its own, which grows by a tenth of that."""
    big = tmp_path / "big.wav"
    size = 300 * MEGABYTE
    with big.open("wb") as file:
        file.write(wav_header(size))
        file.truncate(44 + size)
    script = (
        "import sys; sys.path[:0] = ['tests']\n"
        "from server.serving import serving\n"
        "from stapes.server.served import Served\n"
        "import stapes, resource, json, httpx2\n"
        "from stapes.models.recording import ReadingLimits\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "limits = ReadingLimits(60, 60)\n"
        "with serving(Served({'tiny-en': stapes.load(threads=1)}), limits=limits) as running:\n"
        "    with running.client() as client:\n"
        f"        small = open({str(EXAMPLES / NAME)!r}, 'rb')\n"
        "        client.post('/v1/audio/transcriptions', data={'model': 'tiny-en'},"
        " files={'file': small})\n"
        "        before = peak()\n"
        f"        answer = client.post('/v1/audio/transcriptions', data={{'model': 'tiny-en'}},"
        f" files={{'file': open({str(big)!r}, 'rb')}})\n"
        "    print(json.dumps([answer.status_code, peak() - before]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=EXAMPLES.parent,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    status, grown = json.loads(done.stdout.splitlines()[-1])
    assert status == 400  # it is longer than permitted, which is known once it has been uploaded
    assert grown < size / 10


def wav_header(size: int) -> bytes:
    import struct

    return (
        b"RIFF"
        + struct.pack("<I", 36 + size)
        + b"WAVEfmt "
        + struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
        + b"data"
        + struct.pack("<I", size)
    )


def test_too_many_uploads_at_once(speech, temporary):
    with serving(Served({"tiny-en": speech}), slots=1, max_queue=1) as running:
        body = form(part("model", "tiny-en"), part("file", SOUND, NAME))
        head = f"{FORM_HEAD}\r\nContent-Length: {len(body)}"
        slow = [raw(running, head, body[:100]) for _ in range(2)]
        ends = time.perf_counter() + 10
        while True:
            answer = post(running, body)
            if answer.status_code == 503 or time.perf_counter() > ends:
                break
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert "2 uploads are coming" in error_of(answer)["message"]
        for connection in slow:
            connection.sendall(body[100:])
            assert b" 200 " in connection.recv(100)
            connection.close()


def test_a_full_queue(speech):
    from server.test_worker import hold

    with serving(Served({"tiny-en": speech}), slots=1, max_queue=1) as running:
        event = threading.Event()
        _, place = hold(running.worker, speech, event)
        body = form(part("model", "tiny-en"), part("file", SOUND, NAME))
        answers: list = []
        waiting = threading.Thread(target=lambda: answers.append(post(running, body)))
        waiting.start()
        ends = time.perf_counter() + 10
        while running.worker.places_taken < 2 and time.perf_counter() < ends:
            time.sleep(0.005)
        refused = post(running, body)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "5"
        assert error_of(refused)["code"] == "busy"
        event.set()
        place.close()
        waiting.join(20)
        assert answers[0].json()["text"] == EXPECTED[NAME]
