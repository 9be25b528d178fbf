"""Cache of an open Parquet file: the next chunks of a column are on their way before a reader requests them.

A reader of columns requests one chunk after another, a round trip each. The footer says where the chunks of the same
column are, so the first read of a column requests all its further chunks at once. That request goes on while there is
room for chunks: a little at first, and more once the reader goes on to the next row group.
"""

from __future__ import annotations

import bisect
import io
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TypeAlias

from fsspec.caching import BaseCache

from ._stream import Stream
from .errors import Error

# Bytes of the first read of the end of a file. Readers such as pyarrow begin with as many.
_TAIL_BYTES = 2**16
# Bytes of chunks that are held: of a column at first, and of all columns later: half a second at 1 Gb/s.
_FIRST_BYTES, _ROOM_BYTES = 2**24, 2**26
# A chunk is held until the reader is so many row groups further.
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
    ) -> None:
        super().__init__(blocksize, fetcher, size)
        self._read = read
        self._footers = footers
        self._version = version
        self._tail, self._columns = footers.get(version, (b"", None))
        # The chunks that are requested, by column and row group: the request, and the position in the request.
        self._ahead: dict[tuple[int, int], tuple[Stream, int]] = {}
        # The first row group that was requested of each column.
        self._first: dict[int, int] = {}
        # The last row group that was requested of each column.
        self._last: dict[int, int] = {}

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
        for column, group in chunks:
            self._request(column, group)
        return b"".join(self._take(column, group, start, end) for column, group in chunks)

    def _take(self, column: int, group: int, start: int, end: int) -> bytes:
        """Returns the part of the chunk in the range. A chunk that is read to its end is not held any longer."""
        chunk_start, chunk_end = self._place(column, group)
        start, end = max(start, chunk_start), min(end, chunk_end)
        request, at = self._ahead.get((column, group), (None, 0))
        try:
            content = request.content(at) if request else None
        except (Error, CancelledError):
            # The server may answer again; otherwise the reader gets the error of this read.
            self._forget([chunk for chunk, (ahead, _) in self._ahead.items() if ahead is request])
            content = None
        if content is None:
            found: bytes = self.fetcher(start, end)
            return found
        if end >= chunk_end:
            self._drop((column, group))
        return content[start - chunk_start : end - chunk_start]

    def _drop(self, chunk: tuple[int, int]) -> None:
        request, at = self._ahead.pop(chunk)
        request.drop(at)

    def _forget(self, chunks: list[tuple[int, int]]) -> None:
        """Chunks of a request that failed can be requested again."""
        for column, group in chunks:
            self._ahead.pop((column, group), None)
            self._last[column] = min(self._last[column], group - 1)

    def stop(self) -> None:
        """Ends all requests."""
        for request, _ in self._ahead.values():
            request.stop()
        self._ahead.clear()

    def _place(self, column: int, group: int) -> tuple[int, int]:
        assert self._columns is not None
        return self._columns.chunks[column][group]

    def _read_tail(self) -> None:
        """Reads the footer, and the places of the chunks if the file is Parquet."""
        self._tail = self.fetcher(max(self.size - _TAIL_BYTES, 0), self.size)
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

    def _request(self, column: int, group: int) -> None:
        """Requests the chunk, unless it is on its way, and then the next chunks of all columns that were read.

        Readers with several threads take row groups out of order.
        """
        if (column, group) not in self._ahead:
            # The reader waits for this chunk. Readers with several threads begin with any of the first row groups.
            first = min(self._first.values(), default=group)
            self._start([(column, group), *self._others(column, min(first, group), group)])
        elif group > self._first[column]:
            request, _ = self._ahead[column, group]
            request.widen(_ROOM_BYTES // len(self._first))
        # Row groups that the reader skipped.
        for old in [chunk for chunk in self._ahead if chunk[1] < group - _DISORDER]:
            self._drop(old)

    def _start(self, chunks: list[tuple[int, int]]) -> None:
        """Requests chunks: pairs of column and row group."""
        if not chunks:
            return
        request = self._read([self._place(*chunk) for chunk in chunks], _FIRST_BYTES)
        for at, (column, group) in enumerate(chunks):
            self._ahead[column, group] = request, at
            self._first[column] = min(self._first.get(column, group), group)
            self._last[column] = max(self._last.get(column, group), group)

    def _others(self, column: int, start: int, besides: int) -> list[tuple[int, int]]:
        """Returns the chunks of a column from a row group on that were never requested, besides one."""
        assert self._columns is not None
        first, last = self._first.get(column, 0), self._last.get(column, -1)
        groups = range(start, len(self._columns.chunks[column]))
        return [(column, at) for at in groups if at != besides and not first <= at <= last]
