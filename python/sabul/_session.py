"""Blocking face of the package: sessions and copies."""

from __future__ import annotations

import atexit
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, Unpack, overload
from weakref import WeakSet

from . import _sabul
from ._file import Places, Upload, Writer, open_file
from ._types import (
    CopyOptions,
    Entry,
    Measurement,
    Meter,
    Options,
    Path,
    Paths,
    Plan,
    ProgressCallback,
    Reach,
    Report,
    checked,
    encode,
    entries,
    several,
)
from ._window import check_mode
from .errors import Error, UsageError

# Inside of a session, `list` is its method.
Entries: TypeAlias = list[Entry]
Contents: TypeAlias = list[bytes | Error]

# Ours: open files of a session whose requests wait for their reader. The server answers at most 16 requests at a time.
READERS_MAX = 6

# A special character of patterns with a backslash, and names that are no pattern, with and without such backslashes.
_QUOTED = re.compile(rb"\\([*?\[\]{}\\])")
_NAME = re.compile(rb"[^*?\[{\\]*|(?:[^*?\[\]{}\\]|\\[*?\[\]{}\\])*")

# Sessions that end with the interpreter.
_open: WeakSet[Base] = WeakSet()


class Base:
    """Paths of a session: relative to the path of the address."""

    def __init__(self, session: _sabul.Session, base: bytes) -> None:
        self._inner = session
        self._peer = session.peer
        _open.add(self)
        self._base = base.rstrip(b"/") or base

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} with {self._peer}>"

    @property
    def peer(self) -> str:
        """Address and port of the other end."""
        return self._peer

    def _path(self, path: Path) -> bytes:
        found = encode(path)
        if not self._base or found.startswith(b"/"):
            return found
        return self._base.rstrip(b"/") + b"/" + found

    def _paths(self, paths: Paths) -> list[bytes]:
        return [self._path(path) for path in several(paths)]

    def _source(self, path: Path) -> bytes:
        """Returns a name that may be a pattern. Below the path of the address, a quoted name and a name without special
        characters have one meaning: that path is no pattern then."""
        found = encode(path)
        if not self._base or found.startswith(b"/") or not _NAME.fullmatch(found):
            return self._path(path)
        return _sabul.escape(self._path(_QUOTED.sub(rb"\1", found)))

    def _sources(self, paths: Paths) -> list[bytes]:
        return [self._source(path) for path in several(paths)]

    def _rename(self, entry: Entry) -> Entry:
        """Returns the entry with its path relative to the path of the address."""
        base = os.fsdecode(self._base).rstrip("/") + "/"
        if not self._base or not entry.path.startswith(base):
            return entry
        return Entry(entry.path[len(base) :], *_facts(entry))


@atexit.register
def _close_all() -> None:
    """Closes the open sessions, so that the servers do not report broken connections."""
    for session in list(_open):
        with suppress(Error):
            session._inner.close(True)


def _facts(entry: Entry) -> tuple[Any, ...]:
    return (entry.kind, entry.bytes, entry.mode, entry.modified_ns, entry.owner, entry.group)


def locals_of(paths: Paths) -> list[str]:
    """Returns paths of this machine."""
    return [os.fsdecode(path) for path in several(paths)]


def base_of(address: str | None) -> bytes:
    """Returns the path in an address."""
    place = _sabul.split(address) if address else None
    return place[1] if place else b""


def one(found: list[Entry], path: Path) -> Entry:
    """Returns the only entry of a listing."""
    if len(found) != 1:
        raise UsageError(f"'{os.fsdecode(path)}' matches {len(found)} names; name one, with escape() if it is exact")
    return found[0]


def follow(transfer: _sabul.Transfer, progress: ProgressCallback | None) -> str:
    """Waits for the end of a transfer and returns its report as JSON."""
    try:
        if progress is not None:
            meter = Meter()
            while (document := transfer.changed(True)) is not None:
                progress(meter.read(document))
            progress(meter.read(transfer.progress()))
        return transfer.finish(True)
    except BaseException:
        transfer.cancel()
        raise


