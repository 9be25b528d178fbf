"""The program `sabul` of this package, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Self

from . import errors

# Errors of the program by exit code.
_OF_EXIT = {kind.exit_code: kind for kind in errors._OF_KIND.values()}
# Seconds in which an interrupted program ends.
_END_S = 10.0


class Running:
    """A running program. The end of a `with` block stops the program."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the program runs)
        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            [path(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._messages
        )

    @property
    def output(self) -> IO[bytes]:
        """Standard output of the program."""
        if self._process.stdout is None:
            raise ValueError("the program has no output")
        return self._process.stdout

    @property
    def exit_code(self) -> int | None:
        """Exit code, or None while the program runs."""
        return self._process.returncode

    def end(self) -> None:
        """Waits for the program, and raises its error."""
        code = self._process.wait()
        self.close()
        if code == 0:
            return
        self._messages.seek(0)
        text = os.fsdecode(self._messages.read()).strip()
        message = text.rpartition("sabul: ")[2] or f"the program ended with exit code {code}"
        raise _OF_EXIT.get(code, errors.FailedError)(message) from None

    def close(self) -> None:
        """Stops the program."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def documents(arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Runs the program to its end, and returns the JSON documents that it prints, one a line.

    Raises the error of the program; its `results` are the documents that the program printed before.
    """
    with Running(arguments) as running:
        lines = running.output.read().splitlines(keepends=True)
        # A program that is killed may leave part of a line.
        found = [json.loads(line) for line in lines if line.endswith(b"\n")]
        try:
            running.end()
        except errors.Error as error:
            error.results = found
            raise
    return found


def flags(given: Mapping[str, Any]) -> list[str]:
    """Returns flags of the program: none for None and False, several for a list, and `KEY=VALUE` for a mapping."""
    found = []
    for name, value in given.items():
        if isinstance(value, bool):
            found += [f"--{name}"] if value else []
        elif isinstance(value, Mapping):
            found += [f"--{name}={key}={item}" for key, item in value.items()]
        elif isinstance(value, str | bytes | os.PathLike):
            found.append(f"--{name}={os.fsdecode(value)}")
        elif value is not None:
            found += [f"--{name}={item}" for item in (value if isinstance(value, Sequence) else [value])]
    return found


def argument(place: str | os.PathLike[str]) -> str:
    """Returns a path as an argument, which is never an option."""
    text = os.fspath(place)
    return f"./{text}" if text.startswith("-") else text


def find() -> str | None:
    """Returns the path of the program that was installed with this package, or of another one."""
    return shutil.which("sabul", path=sysconfig.get_path("scripts")) or shutil.which("sabul")


def path() -> str:
    """Returns the path of the program."""
    if (found := find()) is None:
        raise errors.FailedError("the program sabul is missing; install the package again")
    return found
