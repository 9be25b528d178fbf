"""Opens a zarr array of another machine and reads a slice: `python remote_zarr.py [DAYS]`.

Each day of a map is a chunk of its own. The chunks of the slice come in few requests, because the file system collects
reads at about the same time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import fsspec
import numpy
import zarr
from served import served

SHAPE = (64, 128)


def main() -> None:
    """Prints the warmest day at one place."""
    days = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "climate")
        root.mkdir()
        made = zarr.create_array(str(root / "temperature"), shape=(days, *SHAPE), chunks=(1, *SHAPE), dtype="f4")
        season = 10 + 8 * numpy.sin(numpy.arange(days) * 2 * numpy.pi / 365)
        made[:] = numpy.broadcast_to(season[:, None, None], made.shape)
        with served(root) as ticket:
            files = fsspec.filesystem("sabul", ticket_file=str(ticket))
            began = time.monotonic()
            # Without this setting, zarr requests ten chunks at a time.
            with zarr.config.set({"async.concurrency": 1000}):
                store = zarr.storage.FsspecStore(files, path="temperature", read_only=True)
                array = zarr.open_array(store, mode="r")
                place = numpy.asarray(array[: days // 2, 20, 30])
            seconds = time.monotonic() - began
            warmest = int(place.argmax())
            print(f"day {warmest} is the warmest of {len(place)}, with {place[warmest]:.1f} degrees; {seconds:.2f} s")


if __name__ == "__main__":
    main()
