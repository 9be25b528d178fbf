"""File system of fsspec: its own abstract tests, and the usual readers."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
import fsspec.tests.abstract as abstract
import pandas
import pytest
from conftest import Server, program
from fsspec.asyn import sync
from fsspec.callbacks import Callback

import sabul
from sabul import _parquet, _stream
from sabul._parquet import ParquetCache
from sabul._stream import Stream
from sabul.fs import SabulFile, SabulFileSystem, _merged


class SabulFixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    """A file system over a server on loopback."""

    @pytest.fixture
    def fs(self, server: Server) -> SabulFileSystem:
        return SabulFileSystem(ticket_file=str(server.ticket))

    @pytest.fixture
    def fs_path(self, folder: Path) -> str:
        return folder.name

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *parts: "/".join(str(part) for part in parts)


class TestCopy(abstract.AbstractCopyTests, SabulFixtures):  # type: ignore[misc]
    pass


class TestGet(abstract.AbstractGetTests, SabulFixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, SabulFixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, SabulFixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, SabulFixtures):  # type: ignore[misc]
    pass


@pytest.fixture
def fs(server: Server) -> SabulFileSystem:
    found = fsspec.filesystem("sabul", ticket_file=str(server.ticket))
    assert isinstance(found, SabulFileSystem)
    return found


def test_urls_name_server_and_path() -> None:
    kwargs, strip = SabulFileSystem._get_kwargs_from_urls, SabulFileSystem._strip_protocol
    for url, address, path in [
        ("sabul://host:4850/a/b", "sabul://host:4850", "a/b"),
        ("sabul://me@host/a/", "sabul://me@host", "a"),
        ("sabul://host//etc/x", "sabul://host", "/etc/x"),
        ("sabul://[::1]:9/a", "sabul://[::1]:9", "a"),
        ("sabul:///a", None, "a"),
        ("sabul://host", "sabul://host", ""),
    ]:
        assert kwargs(url) == ({} if address is None else {"address": address}), url
        assert strip(url) == path, url
        if url.endswith("/"):
            continue
        for given in (url, path):
            again = SabulFileSystem(address, skip_instance_cache=True).unstrip_protocol(given)
            assert (kwargs(again), strip(again)) == (kwargs(url), path)
    far = SabulFileSystem("me@far:", skip_instance_cache=True)
    assert far.unstrip_protocol("a/b") == "sabul://me@far/a/b"
    assert strip("a//b/") == "a//b" and strip("/") == "/" and strip(["x/", "y"]) == ["x", "y"]


def test_ranges_of_several_files_come_together(fs: SabulFileSystem, folder: Path) -> None:
    contents = {f"{folder.name}/{name}": random.Random(name).randbytes(50_000) for name in "abc"}
    fs.pipe(contents)
    paths = [path for path in contents for _ in range(10)]
    starts = [at * 1000 for _ in contents for at in range(10)]
    ends = [start + 333 for start in starts]
    expected = [contents[path][start:end] for path, start, end in zip(paths, starts, ends, strict=True)]
    assert fs.cat_ranges(paths, starts, ends) == expected
    # A range of a missing file fails alone.
    found = fs.cat_ranges([*paths, f"{folder.name}/none"], [*starts, 0], [*ends, 9])
    assert found[:-1] == expected
    assert isinstance(found[-1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([f"{folder.name}/none"], [0], [9], on_error="raise")
    draw = random.Random(6)
    starts = [draw.randrange(50_000) for _ in paths]
    ends = [start + draw.randrange(3000) for start in starts]
    expected = [contents[path][start:end] for path, start, end in zip(paths, starts, ends, strict=True)]
    assert fs.cat_ranges(paths, starts, ends) == expected
    with pytest.raises(ValueError, match="zip"):
        fs.cat_ranges(paths, [0], ends)
    first = next(iter(contents))
    for start, end in [
        (None, None),
        (5, None),
        (None, 7),
        (-9, None),
        (-9, -2),
        (3, -3),
        (9, 9),
        (49_990, 60_000),
        (70_000, None),
    ]:
        assert fs.cat_file(first, start, end) == contents[first][start:end], (start, end)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of ranges of each request from now on."""
    found: list[int] = []
    read_ranges = SabulFileSystem._read_ranges

    async def counted(self: SabulFileSystem, ranges: list[Any]) -> list[Any]:
        found.append(len(ranges))
        return await read_ranges(self, ranges)

    monkeypatch.setattr(SabulFileSystem, "_read_ranges", counted)
    read_parts = SabulFile._read_parts

    def counted_parts(self: SabulFile, ranges: Sequence[tuple[int, int]], room: int) -> Stream:
        found.append(len(ranges))
        return read_parts(self, ranges, room)

    monkeypatch.setattr(SabulFile, "_read_parts", counted_parts)
    return found


