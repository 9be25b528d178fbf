"""Times joins of two remote tables; see run.sh.

    join.py make FOLDER MIB
    join.py run SABUL WORK RUNS
"""

import json
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

import duckdb
import numpy
import pyarrow
import pyarrow.parquet

# Columns of eight bytes, the key among them, and rows of a row group of 16 MiB.
COLUMNS = 16
GROUP_ROWS = (16 << 20) // (8 * COLUMNS)


def make(folder, mib):
    draw = numpy.random.default_rng(2)
    rows = (mib << 20) // (8 * COLUMNS)
    for table in "ab":
        # The same keys in both tables, each in an order of its own.
        keys = draw.permutation(rows)
        names = ["k", *(f"{table}{at}" for at in range(1, COLUMNS))]
        schema = pyarrow.schema([(name, pyarrow.int64()) for name in names])
        with pyarrow.parquet.ParquetWriter(folder / f"{table}.parquet", schema, compression="none", use_dictionary=False) as writer:
            for at in range(0, rows, GROUP_ROWS):
                part = keys[at : at + GROUP_ROWS]
                columns = [part, *(draw.integers(0, 2**62, len(part)) for _ in names[1:])]
                writer.write_table(pyarrow.table(columns, names=names), row_group_size=GROUP_ROWS)


def timed(command, **options):
    began = time.monotonic()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, **options)
    return time.monotonic() - began, done.stdout


def show(name, seconds):
    values = " ".join(f"{value:.2f}" for value in seconds)
    print(f"{name}: median {statistics.median(seconds):.2f} s ({values})", flush=True)


def main():
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]), int(sys.argv[3]))
        return
    sabul, work, runs = sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4])
    while not (work / "t").exists():
        time.sleep(0.1)
    ticket = ["--ticket", str(work / "t")]
    tables = [f"sabul://far:4900/{name}.parquet" for name in "ab"]
    total = sum((work / "data" / f"{name}.parquet").stat().st_size for name in "ab")
    rows = pyarrow.parquet.read_metadata(work / "data" / "a.parquet").num_rows
    print(f"two tables of {total / 2**21:.0f} MiB each, {rows} rows of {8 * COLUMNS} bytes, row groups of 16 MiB")
    times = {name: [] for name in ("copy", "fetch", "join", "first", "tenth")}
    for run in range(runs):
        near = work / "near"
        near.mkdir()
        seconds, _ = timed([sabul, "cp", "-q", "--no-sync", *ticket, *tables, f"{near}/"])
        times["copy"].append(seconds)
        began = time.monotonic()
        query = f"copy (select * from '{near}/a.parquet' join '{near}/b.parquet' using (k)) to '{near}/o.parquet'"
        duckdb.execute(query)
        times["fetch"].append(seconds + time.monotonic() - began)
        shutil.rmtree(near)
        near.mkdir()
        for name, memory in (("join", "4G"), ("tenth", str(total // 10))):
            places = [*ticket, tables[0], *ticket, tables[1]]
            command = [sabul, "join", "--json", *places, "--on", "k", "--memory", memory, "-o", f"{near}/o.parquet"]
            seconds, document = timed(command)
            document = json.loads(document)
            assert document["rows"] == rows, document
            times[name].append(seconds)
            if name == "join":
                times["first"].append(document["first_row_s"])
            if run == 0:
                right = duckdb.execute(
                    f"select count(*), sum(a1), sum(b15) from '{near}/o.parquet'"
                ).fetchall() == duckdb.execute(
                    f"select count(*), sum(a1), sum(b15) from '{work}/data/a.parquet' join '{work}/data/b.parquet' using (k)"
                ).fetchall()
                peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
                print(f"{name}: equals DuckDB: {right}; {document['spilled_bytes'] / 2**20:.0f} MiB to disk; peak memory {peak:.0f} MiB")
        shutil.rmtree(near)
    show("copy of both tables, --no-sync", times["copy"])
    show("copy, then DuckDB", times["fetch"])
    show("sabul join, --memory 4G", times["join"])
    show("first joined row", times["first"])
    show("sabul join, memory of a tenth of the data", times["tenth"])
    print(f"bounds: 1.1 x copy = {1.1 * statistics.median(times['copy']):.2f} s, with a tenth 1.5 x = {1.5 * statistics.median(times['copy']):.2f} s")


if __name__ == "__main__":
    main()
