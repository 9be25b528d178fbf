"""Communication of Dask over streams of sabul."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.comm import core
from distributed.protocol import to_serialize
from distributed.security import Security

import sabul.comm

MIB = 1 << 20


@pytest.fixture(autouse=True)
def streams_within_this_machine() -> Iterator[None]:
    with dask.config.set({"sabul.comm.same-host": True}):
        yield


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the frames that this process sent as streams."""
    sizes: list[int] = []
    pieces = sabul.comm._pieces

    def counted(frames: Any) -> Iterator[bytes]:
        frames = list(frames)
        sizes.extend(memoryview(frame).nbytes for frame in frames)
        return pieces(frames)

    monkeypatch.setattr(sabul.comm, "_pieces", counted)
    return sizes


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


@asynccontextmanager
async def pair(listen: dict[str, Any] | None = None, connect: dict[str, Any] | None = None) -> AsyncIterator[list[Any]]:
    """A connection: the side that connected, and the side that listens."""
    accepted: asyncio.Queue[Any] = asyncio.Queue()
    async with core.listen("sabul://127.0.0.1:0", accepted.put, **(listen or {})) as listener:
        near = await core.connect(listener.contact_address, **(connect or {}))
        far = await accepted.get()
        try:
            yield [near, far]
        finally:
            near.abort()
            far.abort()


async def exchange(sender: Any, receiver: Any, message: Any) -> Any:
    _, received = await asyncio.gather(sender.write(message), receiver.read())
    return received


def table(seed: int, rows: int = 3 * MIB) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, rows, dtype=np.uint8)


def test_large_frames_of_the_side_that_connected_are_streams(streamed: list[int]) -> None:
    async def test() -> None:
        async with pair() as (near, far):
            message = {"op": "put", "a": to_serialize(table(1)), "b": to_serialize(table(2, 10)), "n": 7}
            received = await exchange(near, far, message)
            assert received["n"] == 7 and (received["a"] == table(1)).all() and (received["b"] == table(2, 10)).all()
            received["a"][0] = 1
            assert (await exchange(far, near, {"op": "thanks"})) == {"op": "thanks"}

    run(test)
    assert streamed == [3 * MIB]


def test_large_frames_of_the_listening_side_are_streams_from_the_second_message_on(streamed: list[int]) -> None:
    async def test() -> None:
        async with pair() as (near, far):
            for seed in range(4):
                received = await exchange(far, near, {"x": to_serialize(table(seed))})
                assert (received["x"] == table(seed)).all()
                # The connection for streams is made in the background.
                await asyncio.sleep(0.5)
                assert await exchange(near, far, ["next", seed]) == ("next", seed)

    run(test)
    assert streamed == [3 * MIB] * 3


def test_messages_of_every_size_and_both_directions_at_once_arrive_in_order(streamed: list[int]) -> None:
    sizes = [0, 1, MIB - 1, MIB, MIB + 1, 5 * MIB, 10, 2 * MIB, 3]

    async def send(comm: Any) -> None:
        for size in sizes:
            await comm.write({"x": [to_serialize(table(size, size)), to_serialize(table(1, 2 * size))], "size": size})

    async def receive(comm: Any) -> None:
        for size in sizes:
            message = await comm.read()
            assert message["size"] == size
            assert (message["x"][0] == table(size, size)).all() and (message["x"][1] == table(1, 2 * size)).all()

    async def test() -> None:
        async with pair() as (near, far):
            await asyncio.gather(send(near), send(far), receive(near), receive(far))

    run(test)
    # From the side that connected, at least.
    assert len(streamed) >= 8


def test_connections_of_a_process_share_a_session_which_ends_with_them() -> None:
    async def test() -> None:
        accepted: asyncio.Queue[Any] = asyncio.Queue()
        async with core.listen("sabul://127.0.0.1:0", accepted.put) as listener:
            comms = [await core.connect(listener.contact_address) for _ in range(12)]
            far = [await accepted.get() for _ in comms]
            await asyncio.gather(
                *(near.write({"x": to_serialize(table(seed))}) for seed, near in enumerate(comms)),
                *(read(side) for side in far),
            )
            assert len(sabul.comm._peers) == 1
            for comm in comms + far:
                comm.abort()
            gc.collect()
            assert len(sabul.comm._peers) == 0

    async def read(side: Any) -> None:
        await side.read()

    run(test)


