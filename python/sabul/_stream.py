"""Ranges of a file in one request, while the reader has room for them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import aclosing, suppress

from .errors import Error

# A stream ends if its reader has no room for so long, and at once if another one waits for its place.
_PAUSE_S, _CHECK_S = 2.0, 0.1
# Bytes that a stream delivers before another one that waits has a turn.
_TURN_BYTES = 2**24

Reading = Callable[[Sequence[tuple[int, int]]], AsyncGenerator[tuple[int, bytes | Error]]]
"""Starts a request for ranges as start and end; yields the number of a range and its content."""


class Stream:
    """One request. Ranges are held until the reader drops them, up to about `room` bytes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Reading,
        ranges: Sequence[tuple[int, int]],
        room: int,
        is_awaited: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_awaited` returns whether another stream waits for the place of this one."""
        self._loop = loop
        self._is_awaited = is_awaited
        self._process = os.getpid()
        self._sizes = [end - start for start, end in ranges]
        self._contents: list[Future[bytes]] = [Future() for _ in ranges]
        self._room = room
        self._held = self._delivered = 0
        # Ranges that readers wait for.
        self._wanted: list[int] = []
        self._lock = threading.Lock()
        self._changed = asyncio.Event()
        self._task = asyncio.run_coroutine_threadsafe(self._run(read, ranges), loop)

    def content(self, at: int) -> bytes:
        """Waits for a range and returns its content.

        Raises the error of the range or of the request, or CancelledError if the request ended early or belongs to a
        parent process.
        """
        if os.getpid() != self._process:
            raise CancelledError
        with self._lock:
            self._wanted.append(at)
        self._notify()
        try:
            return self._contents[at].result()
        finally:
            with self._lock:
                self._wanted.remove(at)

    def drop(self, at: int) -> None:
        """The reader no longer needs a range."""
        with self._lock:
            if self.has(at):
                self._held -= self._sizes[at]
            self._contents[at].cancel()
            self._contents[at] = Future()
            self._contents[at].cancel()
        self._notify()

    def has(self, at: int) -> bool:
        """Returns whether the content of a range is here."""
        content = self._contents[at]
        return content.done() and not content.cancelled() and content.exception() is None

    def set_room(self, room: int) -> None:
        """Holds up to about `room` bytes from now on."""
        if room != self._room:
            self._room = room
            self._notify()

    def stop(self) -> None:
        """Ends the request."""
        self._task.cancel()

    def _notify(self) -> None:
        # The loop may be closed at the end of the program.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _run(self, read: Reading, ranges: Sequence[tuple[int, int]]) -> None:
        ended: BaseException = CancelledError()
        try:
            async with aclosing(read(ranges)) as parts:
                async for at, content in parts:
                    self._deliver(at, content)
                    if not await self._has_room():
                        break
        except Exception as error:
            ended = error
        finally:
            with self._lock:
                for rest in self._contents:
                    if not rest.done():
                        rest.set_exception(ended)

    def _deliver(self, at: int, content: bytes | Error) -> None:
        with self._lock:
            if self._contents[at].done():
                return
            if isinstance(content, Error):
                self._contents[at].set_exception(content)
            else:
                self._held += self._sizes[at]
                self._delivered += self._sizes[at]
                self._contents[at].set_result(content)

    async def _has_room(self) -> bool:
        """Waits for room; returns false after a long pause, or if it is the turn of another stream."""
        until = self._loop.time() + _PAUSE_S
        while True:
            self._changed.clear()
            with self._lock:
                # A reader that waits has room.
                is_wanted = not all(self._contents[at].done() for at in self._wanted)
                has_room = is_wanted or self._held <= self._room
            if self._is_awaited() and (not has_room or self._delivered >= _TURN_BYTES):
                return False
            if has_room:
                return True
            if self._loop.time() > until:
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _CHECK_S)
