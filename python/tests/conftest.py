"""Servers on loopback for the tests, by the program of the wheel or of the variable SABUL."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import sabul

# Seconds after which a test fails because its server did not start.
START_S = 20.0

# Seconds after which a child process counts as hanging.
CHILD_S = 30


def in_child(act: Callable[[], object]) -> int:
    """Runs `act` in a forked child process, and returns the exit code: 0 if `act` raised nothing."""
    child = os.fork()
    if child == 0:
        signal.alarm(CHILD_S)
        try:
            act()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def program() -> str:
    """Returns the path of the program."""
    found = os.environ.get("SABUL") or shutil.which("sabul", path=sysconfig.get_path("scripts"))
    assert found, "the wheel has no program: build it with python/test.sh, or name one in SABUL"
    return found


@dataclass
class Server:
    """A running server."""

    root: Path
    ticket: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return "sabul:///"


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, trusted servers and path memory of the user have no effect on the tests."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "SABUL_TICKET_FILE", "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Starts servers with these options, and stops them at the end."""
    servers: list[Server] = []

    def start_one(*options: str) -> Server:
        folder = tmp_path_factory.mktemp("server")
        root, ticket = folder / "root", folder / "ticket"
        root.mkdir()
        command = [program(), "serve", f"--root={root}", "--listen=127.0.0.1:0", f"--ticket-file={ticket}", *options]
        errors = (folder / "stderr").open("wb")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        servers.append(Server(root, ticket, process))
        until = time.monotonic() + START_S
        while not ticket.exists():
            assert process.poll() is None, (folder / "stderr").read_text()
            assert time.monotonic() < until, "the server wrote no ticket"
            time.sleep(0.02)
        return servers[-1]

    yield start_one
    for server in servers:
        server.process.terminate()
    for server in servers:
        server.process.wait(START_S)


@pytest.fixture(scope="session")
def server(start: Callable[..., Server]) -> Server:
    """A server that permits everything."""
    return start("--allow-rm")


@pytest.fixture
def folder(server: Server, request: pytest.FixtureRequest) -> Path:
    """A new directory below the root of the server; its name is the path at the server."""
    path = server.root / f"test-{abs(hash(request.node.nodeid))}"
    path.mkdir()
    return path


@pytest.fixture
def session(server: Server) -> Iterator[sabul.Session]:
    """A session with the server."""
    with sabul.connect(ticket_file=server.ticket) as opened:
        yield opened


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    """A command in place of ssh, which runs the commands for any host on this machine, in a directory of its own."""
    home = tmp_path / "far"
    home.mkdir()
    script = tmp_path / "ssh"
    text = f"""#!/bin/sh
# The last argument is the command; the other arguments are options and the host.
for last; do :; done
cd {home} && HOME={home} PATH={os.path.dirname(program())}:$PATH exec sh -c "$last"
"""
    script.write_text(text)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)
