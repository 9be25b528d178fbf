"""Pieces of an open file that are requested and held, for the readers of `sabul.Session` and of `sabul.aio`."""

from __future__ import annotations

from . import _sabul
from .errors import Error, FailedError, UsageError, _of_file

# Ours: bytes of the first piece of a request. The pieces double, so that the first bytes come soon, and the later ones
# with little overhead. A slow reader is ahead by at most 16 pieces, besides those on their way.
_PIECE_BYTES = 2**18
_PIECE_BYTES_MAX = 2**21
# Ours: pieces of a request.
_PIECES_MAX = 1024
# Ours: pieces that a reader waits for and drops, instead of another request.
_SKIPPED_MAX = 4


class Window:
    """Position in a file, and the pieces around it.

    A read after a seek requests its own bytes. A read that continues the previous one requests the rest of the file;
    the reader then takes the pieces as it needs them.
    """

    def __init__(self, size: int) -> None:
        self.position = 0
        self.size = size
        # End of the previous read.
        self._read_until = -1
        # Pieces of the running request: start and length, and the numbers of those that are not here.
        self._ranges: list[tuple[int, int]] = []
        self._coming: set[int] = set()
        self._held: dict[int, bytes] = {}

    @property
    def rest(self) -> int:
        """Bytes from the position to the end."""
        return max(self.size - self.position, 0)

    def take(self, most: int) -> memoryview | None:
        """Returns up to `most` bytes at the position and moves the position; None if the bytes are not here. Nothing is
        behind the end of the file."""
        if not self.rest or most <= 0:
            return memoryview(b"")
        for start in [start for start, piece in self._held.items() if start + len(piece) <= self.position]:
            del self._held[start]
        for start, piece in self._held.items():
            if start <= self.position:
                found = memoryview(piece)[self.position - start :][:most]
                self.position += len(found)
                self._read_until = self.position
                return found
        return None

    def is_coming(self) -> bool:
        """Returns whether the running request brings the bytes at the position soon."""
        pieces = [self._ranges[number] for number in sorted(self._coming)[: _SKIPPED_MAX + 1]]
        return any(start <= self.position < start + length for start, length in pieces)

    def plan(self, wanted: int) -> list[tuple[int, int]]:
        """Returns start and length of each piece of the next request, for a read of `wanted` bytes."""
        wanted = self.rest if self.position == self._read_until else max(wanted, _PIECE_BYTES)
        at, end, length = self.position, min(self.position + wanted, self.size), _PIECE_BYTES
        self._ranges = []
        while at < end and len(self._ranges) < _PIECES_MAX:
            self._ranges.append((at, min(length, end - at)))
            at, length = at + length, min(2 * length, _PIECE_BYTES_MAX)
        self._coming = set(range(len(self._ranges)))
        self._held = {}
        return self._ranges

    def deliver(self, number: int, content: bytes | Error) -> None:
        """Holds a piece of the running request. Raises its error."""
        start, length = self._ranges[number]
        self._coming.discard(number)
        if isinstance(content, Error):
            raise content
        if len(content) < length:
            raise _of_file("changed", "the file became shorter since it was opened; open it again")
        if start + length > self.position:
            self._held[start] = content

    def seek(self, offset: int, whence: int = 0) -> int:
        """Moves the position, as `io.IOBase.seek`."""
        if whence not in (0, 1, 2):
            raise ValueError(f"whence {whence} is not possible; use 0, 1 or 2")
        position = (0, self.position, self.size)[whence] + offset
        if position < 0:
            raise ValueError(f"position {position} is before the start of the file")
        self.position = position
        return position


def check_mode(mode: str) -> None:
    """Raises UsageError for a mode that `open` does not have."""
    if mode not in ("rb", "wb"):
        raise UsageError(f"mode '{mode}' is not possible; use rb or wb, and io.TextIOWrapper for text")


def facts_of(rows: list[_sabul._Row], path: str) -> tuple[int, int | None]:
    """Returns size and modification time of a file in a listing of the files of one path."""
    for _, facts, failure in rows:
        if failure is not None:
            raise _of_file(*failure)
        if facts is not None and facts[0] == "file":
            return facts[1], facts[3]
    raise FailedError(f"'{path}' is not a file; name a file")
