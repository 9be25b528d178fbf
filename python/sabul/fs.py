"""File system of fsspec over a session: `sabul://host/path` for pandas, pyarrow, Dask, zarr and others.

    pandas.read_parquet("sabul://me@far/data/x.parquet")
    fsspec.filesystem("sabul", ticket_file="server.ticket").ls("data")

A URL without host, such as `sabul:///data`, names the server of the ticket file. Only the name of the ticket file is
part of the storage options, so a pickled file system contains no secret. Paths are those of the program: relative to
the root of the server, or over ssh to the home directory; `//path` is absolute.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

from fsspec.asyn import AsyncFileSystem, _run_coros_in_chunks, sync
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.spec import AbstractBufferedFile
from fsspec.utils import stringify_path

from . import _sabul, aio
from ._file import Upload
from ._parquet import TAIL_BYTES, Footer, ParquetCache
from ._stream import Stream
from ._types import Entry, Options, Progress, checked
from .errors import Error, ExistsError, FailedError, NotFoundError, UnreachableError, UsageError, _of_file

__all__ = ["SabulFile", "SabulFileSystem"]

_SCHEME = "sabul://"
# Bytes of a piece of a written file, and of the read-ahead.
_BLOCK_BYTES = 5 * 2**20
# Bytes between two ranges that become one: the server opens the file again for each range.
_GAP_BYTES = 2**12
# Time in which reads are collected for one request: much shorter than a round trip of a long path.
_MOMENT_S = 0.001
# Most bytes of a range that shares a request: other ranges arrive behind it.
_SHARED_BYTES = 2**22
# Most bytes of ranges that become one.
_MERGED_BYTES = 2**24


_Wanted: TypeAlias = tuple[str, int, int | None, int | None]
"""Path, start, length, and modification time in nanoseconds of a file that was opened before."""


class SabulFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """Files of a server.

    `address` is that of `sabul.connect`, such as `sabul://host:4850` or `me@far:`; None stands for the server of the
    ticket file. The other arguments are those of `sabul.connect`.
    """

    protocol = "sabul"
    root_marker = ""

    def __init__(
        self,
        address: str | None = None,
        *,
        ticket_file: str | os.PathLike[str] | None = None,
        identity: str | None = None,
        ssh: str | None = None,
        remote_sabul: str | None = None,
        carrier: Literal["auto", "udp", "tcp", "ssh"] | None = None,
        timeout_s: float | None = None,
        sync_files: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        given = {
            "ticket_file": ticket_file,
            "identity": identity,
            "ssh": ssh,
            "remote_sabul": remote_sabul,
            "carrier": carrier,
            "timeout_s": timeout_s,
        }
        self._address = address
        self._reach: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        self._options: dict[str, Any] = {"sync": sync_files}
        if carrier is not None:
            self._options["carrier"] = carrier
        # Directories that exist, so that files in them need no request for them.
        self._made: set[str] = set()
        # Copies into one file run one after another: patterns may name several sources for one name.
        self._writers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._opened: aio.Session | None = None
        self._opening: asyncio.Lock | None = None
        # Footers of Parquet files, by path, size and time.
        self._footers: dict[object, Footer] = {}
        # Ranges for the next request, and the tasks that read.
        self._soon: list[tuple[_Wanted, asyncio.Future[bytes | Error]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(item) for item in path]
        path = stringify_path(path)
        if path.startswith(_SCHEME):
            place = _sabul.split(path)
            path = os.fsdecode(place[1]) if place else ""
        elif path.startswith("sabul::"):
            path = path[len("sabul::") :]
        return path.rstrip("/") or ("/" if path.startswith("/") else cls.root_marker)

    @classmethod
    def _parent(cls, path: Any) -> str:
        path = cls._strip_protocol(path)
        head: str = path.rpartition("/")[0]
        return head or ("/" if path.startswith("/") else cls.root_marker)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        if not path.startswith(_SCHEME):
            return {}
        place = _sabul.split(path)
        address = place[0].rstrip("/") if place else ""
        return {} if address in ("", "sabul:") else {"address": address}

    def unstrip_protocol(self, name: str) -> str:
        """Returns the URL of a path; the URL names the server too."""
        return url_of(self._address, self._strip_protocol(name))

    async def _session(self) -> aio.Session:
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._opened is None:
                self._opened = await aio.connect(self._address, **self._reach)
            return self._opened

    def _lost(self, session: aio.Session) -> None:
        """The next call connects again."""
        if self._opened is session:
            self._opened = None

    def _is_stream_awaited(self) -> bool:
        return self._opened is not None and self._opened._streams.waiting > 0

    async def _make_parent(self, path: str) -> aio.Session:
        """Creates the directory of a new file, as object stores do."""
        session = await self._session()
        parent = self._parent(path)
        if parent not in ("", "/") and parent not in self._made:
            await session.mkdir(parent, parents=True)
            self._made.add(parent)
        return session

    def _writer(self, place: str) -> asyncio.Lock:
        """Returns the lock of a file that is written."""
        return self._writers.setdefault(place, asyncio.Lock())

    async def _list(self, path: str, *, itself: bool) -> list[Entry]:
        """Lists a path without patterns; a lost session is replaced once."""
        exact = os.fsdecode(_sabul.escape(os.fsencode(path)))
        for is_last in (False, True):
            session = await self._session()
            try:
                return [await session.stat(exact)] if itself else await session.list(exact)
            except UnreachableError:
                self._lost(session)
                if is_last:
                    raise
        return []

    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path in ("", "/"):
            return {"name": path, "size": 0, "type": "directory"}
        (entry,) = await self._list(path, itself=True)
        facts = await self._facts(path, entry)
        # Only here: a walk does not follow links to directories, which may form a circle.
        if facts["type"] == "link" and await self._leads_to_directory(path):
            facts["type"] = "directory"
        return facts

    async def _info_with_tail(self, path: str) -> tuple[dict[str, Any], bytes]:
        """Returns the facts of a file and its last bytes, which hold the footer of most Parquet files."""
        for is_last in (False, True):
            session = await self._session()
            try:
                entry, tail = await session.stat_with_tail(path, TAIL_BYTES)
                return await self._facts(path, entry), tail
            except UnreachableError:
                self._lost(session)
                if is_last:
                    raise
        raise AssertionError

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        # The server chose the names, and copies of directories write below them.
        found = [entry for entry in await self._list(path, itself=False) if entry.name not in ("", ".", "..")]
        base = path.rstrip("/") + "/" if path else ""
        is_itself = len(found) == 1 and found[0].path.rstrip("/") == path and found[0].kind != "directory"
        names = [path if is_itself else base + entry.name for entry in found]
        # A name that looks like the protocol would mean another file in the next call.
        names = [f"./{name}" if name.startswith("sabul::") else name for name in names]
        if not detail:
            return names
        return [await self._facts(name, entry) for name, entry in zip(names, found, strict=True)]

    async def _exists(self, path: str, **kwargs: Any) -> bool:
        """Whether the path can be examined, as `os.path.exists`."""
        try:
            await self._info(path)
        except FailedError:
            return False
        return True

    async def _facts(self, name: str, entry: Entry) -> dict[str, Any]:
        """Returns the facts of an entry; those of a link to a file are the facts of the file."""
        facts = {
            "name": name,
            "size": entry.bytes if entry.kind == "file" else 0,
            "type": entry.kind,
            "mode": entry.mode,
            "mtime": None if entry.modified_ns is None else entry.modified_ns / 1e9,
            "mtime_ns": entry.modified_ns,
            "uid": entry.owner,
            "gid": entry.group,
            "islink": entry.kind == "link",
        }
        if entry.kind != "link":
            return facts
        session = await self._session()
        rows = await session._inner.list([_sabul.escape(os.fsencode(name))], "target", False)
        target = next((row[1] for row in rows if row[1] is not None), None)
        if target is not None:
            mtime = None if target[3] is None else target[3] / 1e9
            facts |= {"size": target[1], "type": "file", "mtime": mtime, "mtime_ns": target[3]}
        return facts

    async def _leads_to_directory(self, path: str) -> bool:
        """Whether a link leads to a directory; a listing of any other link is the link itself."""
        try:
            found = await self._list(path, itself=False)
        except FailedError:
            return False
        return not (len(found) == 1 and found[0].kind == "link" and found[0].path == path)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        path = self._strip_protocol(path)
        start = start or 0
        if start < 0 or (end is not None and end < 0):
            size = (await self._info(path))["size"]
            start = max(size + start, 0) if start < 0 else start
            end = size + end if end is not None and end < 0 else end
        return await self._read_soon(path, start, None if end is None else max(end - start, 0))

    async def _read_soon(self, path: str, start: int, length: int | None, time: int | None = None) -> bytes:
        """Reads a range; ranges that are requested at about the same time share a request. With a modification time, a
        file that has another time raises."""
        found = await self._read_together((path, start, length, time))
        if isinstance(found, Error):
            raise found
        return found

    async def _read_together(self, wanted: _Wanted) -> bytes | Error:
        _, _, length, _ = wanted
        if length is not None and length > _SHARED_BYTES:
            return (await self._read_ranges([wanted]))[0]
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bytes | Error] = loop.create_future()
        self._soon.append((wanted, result))
        if len(self._soon) == 1:
            task = loop.create_task(self._read_now())
            # The loop keeps only weak references to tasks.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await result

    async def _read_now(self) -> None:
        """Reads all ranges that are requested within a moment."""
        await asyncio.sleep(_MOMENT_S)
        soon, self._soon = self._soon, []
        try:
            found = await self._read_ranges([wanted for wanted, _ in soon])
        except BaseException as error:
            for _, result in soon:
                if not result.done():
                    result.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, result), content in zip(soon, found, strict=True):
            # A cancelled reader needs no content.
            if not result.done():
                result.set_result(content)

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Reads ranges of files in one request; near ranges of a file become one."""
        paths = [self._strip_protocol(path) for path in paths]
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        merged = _merged(paths, starts, ends, _GAP_BYTES if max_gap is None else max_gap)
        # Ranges from the end of a file need its size.
        from_end = [item for item in merged if min(item[1] or 0, item[2] or 0) < 0]
        from_start = [item for item in merged if min(item[1] or 0, item[2] or 0) >= 0]
        coros = [self._cat_file(path, start, end) for path, start, end, _ in from_end]
        found = await _run_coros_in_chunks(coros, batch_size or self.batch_size, nofiles=True, return_exceptions=True)
        found += await self._read_ranges(
            [
                (path, start or 0, None if end is None else end - (start or 0), None)
                for path, start, end, _ in from_start
            ]
        )
        results: list[Any] = [b""] * len(paths)
        for content, (_, _, _, parts) in zip(found, from_end + from_start, strict=True):
            for at, begin, length in parts:
                if isinstance(content, BaseException):
                    if on_error != "return":
                        raise content
                    results[at] = content
                else:
                    results[at] = content if length is None else content[begin : begin + length]
        return results

    async def _read_ranges(self, ranges: list[_Wanted]) -> list[bytes | Error]:
        """Reads ranges in one request; a lost session is replaced once. Nothing is behind the end of a file."""
        found: list[bytes | Error] = []
        for is_last in (False, True):
            session = await self._session()
            try:
                found = list(await session._read_as_seen(ranges))
                break
            except UnreachableError:
                self._lost(session)
                if is_last:
                    raise
        for at, (path, start, _, time) in enumerate(ranges):
            failed = isinstance(found[at], FailedError) and not isinstance(found[at], NotFoundError)
            if failed and start > 0 and (now := await self._info(path))["size"] < start:
                is_same = time is None or now["mtime_ns"] == time
                shorter = f"'{path}' became shorter since it was opened; open it again"
                found[at] = b"" if is_same else _of_file("changed", shorter)
        return found

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        await self._check_new(path, mode)
        await (await self._session()).put_bytes(bytes(value), path, **self._options)

    async def _check_new(self, path: str, mode: str) -> None:
        if mode == "create" and await self._exists(path):
            raise ExistsError(f"'{path}' exists; choose another name, or mode 'overwrite'")

    async def _put_file(
        self, lpath: str, rpath: str, callback: Callback = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        await self._check_new(rpath, mode)
        callback.set_size(os.path.getsize(lpath))
        session = await self._make_parent(rpath)
        async with self._writer(f"put {rpath}"):
            await _followed(session.put(lpath, rpath, **self._options), callback)

    async def _get_file(self, rpath: str, lpath: str, callback: Callback = DEFAULT_CALLBACK, **kwargs: Any) -> None:
        rpath = self._strip_protocol(rpath)
        if await self._isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        session = await self._session()
        exact = os.fsdecode(_sabul.escape(os.fsencode(rpath)))
        async with self._writer(f"get {os.path.abspath(lpath)}"):
            await _followed(session.get(exact, lpath, **self._options), callback)

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file through this machine: the server has no copies of its own."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if await self._isdir(path1):
            await self._makedirs(path2, exist_ok=True)
            return
        with tempfile.TemporaryDirectory(prefix="sabul-") as folder:
            name = os.path.join(folder, "file")
            await self._get_file(path1, name)
            await self._put_file(name, path2)

    async def _mv_file(self, path1: str, path2: str) -> None:
        path2 = self._strip_protocol(path2)
        session = await self._make_parent(path2)
        self._made.clear()
        await session.mv(self._strip_protocol(path1), path2)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Renames a file or directory in one step. Lists and patterns are copied and removed one by one."""
        is_simple = isinstance(path1, str) and isinstance(path2, str) and not set(path1) & set("*?[")
        if not is_simple or maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        into = str(path2).rstrip("/") + "/" + os.path.basename(str(path1).rstrip("/"))
        sync(self.loop, self._mv_file, path1, into if str(path2).endswith("/") else path2)

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        self._made.clear()
        await (await self._session()).rm(self._strip_protocol(path))

    async def _rm(self, path: Any, recursive: bool = False, batch_size: Any = None, **kwargs: Any) -> None:
        if kwargs.get("maxdepth") is not None:
            await super()._rm(path, recursive=recursive, batch_size=batch_size, **kwargs)
            return
        self._made.clear()
        found = await self._expand_path(path, recursive=False)
        try:
            await (await self._session()).rm(found, recursive=recursive)
        except FailedError:
            for missing in found:
                if not await self._exists(missing):
                    raise NotFoundError(f"cannot remove '{missing}': it does not exist; check the name") from None
            raise

    async def _mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if await self._exists(path):
            raise ExistsError(f"'{path}' exists; use makedirs with exist_ok=True")
        await (await self._session()).mkdir(path, parents=create_parents)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if path in ("", "/"):
            return
        if not exist_ok and await self._exists(path):
            raise ExistsError(f"'{path}' exists; choose another name, or exist_ok=True")
        await (await self._session()).mkdir(path, parents=True)

    async def _rmdir(self, path: str) -> None:
        await self._rm_file(path)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        sync(self.loop, self._rmdir, path)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Creates an empty file, also in place of another."""
        if not truncate and self.exists(path):
            raise UsageError(f"'{path}' exists, and its time cannot be changed; use truncate=True")
        self.pipe_file(path, b"")

    def modified(self, path: str) -> datetime:
        """Returns the modification time."""
        found = self.info(path).get("mtime")
        if found is None:
            raise FailedError(f"'{path}' has no modification time")
        return datetime.fromtimestamp(found, UTC)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> SabulFile:
        return SabulFile(
            self, path, mode, block_size or _BLOCK_BYTES, autocommit, cache_options=cache_options, **kwargs
        )


def url_of(address: str | None, path: str) -> str:
    """Returns the URL of a path at the server of an address; None stands for the server of the ticket file."""
    if not address:
        return f"{_SCHEME}/{path}"
    if not address.startswith(_SCHEME):
        address = _SCHEME + address.partition(":")[0]
    return f"{address.rstrip('/')}/{path}"


def _merged(
    paths: list[str], starts: list[int | None], ends: list[int | None], gap: int
) -> list[tuple[str, int | None, int | None, list[tuple[int, int, int | None]]]]:
    """Returns the ranges to read, each with its parts: number of the request, begin in the range, and length.

    Raises ValueError if the lists have different lengths. Ranges from the end of a file are not merged.
    """
    merged: list[tuple[str, int | None, int | None, list[tuple[int, int, int | None]]]] = []
    counted: list[tuple[str, int, int, int]] = []
    for at, (path, start, end) in enumerate(zip(paths, starts, ends, strict=True)):
        if end is None or end < 0 or (start or 0) < 0:
            merged.append((path, start, end, [(at, 0, None)]))
        else:
            counted.append((path, start or 0, max(end, start or 0), at))
    last: tuple[str, int, int] | None = None
    for path, start, end, at in sorted(counted):
        if last and last[0] == path and start <= last[2] + gap and end - last[1] <= _MERGED_BYTES:
            parts = merged.pop()[3]
            last = (path, last[1], max(last[2], end))
        else:
            parts = []
            last = (path, start, end)
        parts.append((at, start - last[1], end - start))
        merged.append((*last, parts))
    return merged


async def _followed(transfer: aio.Transfer, callback: Callback) -> None:
    """Runs a transfer and reports its bytes."""
    if callback is DEFAULT_CALLBACK:
        await transfer
        return
    async for progress in transfer:
        _report(progress, callback)


def _report(progress: Progress, callback: Callback) -> None:
    if progress.bytes_total is not None:
        callback.set_size(progress.bytes_total)
    callback.absolute_update(progress.bytes)


class SabulFile(AbstractBufferedFile):  # type: ignore[misc]
    """An open file. Written bytes are sent while the file is open; `close` returns when the server has them all.

    The file gets its name only at the end, and a file that is discarded leaves nothing.
    """

    fs: SabulFileSystem

    def __init__(self, fs: SabulFileSystem, path: str, mode: str, *args: Any, **kwargs: Any) -> None:
        if mode not in ("rb", "wb", "xb"):
            raise UsageError(f"mode '{mode}' is not possible; use rb, wb or xb")
        if mode == "xb" and fs.exists(path):
            raise ExistsError(f"'{path}' exists; choose another name, or mode wb")
        self._upload: Upload | None = None
        is_parquet = mode == "rb" and path.endswith((".parquet", ".pq"))
        tail = b""
        if is_parquet:
            self._details, tail = sync(fs.loop, fs._info_with_tail, path)
        super().__init__(fs, path, mode, *args, **kwargs)
        # All parts that are read are of the version of this time.
        self._mtime_ns: int | None = self.details.get("mtime_ns") if mode == "rb" else None
        if is_parquet:
            version = (self.path, self.size, self._mtime_ns)
            self.cache = ParquetCache(
                self.blocksize, self._fetch_range, self.size, self._read_parts, fs._footers, version, tail
            )

    def _fetch_range(self, start: int, end: int) -> bytes:
        length = max(end - start, 0)
        found: bytes = sync(self.fs.loop, self.fs._read_soon, self.path, start, length, self._mtime_ns)
        return found

    def _read_parts(self, ranges: Sequence[tuple[int, int]], room: int) -> Stream:
        """Starts to read ranges, in one request."""
        return Stream(self.fs.loop, self._iter_parts, ranges, room, self.fs._is_stream_awaited)

    async def _iter_parts(self, ranges: Sequence[tuple[int, int]]) -> AsyncGenerator[tuple[int, bytes | Error]]:
        session = await self.fs._session()
        wanted = [(self.path, start, end - start, self._mtime_ns) for start, end in ranges]
        try:
            async with aclosing(session._iter_as_seen(wanted)) as parts:
                async for part in parts:
                    yield part
        except UnreachableError:
            self.fs._lost(session)
            raise

    def close(self) -> None:
        """Closes the file; reads that are under way end."""
        if isinstance(getattr(self, "cache", None), ParquetCache):
            self.cache.stop()
        super().close()

    def _initiate_upload(self) -> None:
        session: aio.Session = sync(self.fs.loop, self.fs._session)
        path, options = os.fsencode(self.path), checked(self.fs._options, Options)
        self._upload = Upload(*session._inner.upload(path, options, True))

    def _upload_chunk(self, final: bool = False) -> bool:
        if self._upload is None:
            raise FailedError(f"'{self.path}' is discarded already")
        self._upload.write(self.buffer.getvalue())
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Gives a file its name."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.finish()

    def discard(self) -> None:
        """Ends the upload; the file does not appear."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.discard()
