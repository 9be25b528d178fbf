"""Streaming join of tables on several machines: batches of joined rows while the tables still arrive.

    for batch in sabul.join("far:orders.parquet", "customers.csv", on="customer"):
        print(batch.num_rows)

Needs pyarrow. The program `sabul` of this package joins the tables in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from . import errors

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Joined", "join"]

Table: TypeAlias = str | os.PathLike[str] | tuple[str, str | os.PathLike[str]]
"""A path, `[USER@]HOST:PATH` or `sabul://HOST/PATH`; or such a place and its ticket file."""

# Errors of the program by exit code.
_OF_EXIT = {kind.exit_code: kind for kind in errors._OF_KIND.values()}
# Seconds in which an interrupted program ends.
_END_S = 10.0


class Joined:
    """Batches of joined rows, as `pyarrow.RecordBatch`. An iteration that ends without an error has all rows.

    `close`, the end of a `with` block, and the end of the iteration stop the join.
    """

    def __init__(self, command: list[str]) -> None:
        import pyarrow

        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the program runs)
        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._messages
        )
        try:
            self._reader = pyarrow.ipc.open_stream(self._process.stdout)
        except pyarrow.ArrowInvalid:
            # The program wrote nothing.
            self._end()
            raise
        except BaseException:
            self.close()
            raise

    @property
    def schema(self) -> pyarrow.Schema:
        """Columns of the joined rows."""
        return self._reader.schema

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        return self

    def __next__(self) -> pyarrow.RecordBatch:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            self._end()
            raise
        except OSError:
            # The stream ended within a batch.
            self._end()
            raise

    def read_all(self) -> pyarrow.Table:
        """Returns all rows that are not read yet."""
        import pyarrow

        return pyarrow.Table.from_batches(list(self), self.schema)

    def _end(self) -> None:
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
        """Stops the join."""
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

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()


def join(
    first: Table,
    *others: Table,
    on: str | Sequence[str],
    type: Literal["inner", "left", "anti"] = "inner",
    where: str | None = None,
    select: Sequence[str] | None = None,
    memory: int | None = None,
    retry_s: int | None = None,
    ticket_file: str | os.PathLike[str] | None = None,
    ssh: str | None = None,
    remote_sabul: str | None = None,
) -> Joined:
    """Joins tables on the key columns `on`, while the tables arrive. Parquet, CSV and Arrow files.

    `where` is a condition as WHERE of SQL. `memory` limits the bytes of rows that wait for a match; more rows go to the
    temporary directory. With `retry_s`, a lost connection is dialled again for so many seconds. `ticket_file` is for
    tables that have no ticket file of their own. Rows have no order.
    """
    command = [_program(), "join", "--quiet", "--output=-", f"--type={type}"]
    command += [f"--on={key}" for key in ([on] if isinstance(on, str) else on)]
    given: dict[str, Any] = {
        "where": where,
        "select": None if select is None else ",".join(select),
        "memory": memory,
        "retry": None if retry_s is None else f"{retry_s}s",
        "ssh": ssh,
        "remote-sabul": remote_sabul,
    }
    command += [f"--{name}={value}" for name, value in given.items() if value is not None]
    for table in (first, *others):
        place, ticket = table if isinstance(table, tuple) else (table, ticket_file)
        command += [] if ticket is None else [f"--ticket={os.fspath(ticket)}"]
        # A path is never an option.
        place = os.fspath(place)
        command.append(f"./{place}" if place.startswith("-") else place)
    return Joined(command)


def _program() -> str:
    """Returns the path of the program, which the package installs."""
    found = shutil.which("sabul", path=sysconfig.get_path("scripts")) or shutil.which("sabul")
    if found is None:
        raise errors.FailedError("the program sabul is missing; install the package again")
    return found
