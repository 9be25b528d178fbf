"""A server for the examples: `sabul serve` on loopback, in place of another machine."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 20.0


@contextmanager
def served(root: Path) -> Iterator[Path]:
    """Serves the directory, and yields the ticket file."""
    program = shutil.which("sabul", path=sysconfig.get_path("scripts")) or shutil.which("sabul")
    if program is None:
        raise SystemExit("the program sabul is missing; install the package again")
    ticket = root.parent / "ticket"
    command = [program, "serve", f"--root={root}", "--listen=127.0.0.1:0", f"--ticket-file={ticket}"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_S
        while not ticket.exists():
            if server.poll() is not None or time.monotonic() > end:
                raise SystemExit("sabul serve did not start; run it by hand to see why")
            time.sleep(0.05)
        yield ticket
    finally:
        server.terminate()
        server.wait()