def test_reads_at_about_the_same_time_share_a_request(fs: SabulFileSystem, folder: Path, requests: list[int]) -> None:
    contents = {f"{folder.name}/{number}": random.Random(number).randbytes(10_000 + number) for number in range(50)}
    fs.pipe(contents)

    async def act() -> list[bytes]:
        reads = [fs._cat_file(path) for path in contents]
        cancelled = asyncio.ensure_future(fs._cat_file(next(iter(contents))))
        found = asyncio.gather(*reads)
        await asyncio.sleep(0)
        cancelled.cancel()
        return await found

    assert sync(fs.loop, act) == list(contents.values())
    assert requests == [51]
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"{folder.name}/none")


def test_near_ranges_come_in_one_transfer() -> None:
    paths, starts, ends = ["a", "b", "a", "a", "a"], [100, 0, 0, 10_000, -5], [200, 10, 50, 10_100, None]
    merged = _merged(paths, starts, ends, 60)  # type: ignore[arg-type]
    assert merged == [
        ("a", -5, None, [(4, 0, None)]),
        ("a", 0, 200, [(2, 0, 50), (0, 100, 100)]),
        ("a", 10_000, 10_100, [(3, 0, 100)]),
        ("b", 0, 10, [(1, 0, 10)]),
    ]
    far = _merged(["a", "a"], [0, 2**24], [1, 2**24 + 1], 2**25)
    assert len(far) == 2


def test_an_open_file_seeks_and_reads(fs: SabulFileSystem, folder: Path) -> None:
    content = random.Random(4).randbytes(300_000)
    (folder / "a").write_bytes(content)
    with fs.open(f"{folder.name}/a", "rb", block_size=50_000) as file:
        assert file.read(10) == content[:10]
        file.seek(-1000, os.SEEK_END)
        assert file.read() == content[-1000:]
        file.seek(123_456)
        assert file.read(100_000) == content[123_456:223_456]
    with fs.open(f"{folder.name}/a", "r", encoding="latin-1", newline="") as text:
        assert text.read() == content.decode("latin-1")


@pytest.mark.parametrize("name", ["a", "a.parquet", "link"])
def test_the_parts_of_an_open_file_are_of_one_version(fs: SabulFileSystem, folder: Path, name: str) -> None:
    path, new = folder / ("a" if name == "link" else name), folder / "new"
    path.write_bytes(b"old" * 100_000)
    (folder / "link").symlink_to("a")
    place = f"{folder.name}/{name}"
    for content in (b"new" * 100_000, b"short"):
        with fs.open(place, block_size=10_000) as file:
            before = file.read(9)
            new.write_bytes(content)
            new.rename(path)
            # The bytes that are here already are those of the old version.
            with pytest.raises(sabul.FailedError, match="open it again"):
                assert before + file.read() == b""
        with fs.open(place, block_size=10_000) as file:
            assert file.read() == content == fs.cat_file(place)


def test_a_written_file_appears_at_its_end(fs: SabulFileSystem, folder: Path) -> None:
    content = random.Random(5).randbytes(700_000)
    with fs.open(f"{folder.name}/a", "wb", block_size=100_000) as file:
        for at in range(0, len(content), 70_000):
            file.write(content[at : at + 70_000])
        assert not (folder / "a").exists()
    assert (folder / "a").read_bytes() == content
    with pytest.raises(FileExistsError):
        fs.open(f"{folder.name}/a", "xb")
    with fs.transaction:
        with fs.open(f"{folder.name}/b", "wb") as file:
            file.write(b"x")
        assert not (folder / "b").exists()
    assert (folder / "b").read_bytes() == b"x"


