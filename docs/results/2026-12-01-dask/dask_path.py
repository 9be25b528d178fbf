"""Both sides of run.sh: `make`, `far` and `near`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy

PORTS = {"tcp": 8786, "sabul": 8790}
PARTS, PART_BYTES = 16, 32 << 20
FILES, ROWS = 8, 4 << 20


def address() -> str:
    """Returns the address of this side."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((socket.gethostbyname("far"), 9))
        found: str = one.getsockname()[0]
    if found.startswith("127."):
        return socket.gethostbyname("far")
    return found


def workers(side: str, host: str) -> list[subprocess.Popen[bytes]]:
    """Starts two workers for each protocol."""
    started = []
    for protocol, port in PORTS.items():
        for number in (0, 1):
            command = [sys.executable, "-m", "distributed.cli.dask_worker", f"{protocol}://far:{port}"]
            options = ["--host", f"{protocol}://{host}", "--name", f"{side}{number}", "--nthreads", "1"]
            rest = ["--nworkers", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0"]
            started.append(subprocess.Popen([*command, *options, *rest], stdout=subprocess.DEVNULL, cwd="/tmp"))
    return started


def far() -> None:
    host = socket.gethostbyname("far")
    for protocol, port in PORTS.items():
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
        subprocess.Popen([*command, "--host", f"{protocol}://{host}", "--port", str(port)], cwd="/tmp")
    time.sleep(3)
    for one in workers("far", host):
        one.wait()


def part(number: int) -> numpy.ndarray:
    return numpy.random.default_rng(number).integers(0, 256, PART_BYTES, dtype=numpy.uint8)


def total(found: numpy.ndarray) -> int:
    return int(found[::4096].sum())


def moves(protocol: str, runs: int) -> None:
    """Moves arrays between the workers of both sides, and prints the seconds."""
    from distributed import Client, wait

    with Client(f"{protocol}://far:{PORTS[protocol]}", timeout=60) as client:
        client.wait_for_workers(4, timeout=60)
        for run in range(runs):
            for source, target in (("far", "near"), ("near", "far")):
                made = [
                    client.submit(part, 1000 * run + at, workers=[f"{source}{at % 2}"], pure=False)
                    for at in range(PARTS)
                ]
                wait(made)
                start = time.monotonic()
                sums = [
                    client.submit(total, one, workers=[f"{target}{at // 2 % 2}"], pure=False)
                    for at, one in enumerate(made)
                ]
                found = client.gather(sums)
                seconds = time.monotonic() - start
                assert found == [total(part(1000 * run + at)) for at in range(PARTS)]
                rate = PARTS * PART_BYTES * 8 / seconds / 1e6
                print(f"{protocol:5} {source} to {target}: {seconds:6.2f} s, {rate:4.0f} Mb/s", flush=True)
                del made, sums


def reads(work: Path, runs: int) -> None:
    """Sums a column of the remote tables on four local workers."""
    import dask
    import dask.dataframe
    from distributed import Client, LocalCluster

    names = [f"tables/{number}.parquet" for number in range(FILES)]
    s3 = {"key": "key", "secret": "secret-secret", "endpoint_url": "http://far:9000"}
    ways = {
        "sabul": ([f"sabul:///{name}" for name in names], {"ticket_file": str(work / "ticket")}),
        "s3": ([f"s3://{name}" for name in names], s3),
    }
    with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster:
        with Client(cluster) as client:
            for run in range(runs):
                for way, (urls, options) in ways.items():
                    client.restart()
                    start = time.monotonic()
                    table = dask.dataframe.read_parquet(urls, columns=["a"], storage_options=options)
                    found = table["a"].sum().compute()
                    seconds = time.monotonic() - start
                    assert found == sum(int(column(number).sum()) for number in range(FILES))
                    print(f"read_parquet {way:5}: {seconds:6.2f} s", flush=True)


def column(number: int) -> numpy.ndarray:
    return numpy.random.default_rng(number).integers(0, 2**62, ROWS, dtype=numpy.int64) >> 8


def make(work: Path) -> None:
    import pandas

    for number in range(FILES):
        values = column(number)
        table = pandas.DataFrame({"a": values, "b": values[::-1]})
        table.to_parquet(work / f"data/tables/{number}.parquet", compression=None, row_group_size=ROWS // 8)


def near(work: Path, runs: int) -> None:
    local = workers("near", address())
    try:
        for protocol in ("tcp", "sabul", "tcp", "sabul"):
            moves(protocol, runs)
        reads(work, runs)
    finally:
        for one in local:
            one.kill()
            one.wait()


if __name__ == "__main__":
    match sys.argv[1]:
        case "make":
            make(Path(sys.argv[2]))
        case "far":
            far()
        case _:
            os.environ.pop("SABUL_TICKET_FILE", None)
            near(Path(sys.argv[2]), int(sys.argv[3]))
