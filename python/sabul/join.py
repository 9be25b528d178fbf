"""Streaming join of tables on several machines: batches of joined rows while the tables still arrive.

    for batch in sabul.join("far:orders.parquet", "customers.csv", on="customer"):
        print(batch.num_rows)

Needs pyarrow. The program `sabul` of this package joins the tables in a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from ._program import Running, argument, flags

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Joined", "join"]

Table: TypeAlias = str | os.PathLike[str] | tuple[str, str | os.PathLike[str]]
"""A path, `[USER@]HOST:PATH` or `sabul://HOST/PATH`; or such a place and its ticket file."""


class Joined:
    """Batches of joined rows, as `pyarrow.RecordBatch`. An iteration that ends without an error has all rows.

    `close`, the end of a `with` block, and the end of the iteration stop the join.
    """

    def __init__(self, arguments: list[str]) -> None:
        import pyarrow

        self._running = Running(arguments)
        try:
            self._reader = pyarrow.ipc.open_stream(self._running.output)
        except pyarrow.ArrowInvalid:
            # The program wrote nothing.
            self._running.end()
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
            self._running.end()
            raise
        except OSError:
            # The stream ended within a batch.
            self._running.end()
            raise

    def read_all(self) -> pyarrow.Table:
        """Returns all rows that are not read yet."""
        import pyarrow

        return pyarrow.Table.from_batches(list(self), self.schema)

    def close(self) -> None:
        """Stops the join."""
        self._running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_running"):
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
    arguments = ["join", "--quiet", "--output=-", f"--type={type}"]
    arguments += flags(
        {
            "on": on,
            "where": where,
            "select": None if select is None else ",".join(select),
            "memory": memory,
            "retry": None if retry_s is None else f"{retry_s}s",
            "ssh": ssh,
            "remote-sabul": remote_sabul,
        }
    )
    for table in (first, *others):
        place, ticket = table if isinstance(table, tuple) else (table, ticket_file)
        arguments += [*flags({"ticket": ticket}), argument(place)]
    return Joined(arguments)
