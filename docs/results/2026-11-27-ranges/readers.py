"""Times readers of Parquet and zarr over the path; see run.sh.

    readers.py make FOLDER
    readers.py read WORK RUNS
"""


import os
import pathlib
import statistics
import sys
import time

import duckdb
import fsspec
import numpy
import pandas
import pyarrow
import pyarrow.parquet
import zarr

GIB = int(os.environ.get("GIB", "10"))
COLUMNS, GROUP_ROWS = 100, 131_072
WANTED = ["c3", "c20", "c41", "c60", "c97"]
CHUNKS, CHUNK_BYTES = 1000, 64 << 10


def make(folder):
    draw = numpy.random.default_rng(1)
    names = [f"c{at}" for at in range(COLUMNS)]
    schema = pyarrow.schema([(name, pyarrow.int64()) for name in names])
    with pyarrow.parquet.ParquetWriter(folder / "t.parquet", schema, compression="none", use_dictionary=False) as writer:
        for _ in range(GIB * 1024 // COLUMNS):
            columns = [draw.integers(0, 2**62, GROUP_ROWS) for _ in names]
            writer.write_table(pyarrow.table(columns, names=names), row_group_size=GROUP_ROWS)
    array = zarr.create_array(str(folder / "z"), shape=(CHUNKS, CHUNK_BYTES), chunks=(1, CHUNK_BYTES), dtype="u1", compressors=None)
    array[:] = draw.integers(0, 256, (CHUNKS, CHUNK_BYTES), dtype="u1")


def timed(act):
    began = time.monotonic()
    result = act()
    return time.monotonic() - began, result


def show(name, seconds):
    values = " ".join(f"{value:.2f}" for value in seconds)
    print(f"{name}: median {statistics.median(seconds):.2f} s ({values})", flush=True)


def main():
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]))
        return
    work, runs = pathlib.Path(sys.argv[2]), int(sys.argv[3])
    while not (work / "t").exists():
        time.sleep(0.1)
    files = fsspec.filesystem("sabul", address="sabul://far:4900", ticket_file=str(work / "t"))
    size = files.info("t.parquet")["size"]
    metadata = pyarrow.parquet.read_metadata(work / "data" / "t.parquet")
    chunks = [
        metadata.row_group(group).column(int(name[1:])) for name in WANTED for group in range(metadata.num_row_groups)
    ]
    wanted = sum(chunk.total_compressed_size for chunk in chunks)
    print(f"file of {size / 2**30:.1f} GiB, {metadata.num_row_groups} row groups; 5 of 100 columns are {wanted / 2**20:.0f} MiB")
    table = pandas.read_parquet(work / "data" / "t.parquet", columns=WANTED)
    (work / "data" / "same").write_bytes(os.urandom(wanted))
    times = {name: [] for name in ("cat", "local", "pandas", "duckdb", "zarr")}
    for _ in range(runs):
        seconds, content = timed(lambda: files.cat_file("same"))
        assert len(content) == wanted
        del content
        times["cat"].append(seconds)
        seconds, _ = timed(lambda: pandas.read_parquet(work / "data" / "t.parquet", columns=WANTED))
        times["local"].append(seconds)
        seconds, found = timed(lambda: pandas.read_parquet("t.parquet", columns=WANTED, filesystem=files))
        assert found.equals(table)
        times["pandas"].append(seconds)
        del found
        connection = duckdb.connect()
        connection.register_filesystem(files)
        query = f"select sum({') , sum('.join(WANTED)}) from read_parquet('sabul:///t.parquet')"
        seconds, found = timed(lambda: connection.execute(query).fetchall())
        assert [int(value) for value in found[0]] == [int(table[name].astype(object).sum()) for name in WANTED]
        times["duckdb"].append(seconds)
        with zarr.config.set({"async.concurrency": 1000}):
            store = zarr.storage.FsspecStore(files, path="z", read_only=True)
            seconds, found = timed(lambda: zarr.open_array(store, mode="r")[:])
        assert found.nbytes == CHUNKS * CHUNK_BYTES
        times["zarr"].append(seconds)
    show("cat of the same bytes", times["cat"])
    show("read_parquet of the local file", times["local"])
    show("pandas.read_parquet", times["pandas"])
    show("duckdb, the sum of each of the columns", times["duckdb"])
    show("zarr, 1,000 chunks of 64 KiB", times["zarr"])
    bound = 1.2 * (statistics.median(times["cat"]) + statistics.median(times["local"]))
    print(f"bound of pandas: 1.2 x (cat + local) = {bound:.2f} s")


if __name__ == "__main__":
    main()
