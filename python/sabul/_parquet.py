"""Cache of an open Parquet file: the next chunks of a column are on their way before a reader requests them.

A reader of columns requests one chunk after another, a round trip each. The footer says where the chunks of the same
column are, so the first read of a column requests all its further chunks at once. The request goes on while there is
room for chunks.
"""

from __future__ import annotations

import bisect
import io
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TypeAlias

from fsspec.caching import BaseCache

from ._stream import Stream
from .errors import Error

# Bytes of the first read of the end of a file. Readers such as pyarrow begin with the least. The footer of a large file
# with a hundred columns is about this part of the file.
TAIL_BYTES, _TAIL_BYTES_MAX, _TAIL_PART = 2**16, 2**21, 2**13
# Bytes of chunks that are held: of a column in the first row group, and of all: half a second at 1 Gb/s.
_FIRST_BYTES, _ROOM_BYTES = 2**24, 2**26
# Row groups by which a reader with several threads may be out of order. A chunk is held until the reader is so many row
# groups further, and a reader that goes on by more begins a new request there.
_DISORDER = 32
# A range of more columns is large enough to be read by itself.
_COLUMNS_MAX = 8
# Files whose footer is kept: readers open a file several times.
_FOOTERS_MAX = 16
# Length of the footer's length and of the magic number.
_END_BYTES = 8

Ranges = Sequence[tuple[int, int]]
"""Ranges as start and end."""
Reader = Callable[[Ranges, int], Stream]
"""Starts a request for ranges with this room."""


class Columns:
    """Places of all chunks, by column and in ascending order."""

    def __init__(self, footer: bytes) -> None:
        import pyarrow.parquet

        metadata = pyarrow.parquet.read_metadata(io.BytesIO(footer))
        self.chunks: list[list[tuple[int, int]]] = [[] for _ in range(metadata.num_columns)]
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            for column in range(metadata.num_columns):
                chunk = row_group.column(column)
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                self.chunks[column].append((start, start + chunk.total_compressed_size))
        by_place = [
            (*place, column, at) for column, places in enumerate(self.chunks) for at, place in enumerate(places)
        ]
        self._sorted = sorted(by_place)

    def find(self, start: int, end: int) -> list[tuple[int, int]]:
        """Returns column and row group of the chunks that cover the range; nothing if there are gaps."""
        at = bisect.bisect_right(self._sorted, (start, 2**63)) - 1
        found: list[tuple[int, int]] = []
        while 0 <= at < len(self._sorted) and start < end and self._sorted[at][0] <= start < self._sorted[at][1]:
            _, start, column, group = self._sorted[at]
            found.append((column, group))
            at += 1
        return found if start >= end else []


Footer: TypeAlias = tuple[bytes, Columns | None]
"""End of a file, and the places of its chunks if the file is Parquet."""


