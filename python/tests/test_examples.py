"""The examples, at a small size."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def lines(name: str, *arguments: str) -> list[str]:
    """Returns the lines that an example prints."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_catalogues_have_common_stars_of_nearly_equal_magnitude() -> None:
    first, second = lines("catalogues.py", "20000")
    # Half of the stars are brighter than 10, and 0.9 x 0.9 of them are in both catalogues.
    assert 7500 < int(first.split()[0]) < 8700, first
    difference = re.search(r"at most ([\d.]+)", second)
    assert difference and 0.05 < float(difference[1]) < 0.3, second


def test_the_slice_of_a_remote_array_has_its_warmest_day() -> None:
    (line,) = lines("remote_zarr.py", "400")
    assert line.startswith("day 91 is the warmest of 200, with 18.0 degrees"), line


@pytest.mark.parametrize("paths", ["10"])
def test_a_sweep_has_a_row_for_each_drawn_path(paths: str) -> None:
    first, *table = lines("sweep.py", paths)
    assert first.startswith("10 runs; the flow uses 0.") and len(table) == 4, (first, table)
