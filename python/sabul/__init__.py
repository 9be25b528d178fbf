"""Reliable, encrypted bulk transfer over UDP for long and fast paths.

    import sabul

    sabul.copy("results.h5", "me@far:incoming/")
    with sabul.connect(ticket_file="server.ticket") as session:
        session.put("data", "", recursive=True)
        tail = session.read("data/log.txt", offset=1_000_000)

`sabul.aio` has the same functions for asyncio, `sabul.fs` the file system of fsspec, `sabul.sim` the simulator,
`sabul.card` report cards of controllers, and `sabul.lab` scenarios on real sockets.
"""

from . import errors
from ._sabul import __version__
from ._session import Session, connect, copy, escape, perf
from ._types import Entry, Failure, Interval, Measurement, Options, Progress, Reach, Report
from .errors import (
    AuthenticationError,
    DestinationError,
    Error,
    ExistsError,
    FailedError,
    InterruptError,
    NotFoundError,
    TooSlowError,
    UnreachableError,
    UsageError,
    VerificationError,
)
from .join import Joined, join

__all__ = [
    "AuthenticationError",
    "DestinationError",
    "Entry",
    "Error",
    "ExistsError",
    "FailedError",
    "Failure",
    "InterruptError",
    "Interval",
    "Joined",
    "Measurement",
    "NotFoundError",
    "Options",
    "Progress",
    "Reach",
    "Report",
    "Session",
    "TooSlowError",
    "UnreachableError",
    "UsageError",
    "VerificationError",
    "__version__",
    "connect",
    "copy",
    "errors",
    "escape",
    "join",
    "perf",
]
