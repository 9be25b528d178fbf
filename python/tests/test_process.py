"""The package in a process: threads, signals, the end of the interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from conftest import Server

import sabul

# Seconds after which a process counts as hanging.
END_S = 20.0


def test_other_threads_run_during_a_copy(session: sabul.Session, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(6_000_000))
    copy = threading.Thread(target=session.put, args=(tmp_path / "a", folder.name), kwargs={"bwlimit_bps": 80_000_000})
    copy.start()
    turns = 0
    while copy.is_alive():
        time.sleep(0.005)
        turns += 1
    assert turns > 20
    assert (folder / "a").stat().st_size == 6_000_000


def test_threads_share_a_session(session: sabul.Session, folder: Path) -> None:
    contents = {f"{folder.name}/{at}": bytes([at]) * 10_000 for at in range(8)}
    threads = [threading.Thread(target=session.put_bytes, args=(value, name)) for name, value in contents.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: session.read(name) for name in contents} == contents


def test_an_interrupt_ends_a_copy_which_then_resumes(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(os.urandom(40_000_000))
    line = f"import sabul; sabul.copy('a', 'sabul:///{folder.name}/', bwlimit_bps=80_000_000)"
    environment = os.environ | {"SABUL_TICKET_FILE": str(server.ticket)}
    command = [sys.executable, "-c", line]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + END_S
    while sum(path.stat().st_size for path in folder.iterdir()) < 12_000_000:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, errors = process.communicate(timeout=END_S)
    assert time.monotonic() - started < 5
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    report = sabul.copy(tmp_path / "a", f"sabul:///{folder.name}/", ticket_file=server.ticket)
    assert report.resumed_bytes > 1_000_000
    assert (folder / "a").read_bytes() == (tmp_path / "a").read_bytes()


def test_the_interpreter_ends_with_open_sessions_and_closes_them(server: Server, tmp_path: Path) -> None:
    log = server.root.parent / "stderr"
    before = log.read_text().count("broke")
    lines = [
        "import sabul, fsspec",
        f"ticket = {str(server.ticket)!r}",
        "session = sabul.connect(ticket_file=ticket)",
        "print(len(fsspec.filesystem('sabul', ticket_file=ticket).ls('')) > 0)",
    ]
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=END_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert log.read_text().count("broke") == before