class ParquetCache(BaseCache):  # type: ignore[misc]
    """Reads the footer at once, and the chunks of a column ahead."""

    name = "sabul-parquet"

    def __init__(
        self,
        blocksize: int,
        fetcher: Callable[[int, int], bytes],
        size: int,
        read: Reader,
        footers: dict[object, Footer],
        version: object,
        tail: bytes = b"",
    ) -> None:
        super().__init__(blocksize, fetcher, size)
        self._read = read
        self._footers = footers
        self._version = version
        self._tail, self._columns = footers.get(version, (b"", None))
        # Last bytes of the file that are read already.
        self._known_tail = tail
        # The chunks that are requested, by column and row group: the request, and the position in the request.
        self._ahead: dict[tuple[int, int], tuple[Stream, int]] = {}
        # The last request of each column, and the chunks that were read to their end.
        self._requests: dict[int, Stream] = {}
        self._done: set[tuple[int, int]] = set()
        # The first and the last row group that were read.
        self._first, self._last = 2**63, 0
        self._lock = threading.Lock()

    def _fetch(self, start: int | None, end: int | None) -> bytes:
        start, end = start or 0, min(self.size if end is None else end, self.size)
        if start >= end:
            return b""
        if not self._tail:
            self._read_tail()
        tail_start = self.size - len(self._tail)
        if start >= tail_start:
            return self._tail[start - tail_start : end - tail_start]
        chunks = self._columns.find(start, end) if self._columns else []
        if not 0 < len(chunks) <= _COLUMNS_MAX:
            found: bytes = self.fetcher(start, end)
            return found
        with self._lock:
            for column, group in chunks:
                self._want(column, group)
        return b"".join(self._take(column, group, start, end) for column, group in chunks)

    def _take(self, column: int, group: int, start: int, end: int) -> bytes:
        """Returns the part of the chunk in the range. A chunk that is read to its end is not held any longer."""
        chunk_start, chunk_end = self._place(column, group)
        start, end = max(start, chunk_start), min(end, chunk_end)
        while True:
            with self._lock:
                request, at = self._ahead.get((column, group), (None, 0))
            if request is None:
                found: bytes = self.fetcher(start, end)
                return found
            try:
                content = request.content(at)
                break
            except (Error, CancelledError):
                # Another request may bring the chunk now. Otherwise the server may answer again, or the reader gets the
                # error of this read.
                with self._lock:
                    if self._ahead.get((column, group), (None, 0))[0] is request:
                        self._forget(request)
        if end >= chunk_end:
            self._drop((column, group))
        return content[start - chunk_start : end - chunk_start]

    def _drop(self, chunk: tuple[int, int]) -> None:
        request, at = self._ahead.pop(chunk, (None, 0))
        if request:
            request.drop(at)
        self._done.add(chunk)

    def _forget(self, request: Stream) -> None:
        """Ends a request; its chunks that have not arrived can be requested again."""
        request.stop()
        self._ahead = {
            chunk: held for chunk, held in self._ahead.items() if held[0] is not request or request.has(held[1])
        }

    def stop(self) -> None:
        """Ends all requests."""
        for request in self._requests.values():
            request.stop()
        self._ahead.clear()

    def _place(self, column: int, group: int) -> tuple[int, int]:
        assert self._columns is not None
        return self._columns.chunks[column][group]

    def _read_tail(self) -> None:
        """Reads the footer, and the places of the chunks if the file is Parquet."""
        tail_bytes = min(max(self.size // _TAIL_PART, TAIL_BYTES), _TAIL_BYTES_MAX)
        self._tail = self._known_tail or self.fetcher(max(self.size - tail_bytes, 0), self.size)
        footer_bytes = int.from_bytes(self._tail[-_END_BYTES:-4], "little") + _END_BYTES
        if not self._tail.endswith(b"PAR1") or footer_bytes > self.size:
            return
        if footer_bytes > len(self._tail):
            self._tail = self.fetcher(self.size - footer_bytes, self.size)
        # The reader reports a damaged file.
        with suppress(ImportError, OSError, ValueError):
            self._columns = Columns(self._tail)
        if len(self._footers) >= _FOOTERS_MAX:
            self._footers.clear()
        self._footers[self._version] = self._tail, self._columns

    def _want(self, column: int, group: int) -> None:
        """Requests the chunk and those after it, unless the chunk is on its way or was read already."""
        assert self._columns is not None
        is_on_its_way = (column, group) in self._ahead and group <= self._last + _DISORDER
        self._first, self._last = min(self._first, group), max(self._last, group)
        if not is_on_its_way and (column, group) not in self._done:
            if column in self._requests:
                self._forget(self._requests[column])
            # Readers with several threads begin with any of the first row groups.
            start = max(self._first, self._last - _DISORDER)
            others = ((column, at) for at in range(start, len(self._columns.chunks[column])))
            new = (chunk for chunk in others if chunk not in self._ahead and chunk not in self._done)
            # The reader waits for the first one.
            chunks = list(dict.fromkeys([(column, group), *new]))
            request = self._read([self._place(*chunk) for chunk in chunks], 0)
            self._requests[column] = request
            self._ahead |= {chunk: (request, at) for at, chunk in enumerate(chunks)}
        for request in self._requests.values():
            request.set_room(self._room())
        # Row groups that the reader skipped.
        for old in [chunk for chunk in self._ahead if chunk[1] < self._last - 2 * _DISORDER]:
            self._drop(old)

    def _room(self) -> int:
        """Returns the bytes that the request of each column may hold."""
        room = _ROOM_BYTES // len(self._requests)
        return room if self._last > self._first else min(room, _FIRST_BYTES)
