"""Open files of sessions, blocking and of asyncio."""

from __future__ import annotations

import asyncio
import io
import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, in_child

import sabul
from sabul import _window, aio
from sabul._aiofile import Reader


def made(path: Path, size: int, seed: int = 1) -> bytes:
    content = random.Random(seed).randbytes(size)
    path.write_bytes(content)
    return content


class Counted:
    """Counts the requests for ranges of a session."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.pieces: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open_ranges(self, ranges: list[Any], *rest: Any) -> Any:
        self.pieces.append(len(ranges))
        return self.inner.open_ranges(ranges, *rest)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_window, "_PIECE_BYTES", 2**12)
    monkeypatch.setattr(_window, "_PIECE_BYTES_MAX", 2**14)
    monkeypatch.setattr(_window, "_PIECES_MAX", 30)


def test_a_reader_is_a_file_object(session: sabul.Session, folder: Path) -> None:
    content = made(folder / "a", 3_000_000)
    with session.open(f"{folder.name}/a") as file:
        assert isinstance(file, io.BufferedReader) and file.readable() and file.seekable() and not file.writable()
        assert file.name == f"{folder.name}/a"
        assert file.read(10) == content[:10] and file.tell() == 10
        assert file.seek(-5, os.SEEK_END) == 2_999_995 and file.read() == content[-5:] and file.read(1) == b""
        file.seek(1000)
        buffer = bytearray(700_000)
        assert file.readinto(buffer) == 700_000 and buffer == content[1000:701_000]
        file.seek(4_000_000)
        assert file.read() == b""
        file.seek(0)
        assert file.read() == content
    with pytest.raises(ValueError, match="closed"):
        file.read()
    (folder / "text").write_text("one\ntwo\n")
    with io.TextIOWrapper(session.open(f"{folder.name}/text")) as lines:
        assert [line.strip() for line in lines] == ["one", "two"]
    (folder / "empty").write_bytes(b"")
    with session.open(f"{folder.name}/empty") as file:
        assert file.read() == b""


def test_reads_at_random_places_are_those_of_a_local_file(
    session: sabul.Session, folder: Path, small_pieces: None
) -> None:
    local = io.BytesIO(made(folder / "a", 400_000))
    draw = random.Random(3)
    raw: Any = session.open(f"{folder.name}/a").detach()
    for _ in range(300):
        if draw.random() < 0.4:
            place = draw.choice([0, local.tell() + draw.randrange(20_000), draw.randrange(410_000)])
            assert raw.seek(place) == local.seek(place)
        wanted = draw.choice([1, 100, 5000, 60_000])
        found = raw.read(wanted)
        assert found == local.read(len(found)) and (found or local.tell() >= 400_000)
        assert raw.tell() == local.tell()
    raw.seek(7)
    assert raw.readall() == local.getvalue()[7:]


def test_a_sequential_read_needs_few_requests_and_a_seek_reads_little(
    session: sabul.Session, folder: Path, tmp_path: Path
) -> None:
    content = made(folder / "a", 12_000_000)
    counted: Any = Counted(session._inner)
    session._inner = counted
    with session.open(f"{folder.name}/a") as file, (tmp_path / "b").open("wb") as copy:
        shutil.copyfileobj(file, copy)
    assert (tmp_path / "b").read_bytes() == content
    assert counted.pieces[0] == 1 and len(counted.pieces) == 2
    counted.pieces.clear()
    with session.open(f"{folder.name}/a") as file:
        for place in (6_000_000, 1_000_000, 11_000_000):
            file.seek(place)
            assert file.read(100) == content[place : place + 100]
    assert counted.pieces == [1, 1, 1]


def test_a_session_reads_more_files_in_turn_than_the_server_answers_requests(
    session: sabul.Session, folder: Path, small_pieces: None
) -> None:
    contents = [made(folder / f"f{at}", 600_000, at) for at in range(24)]
    files: list[Any] = [session.open(f"{folder.name}/f{at}").detach() for at in range(24)]
    for start in range(0, 600_000, 30_000):
        for file, content in zip(files, contents, strict=True):
            found = b""
            while len(found) < 30_000:
                found += file.read(30_000 - len(found))
            assert found == content[start : start + 30_000]


def test_a_reader_sees_one_version_and_only_files(session: sabul.Session, folder: Path) -> None:
    made(folder / "a", 2_000_000)
    with session.open(f"{folder.name}/a") as file:
        file.read(100)
        made(folder / "new", 2_000_000, 2)
        (folder / "new").rename(folder / "a")
        with pytest.raises(sabul.FailedError) as caught:
            file.read()
        assert caught.value.code == "changed"
    os.symlink("a", folder / "link")
    with session.open(f"{folder.name}/link") as file:
        assert len(file.read()) == 2_000_000
    with pytest.raises(sabul.NotFoundError):
        session.open(f"{folder.name}/none")
    with pytest.raises(sabul.FailedError, match="directory"):
        session.open(folder.name)
    with pytest.raises(sabul.UsageError, match="mode 'r'"):
        session.open(f"{folder.name}/a", "r")  # type: ignore[call-overload]


def test_a_written_file_appears_when_it_is_closed(session: sabul.Session, folder: Path) -> None:
    pieces = [random.Random(size).randbytes(size) for size in (1, 100, 300_000, 5_000_000)]
    with session.open(f"{folder.name}/d/a", "wb") as file:
        assert isinstance(file, io.BufferedWriter) and file.writable() and not file.readable()
        for piece in pieces:
            assert file.write(piece) == len(piece)
        assert not (folder / "d" / "a").exists()
    assert (folder / "d" / "a").read_bytes() == b"".join(pieces) and file.closed
    with io.TextIOWrapper(session.open(f"{folder.name}/text", "wb"), encoding="utf-8") as text:
        print("a line", file=text)
    assert (folder / "text").read_text() == "a line\n"
    with session.open(f"{folder.name}/empty", "wb"):
        pass
    assert (folder / "empty").read_bytes() == b""


def sent_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_writer_sends_as_it_goes_and_waits(session: sabul.Session, folder: Path) -> None:
    began = time.monotonic()
    with session.open(f"{folder.name}/a", "wb", bwlimit_bps=80_000_000) as file:
        for _ in range(96):
            file.write(bytes(250_000))
        # 24 MB at 10 MB/s. Buffers of the sender take some 9 MB at once.
        assert time.monotonic() - began > 0.7 and not (folder / "a").exists() and sent_bytes(folder) > 1_000_000
    assert (folder / "a").stat().st_size == 24_000_000


def test_an_exception_leaves_no_file(session: sabul.Session, folder: Path) -> None:
    (folder / "old").write_text("old")
    for name in ("new", "old"):
        with pytest.raises(LookupError), session.open(f"{folder.name}/{name}", "wb") as file:
            file.write(bytes(2_000_000))
            raise LookupError
        assert file.closed
    with session.open(f"{folder.name}/new", "wb") as file:
        file.write(b"some")
        file.discard()
    abandoned = session.open(f"{folder.name}/new", "wb")
    abandoned.write(bytes(2_000_000))
    with pytest.warns(ResourceWarning, match="not closed"):
        del abandoned
    # A forked process sends nothing of the buffer.
    with session.open(f"{folder.name}/forked", "wb") as file:
        file.write(b"some")
        assert in_child(lambda: file.discard()) == 0
        file.write(b"more")
    assert (folder / "forked").read_bytes() == b"some" + b"more"
    (folder / "forked").unlink()
    # The session is of use afterwards.
    session.put_bytes(b"x", f"{folder.name}/last")
    assert sorted(path.name for path in folder.iterdir()) == ["last", "old"]
    assert (folder / "old").read_text() == "old"


def test_an_interrupted_close_leaves_no_file(
    session: sabul.Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "old").write_text("old")
    for name in ("new", "old"):
        for finish in (io.BufferedWriter.close, io.BufferedWriter.flush):
            file = session.open(f"{folder.name}/{name}", "wb")
            file.write(b"some")

            # Ctrl-C while Python runs, before the bytes are sent.
            def interrupted(_: bytes) -> None:
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(file._raw._upload, "write", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    getattr(file, finish.__name__)()
            with suppress(sabul.Error):
                file.close()
    session.put_bytes(b"x", f"{folder.name}/last")
    assert sorted(path.name for path in folder.iterdir()) == ["last", "old"]
    assert (folder / "old").read_text() == "old"


def write_all(file: io.BufferedWriter) -> None:
    for _ in range(100):
        file.write(bytes(500_000))


def test_a_writer_raises_the_error_of_the_server(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start("--read-only")
    with sabul.connect(ticket_file=server.ticket) as session:
        with pytest.raises(sabul.Error, match="lets files be read") as caught, session.open("a", "wb") as file:
            write_all(file)
        assert caught.value.code != "usage"
        # A caller that goes on after the error gets the error again, not a silent loss.
        file = session.open("b", "wb")
        with pytest.raises(sabul.Error, match="lets files be read"):
            write_all(file)
        with pytest.raises(sabul.Error, match="lets files be read"):
            file.close()
        assert file.closed

    async def act() -> None:
        async with await aio.connect(ticket_file=server.ticket) as session:
            file = await session.open("c", "wb")
            with pytest.raises(sabul.Error, match="lets files be read"):
                for _ in range(100):
                    await file.write(bytes(500_000))
            with pytest.raises(sabul.Error, match="lets files be read"):
                await file.close()

    asyncio.run(act())
    assert list(server.root.iterdir()) == []


def test_files_of_asyncio_are_read_and_written(server: Server, folder: Path) -> None:
    content = made(folder / "a", 3_000_000)
    base = folder.name

    async def act() -> None:
        async with await aio.connect(ticket_file=server.ticket) as session:
            async with session.open(f"{base}/a") as file:
                assert await file.read(10) == content[:10] and await file.tell() == 10
                assert await file.seek(-5, os.SEEK_END) == 2_999_995 and await file.read() == content[-5:]
                assert await file.read(1) == b""
                await file.seek(1000)
                assert await file.read(700_000) == content[1000:701_000]
                assert await file.read() == content[701_000:]
            with pytest.raises(ValueError, match="closed"):
                await file.read()
            async with session.open(f"{base}/b", "wb") as written:
                for at in range(0, len(content), 100_000):
                    assert await written.write(content[at : at + 100_000]) == 100_000
                assert not (folder / "b").exists()
            opened = await session.open(f"{base}/c", "wb")
            await opened.write(memoryview(content))
            await opened.close()
            await opened.close()
            with pytest.raises(sabul.NotFoundError):
                await session.open(f"{base}/none")
            with pytest.raises(LookupError):
                async with session.open(f"{base}/d", "wb") as written:
                    await written.write(bytes(2_000_000))
                    raise LookupError
            async with asyncio.timeout(20):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5), session.open(f"{base}/e", "wb", bwlimit_bps=2_000_000) as written:
                        await written.write(bytes(4_000_000))
                        await written.write(bytes(4_000_000))
                await session.put_bytes(b"x", f"{base}/f")
                interrupted = await session.open(f"{base}/g", "wb", bwlimit_bps=2_000_000)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        for _ in range(10):
                            await interrupted.write(bytes(4_000_000))
                with pytest.raises(sabul.FailedError, match="interrupted"):
                    await interrupted.close()

    asyncio.run(act())
    assert (folder / "b").read_bytes() == content == (folder / "c").read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "c", "f"]


def test_many_files_of_asyncio_take_turns_with_requests_for_ranges(
    server: Server, folder: Path, small_pieces: None
) -> None:
    contents = [made(folder / f"f{at}", 600_000, at) for at in range(20)]

    async def read(file: Reader, content: bytes) -> None:
        for start in range(0, 600_000, 50_000):
            assert await file.read(50_000) == content[start : start + 50_000]

    async def act() -> None:
        async with asyncio.timeout(60), await aio.connect(ticket_file=server.ticket) as session:
            files = [await session.open(f"{folder.name}/f{at}") for at in range(20)]
            # In turn, so that each file has a request that waits.
            for file, content in zip(files, contents, strict=True):
                assert await file.read(9000) == content[:9000] and await file.read(9000) == content[9000:18_000]
            wanted = [(f"{folder.name}/f0", at, 10) for at in range(0, 1000, 100)]
            for _ in range(3):
                assert len([part async for part in session.iter_ranges(wanted)]) == 10
            for file in files:
                await file.seek(0)
            await asyncio.gather(*(read(file, content) for file, content in zip(files, contents, strict=True)))
            for file in files:
                await file.close()

    asyncio.run(act())