def test_small_messages_make_no_session(streamed: list[int]) -> None:
    async def test() -> None:
        async with pair() as (near, far):
            assert await exchange(near, far, {"x": to_serialize(table(1, MIB // 2))})
            assert await exchange(far, near, {"x": to_serialize(table(1, MIB // 2))})
            assert not sabul.comm._peers

    run(test)
    assert not streamed


def test_processes_of_one_machine_use_tcp_unless_told_otherwise(streamed: list[int]) -> None:
    async def test() -> None:
        with dask.config.set({"sabul.comm.same-host": False}):
            async with pair() as (near, far):
                for _ in range(2):
                    assert (await exchange(near, far, {"x": to_serialize(table(1))}))["x"].nbytes == 3 * MIB
                    assert (await exchange(far, near, {"x": to_serialize(table(1))}))["x"].nbytes == 3 * MIB

    run(test)
    assert not streamed


def test_frames_use_tcp_if_no_stream_can_be_opened(streamed: list[int], caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with pair() as (near, far):
            ticket, _ = near.remote_info[sabul.comm._TICKET]
            # Nobody listens at port 1.
            near.remote_info[sabul.comm._TICKET] = [ticket, 1]
            for _ in range(2):
                assert (await exchange(near, far, {"x": to_serialize(table(1))}))["x"].nbytes == 3 * MIB
                assert (await exchange(far, near, {"x": to_serialize(table(1))}))["x"].nbytes == 3 * MIB

    with caplog.at_level(logging.WARNING, "sabul.comm"):
        run(test)
    assert not streamed
    # Once, not for each message.
    assert [record.message for record in caplog.records if "use TCP" in record.message].__len__() == 1


def test_a_peer_that_closes_during_a_stream_ends_the_message_with_an_error() -> None:
    async def test() -> None:
        async with pair() as (near, far):
            await exchange(near, far, {"x": to_serialize(table(1))})
            writing = asyncio.create_task(near.write({"x": to_serialize(table(1, 200 * MIB))}))
            reading = asyncio.create_task(far.read())
            await asyncio.sleep(0.3)
            assert not reading.done()
            reading.cancel()
            with pytest.raises(core.CommClosedError):
                await writing
            assert near.closed() and far.closed()

    run(test)


def test_a_cancelled_writer_ends_the_message_at_the_reader_with_an_error() -> None:
    async def test() -> None:
        async with pair() as (near, far):
            writing = asyncio.create_task(near.write({"x": to_serialize(table(1, 200 * MIB))}))
            reading = asyncio.create_task(far.read())
            await asyncio.sleep(0.3)
            assert not writing.done()
            writing.cancel()
            with pytest.raises(core.CommClosedError):
                await reading
            # Another connection works.
        async with pair() as (near, far):
            assert (await exchange(near, far, {"x": to_serialize(table(1))}))["x"].nbytes == 3 * MIB

    run(test)


def test_a_peer_that_closes_before_it_reads_ends_the_message_with_an_error() -> None:
    async def test() -> None:
        for is_near in (True, False):
            async with pair() as (near, far):
                await exchange(near, far, {"x": to_serialize(table(1))})
                await exchange(far, near, "ready")
                sender, receiver = (near, far) if is_near else (far, near)
                writing = asyncio.create_task(sender.write({"x": to_serialize(table(1))}))
                await asyncio.sleep(0.5)
                assert not writing.done()
                receiver.abort()
                with pytest.raises(core.CommClosedError):
                    await asyncio.wait_for(writing, 15)
                assert sender.closed()

    run(test)


def test_clusters_with_certificates_use_tls(streamed: list[int]) -> None:
    pytest.importorskip("cryptography")
    security = Security.temporary()
    listen, connect = security.get_listen_args("scheduler"), security.get_connection_args("client")
    assert connect["require_encryption"]

    async def test() -> None:
        async with pair(listen, connect) as (near, far):
            assert "peercert" in near.extra_info and near.peer_address.startswith("sabul://")
            assert (await exchange(near, far, {"x": to_serialize(table(1))}))["x"].nbytes == 3 * MIB

    run(test)
    assert streamed == [3 * MIB]


def test_a_cluster_that_requires_encryption_has_no_connections_without_certificates() -> None:
    async def test() -> None:
        async with pair() as (near, _):
            with pytest.raises(RuntimeError, match="encryption required"):
                await core.connect(near.peer_address, require_encryption=True)

    run(test)


def test_a_setting_that_is_no_range_of_ports_is_refused() -> None:
    async def test() -> None:
        with dask.config.set({"sabul.comm.ports": "many"}), pytest.raises(sabul.UsageError, match="'many'"):
            async with pair():
                pass

    run(test)


def test_a_cluster_computes_over_sabul(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_SABUL__COMM__SAME_HOST", "true")
    cluster: Any = LocalCluster(protocol="sabul://", n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        assert cluster.scheduler_address.startswith("sabul://")
        workers = list(client.scheduler_info()["workers"])
        assert len(workers) == 2 and all(worker.startswith("sabul://") for worker in workers)
        parts = client.scatter([table(seed) for seed in range(6)])
        # Each sum needs parts of both workers.
        sums = [client.submit(lambda a, b: int(a.sum()) + int(b.sum()), parts[at], parts[5 - at]) for at in range(6)]
        expected = [int(table(at).sum()) + int(table(5 - at).sum()) for at in range(6)]
        assert client.gather(sums) == expected
        client.replicate(parts, 2)
        assert all((found == table(seed)).all() for seed, found in enumerate(client.gather(parts)))
