"""The notebooks, executed; their last cells check the results."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    notebook = nbformat.reads(path.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    where = {"metadata": {"path": EXAMPLES}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) >= 4 and any(cell.outputs for cell in cells)