def test_a_discarded_file_leaves_nothing(fs: SabulFileSystem, folder: Path) -> None:
    with pytest.raises(LookupError), fs.transaction:
        file = fs.open(f"{folder.name}/a", "wb", block_size=1000)
        file.write(bytes(10_000))
        file.close()
        raise LookupError
    assert fs.ls(folder.name, detail=False) == []


def test_names_are_listed_found_moved_and_removed(fs: SabulFileSystem, folder: Path) -> None:
    base = folder.name
    fs.makedirs(f"{base}/d/e")
    fs.pipe({f"{base}/d/a.csv": b"1", f"{base}/d/e/b.csv": b"22", f"{base}/d/c.txt": b"333"})
    assert sorted(fs.glob(f"{base}/**/*.csv")) == [f"{base}/d/a.csv", f"{base}/d/e/b.csv"]
    assert [(at, sorted(dirs), sorted(files)) for at, dirs, files in fs.walk(f"{base}/d")] == [
        (f"{base}/d", ["e"], ["a.csv", "c.txt"]),
        (f"{base}/d/e", [], ["b.csv"]),
    ]
    assert fs.du(base) == 6 and fs.isdir(f"{base}/d") and fs.isfile(f"{base}/d/a.csv")
    assert fs.info(f"{base}/d/c.txt")["size"] == 3 and fs.modified(f"{base}/d/c.txt").year >= 2020
    fs.mv(f"{base}/d/a.csv", f"{base}/z.csv")
    assert fs.exists(f"{base}/z.csv") and not fs.exists(f"{base}/d/a.csv")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{base}/d")
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{base}/none")
    fs.rm(f"{base}/d", recursive=True)
    for recursive in (False, True):
        with pytest.raises(FileNotFoundError):
            fs.rm(f"{base}/d", recursive=recursive)
    fs.rm(f"{base}/*.csv")
    assert fs.ls(base) == []


def test_a_name_like_the_protocol_is_a_name(fs: SabulFileSystem, folder: Path) -> None:
    # The root of the server: names in directories have another beginning.
    root = folder.parent
    (root / "important").write_bytes(b"important")
    (root / "sabul::important").write_bytes(b"other")
    names = sorted(name for name in fs.ls("", detail=False) if name.endswith("important"))
    assert names == ["./sabul::important", "important"]
    assert [fs.cat(name) for name in names] == [b"other", b"important"]
    fs.rm(names[0])
    assert not (root / "sabul::important").exists()
    (root / "important").unlink()


def test_names_with_signs_of_patterns_are_names(fs: SabulFileSystem, folder: Path) -> None:
    for name in ("a*b", "[x]", "{y}"):
        fs.pipe_file(f"{folder.name}/{name}", name.encode())
        assert fs.cat_file(f"{folder.name}/{name}") == name.encode()
        assert fs.info(f"{folder.name}/{name}")["size"] == 3
    (folder / "aXb").write_text("other")
    (folder / "a*b").unlink()
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"{folder.name}/a*b")


def test_a_link_has_the_size_of_its_target(fs: SabulFileSystem, folder: Path) -> None:
    (folder / "a").write_bytes(bytes(1000))
    os.symlink("a", folder / "link")
    info = fs.info(f"{folder.name}/link")
    assert (info["type"], info["size"], info["islink"]) == ("file", 1000, True)
    with fs.open(f"{folder.name}/link") as file:
        assert len(file.read()) == 1000


def test_a_link_to_a_directory_is_a_directory_that_no_walk_follows(fs: SabulFileSystem, folder: Path) -> None:
    base = folder.name
    fs.pipe(f"{base}/d/a", b"x")
    os.symlink("..", folder / "d" / "up")
    os.symlink("nowhere", folder / "d" / "broken")
    assert fs.isdir(f"{base}/d/up")
    assert not fs.isdir(f"{base}/d/broken")
    assert fs.ls(f"{base}/d/up", detail=False) == [f"{base}/d/up/d"]
    assert f"{base}/d/a" in fs.find(base)
    assert len(fs.find(base)) == 3


