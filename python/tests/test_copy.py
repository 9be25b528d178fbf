"""Copies in one call: by ticket and through ssh, as a function and as a line of the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Server, program

import sabul


def test_a_copy_goes_to_the_server_and_back(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    seen: list[sabul.Progress] = []
    url = f"sabul:///{folder.name}/b"
    assert sabul.copy(tmp_path / "a", url, ticket_file=server.ticket, progress=seen.append).files == 1
    assert (folder / "b").read_text() == "content" and seen[-1].bytes == 7
    assert sabul.copy(url, tmp_path / "c", ticket_file=server.ticket).bytes == 7
    assert (tmp_path / "c").read_text() == "content"


def test_the_variable_names_the_ticket(
    server: Server, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("x")
    monkeypatch.setenv("SABUL_TICKET_FILE", str(server.ticket))
    assert sabul.copy(tmp_path / "a", f"sabul:///{folder.name}/").files == 1
    with sabul.connect() as session:
        assert session.read(f"{folder.name}/a") == b"x"


def test_a_filter_leaves_files_out(server: Server, folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    source.mkdir()
    for name in ("a.csv", "b.tmp", "keep.tmp"):
        (source / name).write_text(name)
    options = {"exclude": ["*.tmp"], "include": ["keep.tmp"]}
    sabul.copy(source, f"sabul:///{folder.name}/", True, ticket_file=server.ticket, **options)  # type: ignore[arg-type]
    assert sorted(os.listdir(folder / "tree")) == ["a.csv", "keep.tmp"]


def test_tcp_carries_a_copy(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1_000_000))
    url = f"sabul:///{folder.name}/"
    assert sabul.copy(tmp_path / "a", url, ticket_file=server.ticket, carrier="tcp", tcp=2).carrier == "tcp"


def test_a_host_is_reached_through_ssh(ssh: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    report = sabul.copy(tmp_path / "a", "host:incoming/", ssh=ssh, remote_sabul=program())
    assert report.files == 1
    assert (tmp_path / "far" / "incoming" / "a").read_text() == "content"
    with sabul.connect("sabul://host/incoming", ssh=ssh, remote_sabul=program()) as session:
        assert [entry.path for entry in session.list()] == ["a"]
        session.put_bytes(b"absolute", f"{tmp_path}/far/abs/b")
        assert session.read(f"{tmp_path}/far/abs/b") == b"absolute"
        session.rm("a")
    assert os.listdir(tmp_path / "far" / "incoming") == []


def test_a_host_without_the_program_gets_it(ssh: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    bare = tmp_path / "bare-ssh"
    bare.write_text(Path(ssh).read_text().replace(f"PATH={os.path.dirname(program())}:$PATH", "PATH=/usr/bin:/bin"))
    bare.chmod(0o700)
    with pytest.raises(sabul.FailedError, match="sabul"):
        sabul.copy(tmp_path / "a", "host:", ssh=str(bare))
    assert sabul.copy(tmp_path / "a", "host:", ssh=str(bare), push=True).files == 1
    assert (tmp_path / "far" / "a").read_text() == "content"
    # The host keeps the program.
    assert sabul.copy(tmp_path / "a", "host:b", ssh=str(bare)).files == 1


def test_a_line_of_the_shell_copies_a_file(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    line = f"import sabul; print(sabul.copy('a', 'sabul:///{folder.name}/').bytes)"
    environment = os.environ | {"SABUL_TICKET_FILE": str(server.ticket)}
    command = [sys.executable, "-c", line]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
    assert (folder / "a").read_text() == "content"


def test_known_paths_are_read_and_kept_for_later_processes(server: Server, tmp_path: Path) -> None:
    cache = Path(os.environ["HOME"]) / ".cache" / "sabul"
    cache.mkdir(mode=0o700, parents=True)
    known = {"192.0.2.1": {"rate_bps": 10**9, "rtt_us": 50_000, "seen": int(time.time()) - 60}}
    (cache / "paths.json").write_text(json.dumps(known))
    before = (cache / "paths.json").stat().st_ino
    line = f"import sabul; sabul.connect(ticket_file={str(server.ticket)!r}).close()"
    subprocess.run([sys.executable, "-c", line], cwd=tmp_path, timeout=60, check=True)
    # A loopback address is no path to keep; the file is written anew with the paths that were read.
    assert (cache / "paths.json").stat().st_ino != before
    assert json.loads((cache / "paths.json").read_text()) == known
