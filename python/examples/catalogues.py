"""Joins the catalogues of two observatories while both arrive: `python catalogues.py [STARS]`.

Each observatory has positions and magnitudes of stars under a common number, in an order of its own. The rows that both
have are compared while the rest is on its way; no catalogue is copied to a disk first.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet
from served import served

import sabul


def make(folder: Path, name: str, stars: int, seed: int) -> None:
    """Writes a catalogue of 9 in 10 stars."""
    draw = numpy.random.default_rng(seed)
    numbers = draw.permutation(stars)[: stars * 9 // 10]
    # The same star has nearly the same magnitude everywhere.
    magnitude = 5 + numbers % 1000 / 100 + draw.normal(0, 0.02, len(numbers))
    table = pyarrow.table({"star": numbers, f"magnitude_{name}": magnitude, f"epoch_{name}": draw.random(len(numbers))})
    pyarrow.parquet.write_table(table, folder / f"{name}.parquet", row_group_size=100_000)


def main() -> None:
    """Compares the magnitudes."""
    stars = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "observatories")
        root.mkdir()
        for seed, name in enumerate(["north", "south"]):
            make(root, name, stars, seed)
        with served(root) as ticket:
            began = time.monotonic()
            first_s: float | None = None
            count, largest = 0, 0.0
            tables = [(f"sabul:///{name}.parquet", ticket) for name in ("north", "south")]
            select = ["star", "magnitude_north", "magnitude_south"]
            with sabul.join(*tables, on="star", where="magnitude_north < 10", select=select) as joined:
                for batch in joined:
                    first_s = first_s or time.monotonic() - began
                    north, south = (batch.column(name).to_numpy() for name in select[1:])
                    count += batch.num_rows
                    largest = max(largest, float(numpy.abs(north - south).max(initial=0)))
            print(f"{count} stars brighter than 10 are in both catalogues, the first after {first_s or 0:.2f} s")
            print(f"their magnitudes differ by at most {largest:.2f}; {time.monotonic() - began:.2f} s in all")


if __name__ == "__main__":
    main()