class Session(Base):
    """A session with a server. Use it in a `with` statement, or call `close`.

    A session belongs to the process that made it: a forked process has to connect again. Several threads may use a
    session at the same time.
    """

    def __init__(self, session: _sabul.Session, base: bytes) -> None:
        super().__init__(session, base)
        self._places = Places(READERS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the session. Running transfers are cancelled."""
        self._inner.close(True)

    def put(
        self,
        src: Paths,
        dst: Path,
        recursive: bool = False,
        *,
        progress: ProgressCallback | None = None,
        **options: Unpack[Options],
    ) -> Report:
        """Sends files, and with `recursive` directories. A `dst` that ends in `/` is a directory.

        Raises an `Error` with a `report` if a file failed; the others arrived.
        """
        given = checked(options, Options)
        transfer = self._inner.put(locals_of(src), self._path(dst), recursive, given, True)
        return Report._of(follow(transfer, progress))

    def get(
        self,
        src: Paths,
        dst: Path,
        recursive: bool = False,
        *,
        progress: ProgressCallback | None = None,
        **options: Unpack[Options],
    ) -> Report:
        """Receives files, and with `recursive` directories. A `dst` that ends in `/` is a directory.

        Raises an `Error` with a `report` if a file failed; the others arrived.
        """
        given = checked(options, Options)
        transfer = self._inner.get(self._sources(src), os.fsdecode(dst), recursive, given, True)
        return Report._of(follow(transfer, progress))

    def put_bytes(self, content: bytes, dst: Path, **options: Unpack[Options]) -> Report:
        """Sends bytes as the file `dst`. Missing directories of the file are created."""
        upload = Upload(*self._inner.upload(self._path(dst), checked(options, Options), True))
        upload.write(content)
        return upload.finish()

    @overload
    def open(self, path: Path, mode: Literal["rb"] = "rb", **options: Unpack[Options]) -> io.BufferedReader: ...
    @overload
    def open(self, path: Path, mode: Literal["wb"], **options: Unpack[Options]) -> Writer: ...
    def open(self, path: Path, mode: str = "rb", **options: Unpack[Options]) -> io.BufferedReader | Writer:
        """Opens a file as `open` does for a local one, in mode `rb` or `wb`. The path is no pattern.

        A reader seeks, and reads ahead while it reads on without a seek. All bytes are of the version of the opening:
        if the file is changed, a read raises an `Error` with the code `changed`.

        A writer sends the bytes while they are written, and waits if the server is slower. The file has its name when
        `close` returns. After an exception in the `with` block, after `discard`, and without `close` there is no file.
        """
        check_mode(mode)
        return open_file(self._inner, self._places, self._path(path), mode, checked(options, Options))

    def read(self, path: Path, offset: int = 0, length: int | None = None, **options: Unpack[Options]) -> bytes:
        """Returns the content of a file, or `length` bytes from `offset`; fewer at the end of the file.

        An `offset` behind the end of the file raises.
        """
        return self._inner.read(self._source(path), offset, length, checked(options, Options), True)

    cat = read

    def read_ranges(self, ranges: Iterable[tuple[Path, int, int | None]], **options: Unpack[Options]) -> Contents:
        """Returns byte ranges of files, in one request. A range is a path, which is no pattern, an offset, and a length
        or None for the rest of the file.

        A range that cannot be read raises nothing: its error takes its place in the list.
        """
        wanted = [(self._path(path), offset, length, None) for path, offset, length in ranges]
        return self._inner.read_ranges(wanted, checked(options, Options), True)

    def iter_ranges(
        self, ranges: Iterable[tuple[Path, int, int | None]], **options: Unpack[Options]
    ) -> Iterator[tuple[int, bytes | Error]]:
        """As `read_ranges`, but yields each range when its content is here: its number in the request, and its content
        or error. A reader that pauses pauses the server, too."""
        wanted = [(self._path(path), offset, length, None) for path, offset, length in ranges]
        reads = self._inner.open_ranges(wanted, checked(options, Options), True)
        while (part := reads.next(True)) is not None:
            yield part

    def list(
        self,
        path: Paths = "",
        recursive: bool = False,
        *,
        onerror: Callable[[Error], object] | None = None,
    ) -> Entries:
        """Returns the entries of a directory, or with `recursive` all below; for a file, the file itself.

        An entry that cannot be examined raises, or is passed to `onerror`.
        """
        rows = self._inner.list(self._sources(path), "all" if recursive else "content", True)
        return [self._rename(entry) for entry in entries(rows, onerror)]

    def stat(self, path: Path) -> Entry:
        """Returns the facts of a file, directory or link; links are not followed."""
        rows = self._inner.list([self._source(path)], "itself", True)
        return self._rename(one(entries(rows, None), path))

    def stat_with_tail(self, path: Path, tail_bytes: int = 65536, **options: Unpack[Options]) -> tuple[Entry, bytes]:
        """Returns the facts of a file and its last bytes, of one version, in one request; links are followed."""
        row, tail = self._inner.stat_with_tail(self._path(path), tail_bytes, checked(options, Options), True)
        return self._rename(one(entries([row], None), path)), tail

    def mkdir(self, path: Paths, parents: bool = False) -> None:
        """Creates directories; with `parents` also those above, and existing directories are no error."""
        self._inner.make_folders(self._paths(path), parents, True)

    def rm(self, path: Paths, recursive: bool = False) -> None:
        """Removes files, links and empty directories; with `recursive` directories with their content."""
        self._inner.remove(self._paths(path), recursive, True)

    def mv(self, src: Path, dst: Path, replace: bool = True) -> None:
        """Renames a file, link or directory at the server in one step. An existing directory `dst` takes `src`.
        A `dst` that ends in `/` must be a directory."""
        self._inner.rename(self._path(src), self._path(dst), replace, True)

    def perf(
        self,
        seconds: float | None = None,
        *,
        bytes: int | None = None,
        reverse: bool = False,
        **options: Unpack[Options],
    ) -> Measurement:
        """Measures the path from memory to memory, for `seconds` (10 by default) or `bytes`.

        This side sends, or receives with `reverse`.
        """
        seconds = 10.0 if seconds is None and bytes is None else seconds
        given = checked(options, Options)
        transfer = self._inner.measure(seconds, bytes, reverse, given, True)
        return Measurement._of(follow(transfer, None), role_of(reverse))


def role_of(reverse: bool) -> Literal["sender", "receiver"]:
    """Returns the role of this side in a measurement."""
    return "receiver" if reverse else "sender"


def connect(address: str | None = None, **reach: Unpack[Reach]) -> Session:
    """Connects to a server and returns a session.

    `address` is `sabul://[user@]host[:port]/[path]` or `[user@]host:[path]` for a host that ssh reaches; None stands
    for the server of the ticket file. Paths of the session start at the path of the address.
    """
    return Session(_sabul.connect(address, checked(reach, Reach), True), base_of(address))


def copy(
    src: Paths,
    dst: Path,
    recursive: bool = False,
    *,
    progress: ProgressCallback | None = None,
    **options: Unpack[CopyOptions],
) -> Report:
    """Copies files between this machine and a server, as `sabul cp` does. One side is remote.

    Every file is transferred, as by `sabul cp --again`; interrupted files are resumed.
    """
    plan = Plan.of(src, dst)
    given: Any = checked(options, Options, Reach)
    with Session(_sabul.connect(plan.address, checked(options, Reach, Options), True), b"") as session:
        direction = session.put if plan.is_put else session.get
        return direction(plan.sources, plan.destination, recursive, progress=progress, **given)


def perf(
    address: str | None = None,
    seconds: float | None = None,
    *,
    bytes: int | None = None,
    reverse: bool = False,
    **options: Unpack[CopyOptions],
) -> Measurement:
    """Measures the path to a server, as `sabul perf` does."""
    given: Any = checked(options, Options, Reach)
    with Session(_sabul.connect(address, checked(options, Reach, Options), True), b"") as session:
        return session.perf(seconds, bytes=bytes, reverse=reverse, **given)


def escape(path: Path) -> str:
    """Returns a pattern that matches only this path."""
    return os.fsdecode(_sabul.escape(encode(path)))
