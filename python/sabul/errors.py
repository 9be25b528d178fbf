"""Exceptions: one class for each exit code of the program, all below `Error`.

`kind` and `code` are the words of the program's JSON documents (docs/manual/json.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ._types import Report

__all__ = [
    "AuthenticationError",
    "DestinationError",
    "Error",
    "ExistsError",
    "FailedError",
    "InterruptError",
    "NotFoundError",
    "TooSlowError",
    "UnreachableError",
    "UsageError",
    "VerificationError",
]


class Error(Exception):
    """A failed operation. The message says what failed, on which object, and what to do."""

    exit_code: ClassVar[int] = 1
    """Exit code of the program for this error."""
    kind: str = "failed"
    """Word of the cause, such as `unreachable`."""
    code: str = "failed"
    """Word of the failure class, such as `not-found`; otherwise the same as `kind`."""
    report: Report | None = None
    """Result of a transfer in which single files failed."""
    results: list[dict[str, Any]] | None = None
    """Documents of a card or of runs in the lab that failed, in part or as a whole."""


class FailedError(Error):
    """The operation was tried and failed, completely or in part."""


class NotFoundError(FailedError, FileNotFoundError):
    """The source does not exist."""


class ExistsError(FailedError, FileExistsError):
    """The destination exists and may not be replaced."""


class UsageError(Error, ValueError):
    """The request is invalid or impossible."""

    exit_code = 2
    kind = "usage"


class UnreachableError(Error, ConnectionError):
    """No sabul of this version answers, or the other end fell silent."""

    exit_code = 3
    kind = "unreachable"


class AuthenticationError(Error):
    """One end does not accept the other: wrong ticket, key or password."""

    exit_code = 4
    kind = "authentication"


class VerificationError(Error):
    """The content that arrived differs from the content that was sent."""

    exit_code = 5
    kind = "verification"


class DestinationError(Error, OSError):
    """The destination has no space or does not permit the write."""

    exit_code = 6
    kind = "destination"


class TooSlowError(Error):
    """The transfer was slower than `min_rate_bps`."""

    exit_code = 7
    kind = "too-slow"


class InterruptError(Error):
    """A person at the other end stopped the operation, or the transfer was cancelled here."""

    exit_code = 130
    kind = "interrupted"


_OF_KIND: dict[str, type[Error]] = {
    "failed": FailedError,
    "internal": FailedError,
    "usage": UsageError,
    "unreachable": UnreachableError,
    "authentication": AuthenticationError,
    "verification": VerificationError,
    "destination": DestinationError,
    "too-slow": TooSlowError,
    "interrupted": InterruptError,
}
_OF_CODE: dict[str, type[Error]] = {"not-found": NotFoundError, "exists": ExistsError}
# Kinds of failures of single files that are not `failed`.
_KIND_OF_CODE = {
    "verification": "verification",
    "no-space": "destination",
    "permission": "destination",
    "internal": "internal",
}


def _make(kind: str, code: str, message: str) -> Error:
    """Returns the exception of this cause; also called by the extension module."""
    found = _OF_CODE.get(code, _OF_KIND.get(kind, FailedError))
    error = found(message)
    error.kind = kind
    error.code = code
    return error


def _of_file(code: str, message: str) -> Error:
    """Returns the exception for a failed file."""
    return _make(_KIND_OF_CODE.get(code, "failed"), code, message)


def _of_report(report: Report) -> Error:
    """Returns the exception of a transfer in which files failed: the gravest failure decides."""
    errors = [_of_file(failure.code, failure.message) for failure in report.errors]
    gravest = max(errors, key=lambda error: error.exit_code, default=FailedError(""))
    first = next((str(error) for error in errors if error.code == gravest.code), "")
    entries = "entry" if report.failed == 1 else "entries"
    error = _make(gravest.kind, gravest.code, f"{report.failed} {entries} failed: {first}")
    error.report = report
    return error
