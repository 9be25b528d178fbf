"""Open files of `sabul.Session`: the usual objects of `io`, over requests for ranges and over uploads."""

from __future__ import annotations

import io
import os
import threading
import warnings
import weakref
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from . import _sabul
from ._types import Report
from ._window import Window, facts_of
from .errors import Error, FailedError

# Ours: bytes that a writer collects for a piece, and most bytes of a piece.
_PIECE_BYTES = 2**18
_PIECE_BYTES_MAX = 2**22


class Upload:
    """A file that is sent piece by piece. It gets its name only by `finish`."""

    def __init__(self, upload: _sabul.Upload, transfer: _sabul.Transfer) -> None:
        self._upload = upload
        self._transfer = transfer
        self._is_over = False
        self._error: Error | None = None

    def write(self, content: bytes) -> None:
        """Appends bytes; waits while earlier bytes are not sent. An error ends the upload, and nothing is left."""
        self._check()
        try:
            self._upload.write(content, True)
        except Error:
            # The transfer ended early; its error is more precise.
            self._report()
            raise
        except BaseException:
            self.discard()
            raise

    def finish(self) -> Report:
        """Returns when the server has the file under its name."""
        self._check()
        try:
            self._upload.end(True)
        except Error:
            # As above.
            pass
        except BaseException:
            self.discard()
            raise
        return self._report()

    def discard(self) -> None:
        """Ends the upload; the file does not appear."""
        if not self._is_over:
            self._is_over = True
            # In a forked process, the upload is that of the parent.
            with suppress(Error):
                self._transfer.cancel()

    def _check(self) -> None:
        if self._is_over:
            raise self._error or FailedError("the upload was interrupted; open the file again, and write all of it")

    def _report(self) -> Report:
        self._is_over = True
        try:
            return Report._of(self._transfer.finish(True))
        except BaseException as error:
            if isinstance(error, Error):
                self._error = error
            self._transfer.cancel()
            raise


class _RawWriter(io.RawIOBase):
    """Sends what it gets."""

    def __init__(self, upload: Upload, name: str) -> None:
        self._upload = upload
        self._is_discarded = False
        self.name = name
        self.mode = "wb"

    def writable(self) -> bool:
        return True

    def write(self, content: Any, /) -> int:
        try:
            part = memoryview(content).cast("B")[:_PIECE_BYTES_MAX]
            # The buffer of a discarded file goes nowhere.
            if not self._is_discarded:
                self._upload.write(bytes(part))
            return len(part)
        except BaseException:
            # The buffer would be sent again, and nobody knows whether this part was sent.
            self._upload.discard()
            raise

    def close(self) -> None:
        if self.closed:
            return
        try:
            if not self._is_discarded:
                self._upload.finish()
        finally:
            super().close()

    def discard(self) -> None:
        self._is_discarded = True
        self._upload.discard()

    def __del__(self) -> None:
        self._upload.discard()


class Writer(io.BufferedWriter):
    """An open file that is written. `close` returns when the server has all bytes, and gives the file its name.

    An exception in a `with` block discards the file, and so does a file that is never closed.
    """

    def __init__(self, upload: Upload, name: str) -> None:
        self._raw = _RawWriter(upload, name)
        super().__init__(self._raw, _PIECE_BYTES)

    def discard(self) -> None:
        """Closes the file, which does not appear at the server."""
        self._raw.discard()
        self.close()

    def flush(self) -> None:
        """Sends the collected bytes. An exception ends the upload, and the file does not appear."""
        try:
            super().flush()
        except BaseException:
            self._raw._upload.discard()
            raise

    def close(self) -> None:
        """Returns when the server has all bytes and the file has its name."""
        if not self.closed:
            # `super().close` ends the upload in order although a signal interrupts its flush.
            try:
                self.flush()
            except BaseException:
                self.discard()
                raise
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(f"'{self.name}' was not closed, and is discarded", ResourceWarning, source=self, stacklevel=2)
            self.discard()


class Places:
    """Readers of a session whose requests wait for them. The server answers a limited number of requests at a time, so
    the reader that was not used for the longest time gives up its request; its next read starts another one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._readers: list[weakref.ref[_RawReader]] = []
        self._lock = threading.Lock()

    def use(self, reader: _RawReader) -> None:
        """A reader uses its request, or is about to start one."""
        with self._lock:
            others = [(it, other) for it in self._readers if (other := it()) is not None and other is not reader]
            for _, other in others[: max(len(others) + 1 - self._most, 0)]:
                other.pause()
            others = others[-(self._most - 1) :]
            self._readers = [*(it for it, _ in others), weakref.ref(reader)]


class _RawReader(io.RawIOBase):
    """A file at the server, in the version of its opening."""

    def __init__(self, session: _sabul.Session, places: Places, path: bytes, options: Mapping[str, Any]) -> None:
        self._session = session
        self._places = places
        self._path = path
        self._options = options
        self.name = os.fsdecode(path)
        self.mode = "rb"
        size, self._mtime_ns = facts_of(session.list([_sabul.escape(path)], "target", True), self.name)
        self._window = Window(size)
        self._reads: _sabul.Reads | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check_open()
        return self._window.seek(offset, whence)

    def tell(self) -> int:
        self._check_open()
        return self._window.position

    def readinto(self, buffer: Any, /) -> int:
        self._check_open()
        target = memoryview(buffer).cast("B")
        content = self._next(len(target))
        target[: len(content)] = content
        return len(content)

    def readall(self) -> bytes:
        self._check_open()
        parts = []
        while part := self._next(self._window.rest):
            parts.append(part)
        return b"".join(parts)

    def _next(self, wanted: int) -> memoryview:
        """Returns bytes at the position, at least one before the end of the file."""
        while (found := self._window.take(wanted)) is None:
            self._places.use(self)
            reads = self._reads
            if reads is None or not self._window.is_coming():
                self._reads = None
                pieces = self._window.plan(wanted)
                ranges = [(self._path, start, length, self._mtime_ns) for start, length in pieces]
                self._reads = reads = self._session.open_ranges(ranges, self._options, True)
            if (part := reads.next(True)) is None:
                self._reads = None
            else:
                self._window.deliver(*part)
        return found

    def pause(self) -> None:
        """Ends the running request."""
        self._reads = None

    def close(self) -> None:
        self._reads = None
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")


def open_file(
    session: _sabul.Session, places: Places, path: bytes, mode: str, options: Mapping[str, Any]
) -> io.BufferedReader | Writer:
    """Opens a file for reading or writing."""
    if mode == "rb":
        return io.BufferedReader(_RawReader(session, places, path, options), _PIECE_BYTES)
    return Writer(Upload(*session.upload(path, options, True)), os.fsdecode(path))
