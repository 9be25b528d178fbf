"""Standing servers: the user's ssh key in place of a ticket."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Server, program

import sabul

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


def output_of(*words: str) -> str:
    """Runs a command of the program and returns its output."""
    return subprocess.run([program(), *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def key(tmp_path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    return tmp_path / "key"


@pytest.fixture
def address(start: Callable[..., Server], key: Path, tmp_path: Path) -> str:
    """The address of a standing server that the user trusts."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    shutil.copy(key.with_suffix(".pub"), state / "authorized_keys")
    standing = start(f"--state={state}")
    (standing.root / "a").write_text("by key")
    with sabul.connect(ticket_file=standing.ticket) as session:
        found = session.peer
    output_of("key", "trust", found, output_of("key", "fingerprint", "--state", str(state)).split()[0])
    return f"sabul://{found}/"


def test_a_named_key_opens_a_trusted_server(address: str, key: Path) -> None:
    with sabul.connect(address, identity=key) as session:
        assert session.read("a") == b"by key"


def test_the_usual_key_of_the_user_opens_a_trusted_server(address: str, key: Path) -> None:
    home = Path(os.environ["HOME"]) / ".ssh"
    home.mkdir(mode=0o700)
    shutil.copy(key, home / "id_ed25519")
    with sabul.connect(address) as session:
        assert session.read("a") == b"by key"


def test_another_key_fails_the_authentication(address: str, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    # The server checks the key after the handshake of the client.
    with pytest.raises(sabul.AuthenticationError), sabul.connect(address, identity=tmp_path / "other") as session:
        session.list()


def test_an_unknown_server_with_a_port_needs_a_ticket_or_trust(address: str, key: Path) -> None:
    shutil.rmtree(Path(os.environ["HOME"]) / ".config")
    for reach in ({}, {"identity": key}):
        with pytest.raises(sabul.UsageError, match="not a trusted server"):
            sabul.connect(address, **reach)  # type: ignore[arg-type]
