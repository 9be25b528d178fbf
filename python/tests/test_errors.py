"""Exceptions: one class for each exit code, and the attributes of the program's documents."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Server, in_child

import sabul
from sabul import errors

MANUAL = Path(__file__).parents[2] / "docs" / "manual"
CLASSES = [
    sabul.FailedError,
    sabul.UsageError,
    sabul.UnreachableError,
    sabul.AuthenticationError,
    sabul.VerificationError,
    sabul.DestinationError,
    sabul.TooSlowError,
    sabul.InterruptError,
]


def test_each_exit_code_of_the_manual_has_one_class() -> None:
    rows = re.findall(r"^\| (\d+) \|", (MANUAL / "exit-codes.md").read_text(), re.M)
    codes = sorted(int(row) for row in rows if row != "0")
    assert sorted(one.exit_code for one in CLASSES) == codes


def test_each_word_of_the_manual_becomes_the_class_of_its_exit_code() -> None:
    text = (MANUAL / "json.md").read_text()
    text = text[text.index("## Codes of errors") :]
    words = re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", text, re.M)
    assert len(words) > 15
    commands = {word: int(code) for word, code in words if word in errors._OF_KIND}
    assert set(commands) == set(errors._OF_KIND)
    for word, code in commands.items():
        assert errors._make(word, word, "x").exit_code == code
    for word, code in words:
        if word not in commands:
            assert errors._of_file(word, "x").exit_code == int(code), word


def test_a_missing_source_is_not_found(session: sabul.Session, folder: Path, tmp_path: Path) -> None:
    for call in (
        lambda: session.get(f"{folder.name}/none", tmp_path / "x"),
        lambda: session.read(f"{folder.name}/none"),
        lambda: session.stat(f"{folder.name}/none"),
        lambda: session.list(f"{folder.name}/none"),
        lambda: session.put(tmp_path / "none", folder.name),
    ):
        with pytest.raises(sabul.NotFoundError) as caught:
            call()
        error = caught.value
        assert isinstance(error, FileNotFoundError | sabul.FailedError)
        assert (error.exit_code, error.kind, error.code) == (1, "failed", "not-found")


def test_failed_files_are_in_the_report_of_the_error(session: sabul.Session, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"good")
    with pytest.raises(sabul.FailedError) as caught:
        session.put([tmp_path / "good", tmp_path / "none"], folder.name)
    report = caught.value.report
    assert report is not None and (report.files, report.failed) == (1, 1)
    assert report.errors[0].code == "not-found" and "none" in report.errors[0].path
    assert (folder / "good").read_bytes() == b"good"


def test_an_existing_name_is_not_replaced(session: sabul.Session, folder: Path) -> None:
    for name in "ab":
        (folder / name).write_text(name)
    with pytest.raises(sabul.ExistsError) as caught:
        session.mv(f"{folder.name}/a", f"{folder.name}/b", replace=False)
    assert isinstance(caught.value, FileExistsError) and caught.value.exit_code == 1
    assert (folder / "b").read_text() == "b"


def test_a_request_that_cannot_be_is_a_usage_error(server: Server, tmp_path: Path) -> None:
    for call in (
        lambda: sabul.connect(),
        lambda: sabul.connect("just/a/path", ticket_file=server.ticket),
        lambda: sabul.connect("sabul://", ticket_file=server.ticket),
        lambda: sabul.connect(ticket_file=server.ticket, timeout_s=0),
        lambda: sabul.connect(ticket_file=server.ticket, bind=["here"]),
        lambda: sabul.connect("host:", ssh="ssh 'a"),
        lambda: sabul.copy("a", "b"),
        lambda: sabul.copy("sabul:///a", "sabul:///b"),
        lambda: sabul.copy(["sabul:///a", "b"], "c"),
        lambda: sabul.copy("a", "sabul:///b", ticket_file=tmp_path / "none"),
        lambda: sabul.copy("a", "sabul:///b", ticket_file=server.ticket, cc="no-such"),
        lambda: sabul.copy("a", "sabul:///b", ticket_file=server.ticket, policy="greedy"),  # type: ignore[arg-type]
        lambda: sabul.copy("a", "sabul:///b", ticket_file=server.ticket, carrier="pigeon"),  # type: ignore[arg-type]
    ):
        with pytest.raises(sabul.UsageError) as caught:
            call()
        assert (caught.value.exit_code, caught.value.kind) == (2, "usage")
        assert isinstance(caught.value, ValueError)


def test_a_closed_port_is_unreachable(server: Server) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"sabul://127.0.0.1:{free.getsockname()[1]}/"
    with pytest.raises(sabul.UnreachableError) as caught:
        sabul.connect(address, ticket_file=server.ticket)
    assert (caught.value.exit_code, caught.value.kind) == (3, "unreachable")
    assert isinstance(caught.value, ConnectionError)


def test_the_ticket_of_another_server_fails_the_authentication(start: Callable[..., Server], server: Server) -> None:
    other = start()
    with sabul.connect(ticket_file=other.ticket) as session:
        address = f"sabul://{session.peer}/"
    with pytest.raises(sabul.AuthenticationError) as caught:
        sabul.connect(address, ticket_file=server.ticket)
    assert (caught.value.exit_code, caught.value.kind) == (4, "authentication")


def test_a_closed_directory_is_an_error_of_the_destination(server: Server, folder: Path, tmp_path: Path) -> None:
    (folder / "a").write_text("a")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)

    def act() -> None:
        with sabul.connect(ticket_file=server.ticket) as session:
            if os.geteuid() == 0:
                # Root may write everywhere.
                os.setresuid(65534, 65534, 65534)
            with pytest.raises(sabul.DestinationError) as caught:
                session.get(f"{folder.name}/a", closed / "a")
            error = caught.value
            assert (error.exit_code, error.kind, error.code) == (6, "destination", "permission")

    assert in_child(act) == 0


def test_a_refused_request_has_the_word_of_the_server(start: Callable[..., Server]) -> None:
    read_only = start("--read-only")
    (read_only.root / "a").write_text("a")
    with sabul.connect(ticket_file=read_only.ticket) as session:
        for call in (lambda: session.put_bytes(b"x", "b"), lambda: session.rm("a"), lambda: session.mkdir("d")):
            with pytest.raises(sabul.FailedError) as caught:
                call()
            assert caught.value.code == "refused"
        assert session.read("a") == b"a"


def test_a_copy_below_its_minimum_rate_is_too_slow(session: sabul.Session, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100_000_000))
    with pytest.raises(sabul.TooSlowError) as caught:
        session.put(
            tmp_path / "a", folder.name, bwlimit_bps=2_000_000, min_rate_bps=50_000_000, progress=lambda _: None
        )
    assert (caught.value.exit_code, caught.value.kind) == (7, "too-slow")


def test_a_closed_session_refuses_further_calls(server: Server) -> None:
    session = sabul.connect(ticket_file=server.ticket)
    session.close()
    session.close()
    with pytest.raises(sabul.UsageError, match="closed"):
        session.list()


def test_a_transfer_whose_session_closes_is_interrupted(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(50_000_000))
    session = sabul.connect(ticket_file=server.ticket)
    threading.Timer(0.5, session.close).start()
    with pytest.raises(sabul.Error) as caught:
        session.put(tmp_path / "a", folder.name, bwlimit_bps=10_000_000)
    assert caught.value.exit_code in (3, 130)
