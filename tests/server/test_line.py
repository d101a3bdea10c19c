"""A line: one request at a time, in order, beside the worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from server.test_worker import until
from server.told import Told
from stapes.errors import AudioError
from stapes.server.scheduling import BusyError, Line


@pytest.fixture
def line() -> Iterator[Line]:
    found = Line("voice", max_queue=2)
    found.start()
    yield found
    found.stop()


def submit(line: Line, making) -> tuple[Told, object]:
    told, place = Told(), line.reserve()
    place.submit(told, making)
    return told, place


def held(event: threading.Event, entered: threading.Event):
    """Something that is made once the event comes, or the request ends."""

    def making(shall_end):
        entered.set()
        while not event.wait(0.005) and not shall_end():
            pass
        yield "made"
        yield "more"

    return making


def held_line(line: Line):
    event, entered = threading.Event(), threading.Event()
    told, place = submit(line, held(event, entered))
    assert entered.wait(20)
    return event, told, place


def test_one_at_a_time_and_in_order(line):
    order: list[int] = []
    inside = threading.Lock()

    def numbered(number: int):
        def making(shall_end):
            assert inside.acquire(blocking=False)
            order.append(number)
            yield number
            inside.release()

        return making

    event, first, _ = held_line(line)
    rest = [submit(line, numbered(number)) for number in range(2)]
    assert (line.running, line.waiting, line.places_taken) == (1, 2, 3)
    event.set()
    assert [told.result() for told, _ in rest] == [None, None]
    assert (first.updates, order) == (["made", "more"], [0, 1])
    assert [told.updates for told, _ in rest] == [[0], [1]]


def test_a_full_line_says_when_to_come_again(line):
    event, _, place = held_line(line)
    others = [line.reserve() for _ in range(2)]
    with pytest.raises(BusyError, match="voice is busy: 1 request runs and 2 wait") as caught:
        line.reserve()
    assert caught.value.retry_s == 20
    others[0].close()
    others[0].close()  # counts once
    line.reserve()
    with pytest.raises(BusyError):
        line.reserve()
    event.set()
    place.close()


def test_an_error_ends_its_request_alone(line):
    def wrong(shall_end):
        yield 1
        raise AudioError("It is silent.")

    told, _ = submit(line, wrong)
    with pytest.raises(AudioError, match="silent"):
        told.result()
    assert told.updates == [1]
    after, _ = submit(line, lambda shall_end: (n for n in range(2)))
    after.result()
    assert after.updates == [0, 1]


def test_a_closed_place_is_cancelled(line):
    event, told, place = held_line(line)
    waiting, second = submit(line, lambda shall_end: (n for n in range(2)))
    second.close()
    place.close()
    told.result()
    assert told.updates == ["made"]  # it was asked before "more"
    waiting.result()
    assert waiting.updates == []
    until(lambda: (line.running, line.places_taken) == (0, 0))
    assert not event.is_set()


def test_a_stop_ends_all_with_an_error(line):
    _, told, _ = held_line(line)
    waiting, _ = submit(line, lambda shall_end: (n for n in range(2)))
    line.stop()
    for each in (told, waiting):
        with pytest.raises(BusyError, match="stopped"):
            each.result()
    with pytest.raises(BusyError, match="stopping"):
        line.reserve()


def test_draining_finishes_what_has_a_place(line):
    event, told, _ = held_line(line)
    line.drain()
    with pytest.raises(BusyError, match="stopping"):
        line.reserve()
    event.set()
    told.result()
    assert told.updates == ["made", "more"]