def test_a_path_below_a_file_does_not_exist(fs: SabulFileSystem, folder: Path) -> None:
    (folder / "a").write_text("a")
    assert not fs.exists(f"{folder.name}/a/b")
    assert not fs.exists(f"{folder.name}/none")


def test_the_callback_follows_a_file(fs: SabulFileSystem, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3_000_000))
    callback = Callback()
    fs.put_file(str(tmp_path / "a"), f"{folder.name}/a", callback=callback)
    assert callback.size == callback.value == 3_000_000
    callback = Callback()
    fs.get_file(f"{folder.name}/a", str(tmp_path / "b"), callback=callback)
    assert callback.value == 3_000_000 == (tmp_path / "b").stat().st_size


def test_a_lost_session_is_replaced(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start()
    (server.root / "a").write_text("x")
    fs = SabulFileSystem(ticket_file=str(server.ticket), skip_instance_cache=True)
    assert fs.cat_file("a") == b"x"
    first = fs._opened
    assert first is not None
    fs.loop.call_soon_threadsafe(lambda: None)
    server.process.terminate()
    server.process.wait(20)
    with pytest.raises(sabul.UnreachableError):
        fs.cat_file("a")
    assert fs._opened is not first


@pytest.fixture
def table() -> Iterator[Any]:
    pandas = pytest.importorskip("pandas")
    yield pandas.DataFrame({"a": range(100_000), "b": [f"row {at}" for at in range(100_000)]})


def test_pandas_reads_and_writes_parquet_by_url(
    server: Server, folder: Path, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    url = f"sabul:///{folder.name}/x.parquet"
    options = {"ticket_file": str(server.ticket)}
    table.to_parquet(url, storage_options=options)
    assert pandas.read_parquet(url, storage_options=options).equals(table)
    monkeypatch.setenv("SABUL_TICKET_FILE", str(server.ticket))
    assert pandas.read_parquet(url, columns=["a"])["a"].sum() == table["a"].sum()


def test_pandas_reads_parquet_through_ssh(ssh: str, tmp_path: Path, table: Any) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table.to_parquet(tmp_path / "far" / "x.parquet")
    options = {"ssh": ssh, "remote_sabul": program()}
    assert pandas.read_parquet("sabul://me@host/x.parquet", storage_options=options).equals(table)
    absolute = f"sabul://me@host/{tmp_path}/far/x.parquet"
    assert pandas.read_parquet(absolute, columns=["a"], storage_options=options)["a"].sum() == table["a"].sum()


def test_other_readers_use_the_file_system(
    server: Server, folder: Path, fs: SabulFileSystem, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb, zarr = pytest.importorskip("duckdb"), pytest.importorskip("zarr")
    dataset = pytest.importorskip("pyarrow.dataset")
    dask = pytest.importorskip("dask.dataframe")
    monkeypatch.setenv("SABUL_TICKET_FILE", str(server.ticket))
    url = f"sabul:///{folder.name}/x.parquet"
    table.to_parquet(url)
    total = table["a"].sum()
    assert dataset.dataset(f"{folder.name}/x.parquet", filesystem=fs).count_rows() == len(table)
    assert dask.read_parquet(url)["a"].sum().compute(scheduler="threads") == total
    connection = duckdb.connect()
    connection.register_filesystem(fs)
    assert connection.sql(f"select sum(a) from '{url}'").fetchall() == [(total,)]
    store = zarr.storage.FsspecStore.from_url(f"sabul:///{folder.name}/a.zarr")
    array = zarr.create_array(store, shape=(200, 200), chunks=(100, 100), dtype="f4", overwrite=True)
    array[:] = 1.5
    assert zarr.open_array(store)[:].sum() == 60_000


def test_columns_of_a_parquet_file_come_ahead_in_few_requests(
    fs: SabulFileSystem, folder: Path, requests: list[int]
) -> None:
    draw = random.Random(8)
    columns = {f"c{at}": [draw.random() for _ in range(20_000)] for at in range(12)}
    table = pandas.DataFrame(columns)
    table.to_parquet(folder / "a.parquet", row_group_size=500, compression=None)
    found = pandas.read_parquet(f"{folder.name}/a.parquet", columns=["c2", "c7"], filesystem=fs)
    assert found.equals(table[["c2", "c7"]])
    # The footer and 80 chunks.
    assert len(requests) <= 20, requests
    assert pandas.read_parquet(f"{folder.name}/a.parquet", filesystem=fs).equals(table)
    content = (folder / "a.parquet").read_bytes()
    with fs.open(f"{folder.name}/a.parquet") as file:
        for _ in range(200):
            start = draw.randrange(len(content))
            length = draw.randrange(30_000)
            file.seek(start)
            assert file.read(length) == content[start : start + length]


def test_many_columns_take_turns(fs: SabulFileSystem, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_parquet, "_ROOM_BYTES", 2**16)
    monkeypatch.setattr(_stream, "_TURN_BYTES", 2**14)
    draw = random.Random(9)
    table = pandas.DataFrame({f"c{at}": [draw.random() for _ in range(20_000)] for at in range(40)})
    table.to_parquet(folder / "a.parquet", row_group_size=500, compression=None)
    began = time.monotonic()
    wanted = [f"c{at}" for at in range(0, 40, 2)]
    assert pandas.read_parquet(f"{folder.name}/a.parquet", columns=wanted, filesystem=fs).equals(table[wanted])
    assert time.monotonic() - began < 60


def test_chunks_whose_request_failed_are_read_again(folder: Path) -> None:
    file = folder / "a.parquet"
    pandas.DataFrame({name: range(4000) for name in "ab"}).to_parquet(file, row_group_size=100, compression=None)
    content = file.read_bytes()
    failing = True

    async def parts(ranges: Sequence[tuple[int, int]]) -> AsyncGenerator[tuple[int, bytes | sabul.Error]]:
        if failing:
            raise sabul.UnreachableError("gone")
        for at, (start, end) in enumerate(ranges):
            yield at, content[start:end]

    loop = fsspec.asyn.get_loop()

    def read(ranges: Sequence[tuple[int, int]], room: int) -> Stream:
        return Stream(loop, parts, ranges, room)

    cache = ParquetCache(1, lambda start, end: content[start:end], len(content), read, {}, None)
    for start in range(4, len(content) - 3000, 1000):
        failing = start % 3000 == 4
        assert cache._fetch(start, start + 2500) == content[start : start + 2500]


def test_files_that_only_have_the_name_of_parquet_are_read(fs: SabulFileSystem, folder: Path) -> None:
    contents = [b"", b"PAR1", b"x" * 100_000, b"x" * 100 + (50).to_bytes(4, "little") + b"PAR1"]
    for content in contents:
        (folder / "a.parquet").write_bytes(content)
        with fs.open(f"{folder.name}/a.parquet") as file:
            assert file.read() == content
            file.seek(1)
            assert file.read(20) == content[1:21]


def test_polars_reads_and_writes_open_files(fs: SabulFileSystem, folder: Path) -> None:
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({"a": range(1000), "b": [f"row {at}" for at in range(1000)]})
    place = f"{folder.name}/x.parquet"
    with fs.open(place, "wb") as file:
        table.write_parquet(file)
    with fs.open(place) as file:
        assert polars.read_parquet(file, columns=["b"]).equals(table[["b"]])
    scanned = polars.scan_pyarrow_dataset(pytest.importorskip("pyarrow.dataset").dataset(place, filesystem=fs))
    assert scanned.filter(polars.col("a") < 10).select(polars.col("a").sum()).collect().item() == 45


def test_xarray_reads_and_writes_a_zarr_store_by_url(server: Server, folder: Path) -> None:
    xarray, numpy = pytest.importorskip("xarray"), pytest.importorskip("numpy")
    values = numpy.arange(6000.0).reshape(60, 100)
    data = xarray.Dataset({"t": (("y", "x"), values)}, coords={"y": range(60)})
    where = {"storage_options": {"ticket_file": str(server.ticket)}}
    url = f"sabul:///{folder.name}/t.zarr"
    data.chunk({"y": 20}).to_zarr(url, consolidated=False, **where)
    with xarray.open_zarr(url, consolidated=False, **where) as found:
        assert (found["t"].sel(y=slice(30, 35)).to_numpy() == values[30:36]).all()
