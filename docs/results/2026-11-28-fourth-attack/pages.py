"""Writes small Parquet files that need much memory when they are decoded as a whole."""
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MIB = 1 << 20
pq.write_table(pa.table({"k": pa.array(range(1000))}), "small.parquet")


def write(name, table, **options):
    pq.write_table(table, name, compression="zstd", use_dictionary=False, write_batch_size=1, **options)


def keys(rows):
    return pa.array(np.arange(rows) % 1000)


# A page of 1 GiB.
write("page.parquet", pa.table({"k": keys(1), "v": pa.array(["x" * (1024 * MIB)], pa.large_string())}))
# 64 pages of 32 MiB.
write("pages.parquet", pa.table({"k": keys(64), "v": pa.array(["x" * (32 * MIB)] * 64, pa.large_string())}))
# 2,000 values of 1 MiB that share a prefix.
values = pa.array(["x" * MIB] * 2000, pa.large_string())
write("prefix.parquet", pa.table({"k": keys(2000), "v": values}), column_encoding={"v": "DELTA_BYTE_ARRAY"})
# A row with 200 million values.
offsets = pa.array([0, 200_000_000], pa.int32())
lists = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(200_000_000, np.int64)))
pq.write_table(pa.table({"k": keys(1), "v": lists}), "list.parquet", compression="zstd")
# 40 columns with a page of 32 MiB each.
columns = {f"v{at}": pa.array(["x" * (32 * MIB)], pa.large_string()) for at in range(40)}
write("columns.parquet", pa.table({"k": keys(1), **columns}))
# As usual: short texts, lists of ten numbers, shared prefixes.
rows = 300_000
names = pa.array([f"https://example.org/data/{row // 7}/{row}" for row in range(rows)])
tens = pa.ListArray.from_arrays(np.arange(0, 10 * rows + 1, 10, dtype=np.int32), pa.array(np.random.rand(10 * rows)))
table = pa.table({"k": keys(rows), "t": names, "d": names, "l": tens})
pq.write_table(table, "usual.parquet", use_dictionary=False, column_encoding={"d": "DELTA_BYTE_ARRAY"}, compression="zstd")
