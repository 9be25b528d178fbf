"""Paths of universal-pathlib."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from conftest import Server
from upath import UPath
from upath.registry import available_implementations

import sabul
from sabul.upath import SabulPath

# Warnings of universal-pathlib about file systems that it does not know.
pytestmark = pytest.mark.filterwarnings("error:.*(not explicitly implemented|Could not find default)")


@pytest.fixture
def base(server: Server, folder: Path) -> UPath:
    return UPath(f"sabul:///{folder.name}", ticket_file=str(server.ticket))


def test_a_url_becomes_a_path_of_this_package() -> None:
    assert "sabul" in available_implementations()
    assert type(UPath("sabul://far/x")) is SabulPath


def test_files_are_written_read_found_and_removed(base: UPath, folder: Path) -> None:
    assert not base.joinpath("a", "x.txt").exists()
    (base / "a" / "x.txt").write_text("text")
    (base / "a" / "y.bin").write_bytes(b"bytes")
    assert (folder / "a" / "x.txt").read_text() == "text" == base.joinpath("a", "x.txt").read_text()
    assert sorted(path.name for path in (base / "a").iterdir()) == ["x.txt", "y.bin"]
    assert [str(path) for path in base.glob("*/*.txt")] == [f"sabul:///{folder.name}/a/x.txt"]
    assert [path.read_bytes() for path in base.rglob("*.bin")] == [b"bytes"]
    with (base / "a" / "y.bin").open("rb") as file:
        file.seek(2)
        assert file.read(2) == b"bytes"[2:4]
    assert (base / "a").is_dir() and (base / "a" / "x.txt").is_file()
    assert (base / "a" / "x.txt").stat().st_size == 4
    (base / "a" / "x.txt").unlink()
    (base / "b" / "c").mkdir(parents=True)
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"] and not (folder / "a" / "x.txt").exists()
    with pytest.raises(FileNotFoundError):
        (base / "a" / "x.txt").read_bytes()


def test_a_rename_stays_at_the_server(base: UPath, folder: Path) -> None:
    (base / "x").write_bytes(b"1")
    moved = (base / "x").rename(base / "y")
    assert moved == base / "y" and [path.name for path in folder.iterdir()] == ["y"]
    moved = moved.rename(f"{folder.name}/z")
    assert moved.read_bytes() == b"1" and moved == base / "z"
    (base / "w").write_bytes(b"2")
    assert moved.replace(f"sabul:///{folder.name}/w") == base / "w" and (folder / "w").read_bytes() == b"1"
    (base / "d").mkdir()
    with pytest.raises(FileExistsError, match="is a directory"):
        (base / "w").rename(base / "d")
    elsewhere: list[Any] = ["sabul://other/w", UPath("sabul://other/w"), "memory:///w", UPath("memory:///w")]
    for target in elsewhere:
        with pytest.raises(sabul.UsageError, match="server"):
            (base / "w").rename(target)
    assert sorted(path.name for path in folder.iterdir()) == ["d", "w"]


def test_the_text_of_a_path_is_its_url() -> None:
    for url, path, parent in [
        ("sabul://me@host:4850/a/x", "a/x", "sabul://me@host:4850/a"),
        ("sabul://host/a", "a", "sabul://host/"),
        ("sabul://host//etc/x", "/etc/x", "sabul://host//etc"),
        ("sabul://host//etc", "/etc", "sabul://host//"),
        ("sabul:///a/x", "a/x", "sabul:///a"),
    ]:
        found = UPath(url)
        assert (str(found), found.path, str(found.parent)) == (url, path, parent)
        assert UPath(str(found)) == found == pickle.loads(pickle.dumps(found))
        assert str(found / "b") == url + "/b" and str(found.with_name("n")) == str(found.parent / "n")
    relative = UPath("sabul://host/a/b/c").relative_to(UPath("sabul://host/a"))
    assert str(relative) == "b/c"
