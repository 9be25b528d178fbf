"""Forked processes: a session stays with its process, and a child process can connect itself."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import fsspec
import pytest
from conftest import CHILD_S, Server, in_child

import sabul


def test_a_child_process_connects_itself(server: Server, session: sabul.Session, folder: Path) -> None:
    session.put_bytes(b"parent", f"{folder.name}/a")

    def act() -> None:
        with sabul.connect(ticket_file=server.ticket) as own:
            assert own.read(f"{folder.name}/a") == b"parent"
            own.put_bytes(b"child", f"{folder.name}/b")

    assert in_child(act) == 0
    assert session.read(f"{folder.name}/b") == b"child"


def test_a_child_process_cannot_use_the_session_of_its_parent(session: sabul.Session, folder: Path) -> None:
    def act() -> None:
        nonlocal session
        with pytest.raises(sabul.UsageError, match="belongs to process"):
            session.list()
        session.close()
        del session

    assert in_child(act) == 0
    # The session of the parent is of use as before.
    assert session.list(folder.name) == []


def test_a_file_system_works_in_a_child_process(server: Server, folder: Path) -> None:
    options = {"ticket_file": str(server.ticket)}
    fsspec.filesystem("sabul", **options).pipe(f"{folder.name}/a", b"parent")

    def act() -> None:
        assert fsspec.filesystem("sabul", **options).cat(f"{folder.name}/a") == b"parent"

    assert in_child(act) == 0


def _read(file_system: fsspec.AbstractFileSystem, path: str) -> bytes:
    found: bytes = file_system.cat(path)
    return found


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes_reads_through_a_pickled_file_system(server: Server, folder: Path, method: str) -> None:
    (folder / "a").write_bytes(b"content")
    file_system = fsspec.filesystem("sabul", ticket_file=str(server.ticket))
    with multiprocessing.get_context(method).Pool(2) as pool:
        jobs = [pool.apply_async(_read, (file_system, f"{folder.name}/a")) for _ in range(4)]
        assert [job.get(CHILD_S) for job in jobs] == [b"content"] * 4


def test_a_pickled_file_system_contains_no_secret(server: Server) -> None:
    pickled = pickle.dumps(fsspec.filesystem("sabul", ticket_file=str(server.ticket)))
    assert server.ticket.read_bytes().strip() not in pickled
    assert str(server.ticket).encode() in pickled
    with sabul.connect(ticket_file=server.ticket) as session, pytest.raises(TypeError):
        pickle.dumps(session)
