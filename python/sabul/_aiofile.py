"""Open files of `sabul.aio.Session`, over requests for ranges and over uploads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from . import _sabul
from ._types import Report
from ._window import Window
from .errors import Error, FailedError

# Ours: bytes that a writer collects for a piece, and most bytes of a piece.
_PIECE_BYTES = 2**18
_PIECE_BYTES_MAX = 2**22


class Places:
    """Places of requests that wait for their reader. A file that is not read at present gives its place up; its next
    read starts another request."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        # Requests that wait for a place.
        self.waiting = 0
        # The files that have a place, in the order of their last use.
        self._files: list[Reader] = []

    async def take(self) -> None:
        """Waits for a place."""
        idle = next((file for file in self._files if not file.is_busy), None)
        if self._free.locked() and idle is not None:
            idle.pause()
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1

    def give(self) -> None:
        """Ends the use of a place."""
        self._free.release()

    async def take_for(self, file: Reader) -> None:
        """Waits for a place of a file."""
        await self.take()
        self._files.append(file)

    def give_of(self, file: Reader) -> None:
        """Ends the use of the place of a file, if it has one."""
        if file in self._files:
            self._files.remove(file)
            self.give()

    def used(self, file: Reader) -> None:
        """A read of a file has ended."""
        if file not in self._files:
            return
        if self.waiting:
            file.pause()
        else:
            self._files.remove(file)
            self._files.append(file)


class Reader:
    """A file at the server, in the version of its opening. Use it in an `async with` statement, or call `close`."""

    def __init__(
        self,
        session: _sabul.Session,
        places: Places,
        path: bytes,
        options: Mapping[str, Any],
        facts: tuple[int, int | None],
    ) -> None:
        """`facts` are size and modification time of the file."""
        self._session = session
        self._places = places
        self._path = path
        self._options = options
        self.name = os.fsdecode(path)
        self.closed = False
        self.is_busy = False
        size, self._mtime_ns = facts
        self._window = Window(size)
        self._reads: _sabul.Reads | None = None
        self._one_at_a_time = asyncio.Lock()

    async def read(self, size: int = -1) -> bytes:
        """Returns `size` bytes, or fewer at the end of the file; all the rest without a `size`."""
        async with self._one_at_a_time:
            self._check_open()
            left = self._window.rest if size < 0 else min(size, self._window.rest)
            parts = []
            self.is_busy = True
            try:
                while left > 0:
                    parts.append(await self._next(left))
                    left -= len(parts[-1])
            finally:
                self.is_busy = False
                self._places.used(self)
            return b"".join(parts)

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position of the next read, and returns it."""
        async with self._one_at_a_time:
            self._check_open()
            return self._window.seek(offset, whence)

    async def tell(self) -> int:
        """Returns the position of the next read."""
        return self._window.position

    async def close(self) -> None:
        """Closes the file. Nothing is read any longer."""
        self.closed = True
        self.pause()

    def pause(self) -> None:
        """Ends the running request."""
        self._reads = None
        self._places.give_of(self)

    async def _next(self, wanted: int) -> memoryview:
        """Returns bytes at the position, at least one before the end of the file."""
        while (found := self._window.take(wanted)) is None:
            self._check_open()
            if self._reads is None or not self._window.is_coming():
                self.pause()
                await self._places.take_for(self)
                pieces = self._window.plan(wanted)
                ranges = [(self._path, start, length, self._mtime_ns) for start, length in pieces]
                self._reads = await self._session.open_ranges(ranges, self._options, False)
            if (part := await self._reads.next(False)) is None:
                self.pause()
            else:
                self._window.deliver(*part)
        return found

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Writer:
    """An open file that is written. Use it in an `async with` statement: an exception in it discards the file, and so
    does a file that is never closed."""

    def __init__(self, upload: _sabul.Upload, transfer: _sabul.Transfer, path: bytes) -> None:
        self._upload = upload
        self._transfer = transfer
        self.name = os.fsdecode(path)
        self.closed = False
        self._is_over = False
        self._error: Error | None = None
        self._collected = bytearray()
        self._one_at_a_time = asyncio.Lock()

    async def write(self, content: bytes | bytearray | memoryview) -> int:
        """Appends bytes and returns their number; waits while earlier bytes are not sent."""
        async with self._one_at_a_time:
            if self.closed:
                raise ValueError("I/O operation on closed file.")
            view = memoryview(content).cast("B")
            for at in range(0, len(view), _PIECE_BYTES_MAX):
                self._collected += view[at : at + _PIECE_BYTES_MAX]
                if len(self._collected) >= _PIECE_BYTES:
                    await self._send()
            return len(view)

    async def close(self) -> None:
        """Returns when the server has all bytes and the file has its name."""
        if not self.closed:
            self.closed = True
            await self._finish()

    async def discard(self) -> None:
        """Closes the file, which does not appear at the server."""
        self.closed = True
        self._cancel()

    def _cancel(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._transfer.cancel()

    def _check(self) -> None:
        if self._is_over:
            raise self._error or FailedError("the upload was interrupted; open the file again, and write all of it")

    async def _send(self) -> None:
        self._check()
        piece, self._collected = bytes(self._collected), bytearray()
        try:
            await self._upload.write(piece, False)
        except Error:
            # The transfer ended early; its error is more precise.
            await self._report()
            raise
        except BaseException:
            # Nobody knows whether the piece was sent.
            self._cancel()
            raise

    async def _finish(self) -> Report:
        async with self._one_at_a_time:
            if self._collected:
                await self._send()
            self._check()
            try:
                await self._upload.end(False)
            except Error:
                # As above.
                pass
            except BaseException:
                self._cancel()
                raise
            return await self._report()

    async def _report(self) -> Report:
        self._is_over = True
        try:
            return Report._of(await self._transfer.finish(False))
        except BaseException as error:
            if isinstance(error, Error):
                self._error = error
            self._transfer.cancel()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.discard()
        await self.close()


FileT = TypeVar("FileT", bound=Reader | Writer)


class Opening(Generic[FileT]):
    """A file that `await` opens; `async with` also closes it."""

    def __init__(self, start: Callable[[], Awaitable[FileT]]) -> None:
        self._start = start
        self._file: FileT | None = None

    def __await__(self) -> Generator[Any, None, FileT]:
        return self._start().__await__()

    async def __aenter__(self) -> FileT:
        self._file = await self._start()
        return self._file

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            await self._file.__aexit__(kind, error, trace)
