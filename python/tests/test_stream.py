"""Ranges of one request that are held for a reader."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import CancelledError

import fsspec.asyn
import pytest

import sabul
from sabul import _stream
from sabul._stream import Stream

Parts = AsyncGenerator[tuple[int, bytes | sabul.Error]]
RANGES = [(at * 10, at * 10 + 10) for at in range(100)]


def stream(parts: Callable[[Sequence[tuple[int, int]]], Parts], room: int) -> Stream:
    return Stream(fsspec.asyn.get_loop(), parts, RANGES, room)


class Source:
    """Counts the ranges that were read."""

    def __init__(self) -> None:
        self.read = 0

    async def parts(self, ranges: Sequence[tuple[int, int]]) -> Parts:
        for at, (start, end) in enumerate(ranges):
            self.read += 1
            yield at, bytes(end - start)
            await asyncio.sleep(0)


def settled(source: Source) -> int:
    """Returns the count when it no longer grows."""
    count = -1
    while count != source.read:
        count = source.read
        time.sleep(0.05)
    return count


def test_a_stream_waits_for_room_and_a_reader_that_waits_has_room() -> None:
    source = Source()
    ranges = stream(source.parts, 95)
    assert settled(source) == 10
    assert ranges.content(3) == bytes(10) and settled(source) == 10
    ranges.drop(3)
    assert settled(source) == 11
    # The ranges before are not dropped.
    assert ranges.content(80) == bytes(10)
    assert 81 <= settled(source) < 100
    for at in (at for at in range(99) if at != 3):
        ranges.content(at)
        ranges.drop(at)
    assert settled(source) == 100
    ranges.drop(99)


def test_a_stream_ends_after_a_long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stream, "_PAUSE_S", 0.1)
    source = Source()
    ranges = stream(source.parts, 95)
    time.sleep(0.3)
    assert ranges.content(9) == bytes(10)
    with pytest.raises(CancelledError):
        ranges.content(10)


def test_errors_of_ranges_and_of_the_request_reach_the_reader() -> None:
    async def parts(ranges: Sequence[tuple[int, int]]) -> Parts:
        yield 1, b"x"
        yield 0, sabul.FailedError("no such file")
        raise sabul.UnreachableError("gone")

    ranges = stream(parts, 100)
    assert ranges.content(1) == b"x"
    with pytest.raises(sabul.FailedError, match="no such file"):
        ranges.content(0)
    with pytest.raises(sabul.UnreachableError):
        ranges.content(2)
    ranges.stop()


def test_a_stream_that_pauses_ends_at_once_if_another_one_waits() -> None:
    source = Source()
    awaited = False
    ranges = Stream(fsspec.asyn.get_loop(), source.parts, RANGES, 95, lambda: awaited)
    assert settled(source) == 10 and not ranges.has(10)
    awaited = True
    time.sleep(4 * _stream._CHECK_S)
    with pytest.raises(CancelledError):
        ranges.content(10)
    assert ranges.has(9)
