"""The package for asyncio: the functions of `sabul` as coroutines, and transfers that report their progress.

async with await sabul.aio.connect("me@far:") as session:
    async for progress in (transfer := session.put("data", "", recursive=True)):
        print(progress.bytes, "bytes")
    print((await transfer).goodput_bps)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, Unpack, overload

from . import _sabul
from ._aiofile import Opening, Places, Reader, Writer
from ._session import READERS_MAX, Base, base_of, locals_of, one, role_of
from ._types import (
    CopyOptions,
    Entry,
    Measurement,
    Meter,
    Options,
    Path,
    Paths,
    Plan,
    Progress,
    Reach,
    Report,
    checked,
    entries,
)
from ._window import check_mode, facts_of
from .errors import Error

__all__ = ["Session", "Transfer", "connect", "copy", "perf"]

# A server answers at most 16 requests of a session at the same time; the rest is for running transfers. Requests that
# wait for their reader have places of their own.
_REQUESTS_MAX = 8

# Inside of a session, `list` is its method.
Entries: TypeAlias = list[Entry]
Contents: TypeAlias = list[bytes | Error]
SeenRange: TypeAlias = tuple[Path, int, int | None, int | None]
"""Path, offset, length, and modification time in nanoseconds if the reader has seen the file."""


class Transfer:
    """A transfer: `await` starts it and returns its report; `async for` starts it and yields its progress.

    After the last progress, `await` returns the report. A cancelled task cancels its transfer.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[_sabul.Transfer]],
        end: Callable[[], Awaitable[None]] | None = None,
        places: AbstractAsyncContextManager[Any] | None = None,
    ) -> None:
        self._start = start
        self._end = end
        self._places = places or nullcontext()
        self._running: _sabul.Transfer | None = None
        self._report: Report | None = None

    def cancel(self) -> None:
        """Cancels the transfer. The receiver keeps complete files, and partial files to resume."""
        if self._running is not None:
            self._running.cancel()

    async def __aiter__(self) -> AsyncIterator[Progress]:
        try:
            running = await self._started()
            meter = Meter()
            while (document := await running.changed(False)) is not None:
                yield meter.read(document)
            yield meter.read(running.progress())
            self._report = Report._of(await running.finish(False))
        except BaseException:
            self.cancel()
            raise
        finally:
            await self._over()

    def __await__(self) -> Generator[Any, None, Report]:
        return self._result().__await__()

    async def _result(self) -> Report:
        if self._report is None:
            async with self._places:
                try:
                    running = await self._started()
                    self._report = Report._of(await running.finish(False))
                except BaseException:
                    self.cancel()
                    raise
                finally:
                    await self._over()
        return self._report

    async def _started(self) -> _sabul.Transfer:
        if self._running is None:
            self._running = await self._start()
        return self._running

    async def _over(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            await end()


class Session(Base):
    """A session with a server. Use it in an `async with` statement, or call `close`.

    The methods have the arguments and results of `sabul.Session`.
    """

    def __init__(self, session: _sabul.Session, base: bytes) -> None:
        super().__init__(session, base)
        self._places = asyncio.Semaphore(_REQUESTS_MAX)
        self._streams = Places(READERS_MAX)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """As `sabul.Session.close`."""
        await self._inner.close(False)

    def put(self, src: Paths, dst: Path, recursive: bool = False, **options: Unpack[Options]) -> Transfer:
        """As `sabul.Session.put`."""
        arguments = locals_of(src), self._path(dst), recursive, checked(options, Options)
        return Transfer(lambda: self._inner.put(*arguments, False), places=self._places)

    def get(self, src: Paths, dst: Path, recursive: bool = False, **options: Unpack[Options]) -> Transfer:
        """As `sabul.Session.get`."""
        arguments = self._sources(src), os.fsdecode(dst), recursive, checked(options, Options)
        return Transfer(lambda: self._inner.get(*arguments, False), places=self._places)

    async def put_bytes(self, content: bytes, dst: Path, **options: Unpack[Options]) -> Report:
        """As `sabul.Session.put_bytes`."""
        async with self._places:
            writer = await self._writer(self._path(dst), checked(options, Options))
            await writer.write(content)
            return await writer._finish()

    @overload
    def open(self, path: Path, mode: Literal["rb"] = "rb", **options: Unpack[Options]) -> Opening[Reader]: ...
    @overload
    def open(self, path: Path, mode: Literal["wb"], **options: Unpack[Options]) -> Opening[Writer]: ...
    def open(self, path: Path, mode: str = "rb", **options: Unpack[Options]) -> Opening[Any]:
        """As `sabul.Session.open`, for `async with` or `await`. The file has coroutines: `read`, `seek` and `tell`, or
        `write` and `discard`, and `close`."""
        check_mode(mode)
        name, given = self._path(path), checked(options, Options)
        return Opening(lambda: self._reader(name, given) if mode == "rb" else self._writer(name, given))

    async def _reader(self, path: bytes, options: Mapping[str, Any]) -> Reader:
        async with self._places:
            rows = await self._inner.list([_sabul.escape(path)], "target", False)
        return Reader(self._inner, self._streams, path, options, facts_of(rows, os.fsdecode(path)))

    async def _writer(self, path: bytes, options: Mapping[str, Any]) -> Writer:
        return Writer(*await self._inner.upload(path, options, False), path)

    async def read(self, path: Path, offset: int = 0, length: int | None = None, **options: Unpack[Options]) -> bytes:
        """As `sabul.Session.read`."""
        given = checked(options, Options)
        async with self._places:
            return await self._inner.read(self._source(path), offset, length, given, False)

    cat = read

    async def read_ranges(self, ranges: Iterable[tuple[Path, int, int | None]], **options: Unpack[Options]) -> Contents:
        """As `sabul.Session.read_ranges`."""
        return await self._read_as_seen(((*wanted, None) for wanted in ranges), **options)

    async def _read_as_seen(self, ranges: Iterable[SeenRange], **options: Unpack[Options]) -> Contents:
        """As `read_ranges`. A range with a modification time in nanoseconds fails if the file has another time."""
        given = checked(options, Options)
        wanted = [(self._path(path), offset, length, time) for path, offset, length, time in ranges]
        async with self._places:
            return await self._inner.read_ranges(wanted, given, False)

    async def iter_ranges(
        self, ranges: Iterable[tuple[Path, int, int | None]], **options: Unpack[Options]
    ) -> AsyncGenerator[tuple[int, bytes | Error]]:
        """As `read_ranges`, but yields each range when its content is here: its number in the request, and its content
        or error. A reader that pauses pauses the server, too.

        A session has six such requests at the same time; a seventh waits until one of them has ended.
        """
        async with aclosing(self._iter_as_seen(((*wanted, None) for wanted in ranges), **options)) as parts:
            async for part in parts:
                yield part

    async def _iter_as_seen(
        self, ranges: Iterable[SeenRange], **options: Unpack[Options]
    ) -> AsyncGenerator[tuple[int, bytes | Error]]:
        """As `iter_ranges`. A range with a modification time in nanoseconds fails if the file has another time."""
        given = checked(options, Options)
        wanted = [(self._path(path), offset, length, time) for path, offset, length, time in ranges]
        await self._streams.take()
        try:
            reads = await self._inner.open_ranges(wanted, given, False)
            while (part := await reads.next(False)) is not None:
                yield part
        finally:
            self._streams.give()

    async def list(
        self,
        path: Paths = "",
        recursive: bool = False,
        *,
        onerror: Callable[[Error], object] | None = None,
    ) -> Entries:
        """As `sabul.Session.list`."""
        async with self._places:
            rows = await self._inner.list(self._sources(path), "all" if recursive else "content", False)
        return [self._rename(entry) for entry in entries(rows, onerror)]

    async def stat(self, path: Path) -> Entry:
        """As `sabul.Session.stat`."""
        async with self._places:
            rows = await self._inner.list([self._source(path)], "itself", False)
        return self._rename(one(entries(rows, None), path))

    async def stat_with_tail(
        self, path: Path, tail_bytes: int = 65536, **options: Unpack[Options]
    ) -> tuple[Entry, bytes]:
        """As `sabul.Session.stat_with_tail`."""
        given = checked(options, Options)
        async with self._places:
            row, tail = await self._inner.stat_with_tail(self._path(path), tail_bytes, given, False)
        return self._rename(one(entries([row], None), path)), tail

    async def mkdir(self, path: Paths, parents: bool = False) -> None:
        """As `sabul.Session.mkdir`."""
        async with self._places:
            await self._inner.make_folders(self._paths(path), parents, False)

    async def rm(self, path: Paths, recursive: bool = False) -> None:
        """As `sabul.Session.rm`."""
        async with self._places:
            await self._inner.remove(self._paths(path), recursive, False)

    async def mv(self, src: Path, dst: Path, replace: bool = True) -> None:
        """As `sabul.Session.mv`."""
        async with self._places:
            await self._inner.rename(self._path(src), self._path(dst), replace, False)

    async def perf(
        self,
        seconds: float | None = None,
        *,
        bytes: int | None = None,
        reverse: bool = False,
        **options: Unpack[Options],
    ) -> Measurement:
        """As `sabul.Session.perf`."""
        seconds = 10.0 if seconds is None and bytes is None else seconds
        transfer = await self._inner.measure(seconds, bytes, reverse, checked(options, Options), False)
        return Measurement._of(await transfer.finish(False), role_of(reverse))


async def connect(address: str | None = None, **reach: Unpack[Reach]) -> Session:
    """As `sabul.connect`."""
    return Session(await _sabul.connect(address, checked(reach, Reach), False), base_of(address))


def copy(src: Paths, dst: Path, recursive: bool = False, **options: Unpack[CopyOptions]) -> Transfer:
    """As `sabul.copy`; the result is awaitable, and an asynchronous iterator of the progress."""
    plan = Plan.of(src, dst)
    given: Any = checked(options, Options, Reach)
    reach = checked(options, Reach, Options)
    sessions: list[Session] = []

    async def start() -> _sabul.Transfer:
        session = Session(await _sabul.connect(plan.address, reach, False), b"")
        sessions.append(session)
        direction = session.put if plan.is_put else session.get
        return await direction(plan.sources, plan.destination, recursive, **given)._started()

    async def end() -> None:
        while sessions:
            await sessions.pop().close()

    return Transfer(start, end)


async def perf(
    address: str | None = None,
    seconds: float | None = None,
    *,
    bytes: int | None = None,
    reverse: bool = False,
    **options: Unpack[CopyOptions],
) -> Measurement:
    """As `sabul.perf`."""
    given: Any = checked(options, Options, Reach)
    async with Session(await _sabul.connect(address, checked(options, Reach, Options), False), b"") as session:
        return await session.perf(seconds, bytes=bytes, reverse=reverse, **given)
