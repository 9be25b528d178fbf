"""Sessions and copies of asyncio."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from conftest import Server

import sabul
from sabul import aio


def test_the_methods_are_coroutines(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 1000)
    base = folder.name

    async def act() -> None:
        async with await aio.connect(ticket_file=server.ticket) as session:
            assert (await session.put(tmp_path / "a", f"{base}/a")).files == 1
            assert await session.read(f"{base}/a", 254, 4) == bytes([254, 255, 0, 1])
            assert (await session.stat(f"{base}/a")).bytes == 256_000
            await session.mkdir(f"{base}/d")
            await session.mv(f"{base}/a", f"{base}/d/b")
            assert [entry.name for entry in await session.list(f"{base}/d")] == ["b"]
            assert (await session.get(f"{base}/d/b", tmp_path / "c")).bytes == 256_000
            await session.put_bytes(b"x", f"{base}/e")
            await session.rm([f"{base}/d", f"{base}/e"], recursive=True)
            assert await session.list(base) == []
            assert (await session.perf(bytes=100_000)).report.bytes == 100_000
            with pytest.raises(sabul.NotFoundError):
                await session.read(f"{base}/none")

    asyncio.run(act())


def test_many_reads_at_the_same_time_share_a_session(server: Server, folder: Path) -> None:
    content = bytes(range(256)) * 100
    (folder / "a").write_bytes(content)

    async def act() -> list[bytes]:
        async with await aio.connect(ticket_file=server.ticket) as session:
            return await asyncio.gather(*(session.read(f"{folder.name}/a", at, 10) for at in range(0, 4000, 100)))

    assert asyncio.run(act()) == [content[at : at + 10] for at in range(0, 4000, 100)]


def test_a_copy_is_an_iterator_of_its_progress(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(6_000_000))

    async def act() -> tuple[list[int], sabul.Report]:
        url = f"sabul:///{folder.name}/"
        copy = aio.copy(tmp_path / "a", url, ticket_file=server.ticket, bwlimit_bps=100_000_000)
        seen = [progress.bytes async for progress in copy]
        return seen, await copy

    seen, report = asyncio.run(act())
    assert len(seen) > 2 and seen == sorted(seen) and seen[-1] == report.bytes == 6_000_000


def test_the_event_loop_runs_during_a_copy(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(6_000_000))

    async def act() -> int:
        url = f"sabul:///{folder.name}/"
        copy = asyncio.ensure_future(
            _report(aio.copy(tmp_path / "a", url, ticket_file=server.ticket, bwlimit_bps=80_000_000))
        )
        ticks = 0
        while not copy.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert (await copy).bytes == 6_000_000
        return ticks

    assert asyncio.run(act()) > 10


async def _report(transfer: aio.Transfer) -> sabul.Report:
    return await transfer


def test_a_cancelled_task_cancels_its_transfer(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(20_000_000))

    async def act() -> None:
        async with await aio.connect(ticket_file=server.ticket) as session:
            transfer = session.put(tmp_path / "a", f"{folder.name}/b", bwlimit_bps=10_000_000)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_report(transfer), 0.5)
            await session.put_bytes(b"x", f"{folder.name}/c")

    asyncio.run(act())
    assert not (folder / "b").exists() and (folder / "c").exists()


def test_another_task_cancels_a_transfer(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(20_000_000))

    async def act() -> None:
        url = f"sabul:///{folder.name}/b"
        transfer = aio.copy(tmp_path / "a", url, ticket_file=server.ticket, bwlimit_bps=10_000_000)
        running = asyncio.ensure_future(_report(transfer))
        await asyncio.sleep(0.5)
        transfer.cancel()
        with pytest.raises(sabul.InterruptError) as caught:
            await running
        assert (caught.value.exit_code, caught.value.kind) == (130, "interrupted")

    asyncio.run(act())
    assert not (folder / "b").exists()


def test_a_loop_that_ends_early_cancels_its_copy(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(20_000_000))

    async def act() -> None:
        url = f"sabul:///{folder.name}/b"
        transfer = aio.copy(tmp_path / "a", url, ticket_file=server.ticket, bwlimit_bps=10_000_000)
        async for _ in transfer:
            break

    asyncio.run(act())
    assert not (folder / "b").exists()


def test_a_failed_copy_raises_in_both_forms(server: Server, tmp_path: Path) -> None:
    async def act() -> None:
        with pytest.raises(sabul.NotFoundError):
            await aio.copy(tmp_path / "none", "sabul:///", ticket_file=server.ticket)
        with pytest.raises(sabul.NotFoundError):
            async for _ in aio.copy("sabul:///none", tmp_path / "x", ticket_file=server.ticket):
                pass

    asyncio.run(act())
