"""Ranges of a file in one request, while the reader has room for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import aclosing

from .errors import Error

# A stream ends if its reader has no room for so long: a request that waits would take the place of others.
_PAUSE_S = 2.0

Reading = Callable[[Sequence[tuple[int, int]]], AsyncGenerator[tuple[int, bytes | Error]]]
"""Starts a request for ranges as start and end; yields the number of a range and its content."""


class Stream:
    """One request. Ranges are held until the reader drops them, up to about `room` bytes."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, read: Reading, ranges: Sequence[tuple[int, int]], room: int
    ) -> None:
        self._loop = loop
        self._sizes = [end - start for start, end in ranges]
        self._contents: list[Future[bytes]] = [Future() for _ in ranges]
        self._room = room
        self._held = 0
        # Ranges that readers wait for.
        self._wanted: list[int] = []
        self._lock = threading.Lock()
        self._changed = asyncio.Event()
        self._task = asyncio.run_coroutine_threadsafe(self._run(read, ranges), loop)

    def content(self, at: int) -> bytes:
        """Waits for a range and returns its content.

        Raises the error of the range or of the request, or CancelledError if the request ended early.
        """
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
            content, self._contents[at] = self._contents[at], Future()
            self._contents[at].cancel()
            if content.done() and not content.cancelled() and content.exception() is None:
                self._held -= self._sizes[at]
            else:
                content.cancel()
        self._notify()

    def widen(self, room: int) -> None:
        """Holds up to about `room` bytes from now on, unless the room is larger already."""
        if room > self._room:
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
                self._contents[at].set_result(content)

    async def _has_room(self) -> bool:
        """Waits for room; returns false after a long pause. A reader that waits always has room."""
        while True:
            self._changed.clear()
            with self._lock:
                if self._held <= self._room or not all(self._contents[at].done() for at in self._wanted):
                    return True
            try:
                await asyncio.wait_for(self._changed.wait(), _PAUSE_S)
            except TimeoutError:
                return False
