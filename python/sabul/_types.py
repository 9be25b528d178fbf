"""Values of the package: options, results, progress, listings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, TypedDict

from . import _program, _sabul, errors

Path: TypeAlias = str | bytes | os.PathLike[str]
"""A path on this machine or at the server. Bytes that are no UTF-8 are kept, as in `os.fsdecode`."""
Paths: TypeAlias = Path | Sequence[Path]
"""One path or several."""


class Reach(TypedDict, total=False):
    """Keyword arguments of a connection; the names are those of the program's flags."""

    ticket_file: str | os.PathLike[str] | None
    """Ticket file of the server; also by the variable SABUL_TICKET_FILE."""
    identity: str | os.PathLike[str]
    """Private key, in place of those that ssh would use."""
    ssh: str
    """Command of ssh with its options, such as `ssh -p 2222`."""
    remote_sabul: str
    """Path of the program on the far machine."""
    push: str | os.PathLike[str] | bool
    """Upload the program of this package to the far machine, or the program at this path."""
    carrier: Literal["auto", "udp", "tcp", "ssh"]
    """Carrier of the data."""
    bind: Sequence[str]
    """Local addresses; with several, the data use a path from each."""
    timeout_s: float
    """Silence of the other end that ends the session."""
    relay: bool
    """Let the introducer of the ticket relay the data if UDP does not pass."""


class Options(TypedDict, total=False):
    """Keyword arguments of a transfer; the names are those of the flags of `sabul cp`."""

    archive: bool
    bwlimit_bps: int
    carrier: Literal["auto", "udp", "tcp", "ssh"]
    cc: str
    cc_params: Mapping[str, str]
    copy_links: bool
    exclude: Sequence[str]
    """Patterns of names that are not copied."""
    growing: bool
    hard_links: bool
    include: Sequence[str]
    """Patterns of names that are copied although `exclude` matches."""
    min_rate_bps: int
    policy: Literal["fair", "high", "low"]
    preserve: bool
    read_back: bool
    resume: bool
    sync: bool
    tcp: int
    """Number of TCP connections, 1 to 16."""


class CopyOptions(Reach, Options, total=False):
    """Keyword arguments of a copy: those of its connection and of its transfer."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that failed."""

    path: str
    code: str
    """Word of the failure class, such as `not-found`."""
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a transfer; the names are those of `sabul cp --json` (docs/manual/json.md)."""

    bytes: int
    """Content bytes that arrived, including `resumed_bytes`."""
    files: int
    failed: int
    seconds: float
    waited_s: float
    """Part of `seconds` in line at the server."""
    goodput_bps: float
    cc: str
    rtt_ms_min: float
    rtt_ms: float
    loss_rate: float
    packets_sent: int
    packets_retransmitted: int
    packets_lost: int
    packets_overflowed: int
    mtu: int
    resumed_bytes: int
    """Part of `bytes` that existed before the transfer."""
    grown: int
    verified: bool
    """Every file that arrived matched its hash."""
    durable: bool
    """Every file that arrived is on the disk of the receiver with its name."""
    durable_bytes: int
    carrier: str
    carrier_reason: str
    relayed_bytes: int
    paths: int
    limiter: dict[str, float]
    """Share of the time by limiter; empty if this side received."""
    cpu_seconds_sender: float | None
    cpu_seconds_receiver: float | None
    not_kept: dict[str, Any]
    errors: tuple[Failure, ...]

    @classmethod
    def _of(cls, document: str) -> Report:
        """Reads the JSON of the extension module; raises if files failed."""
        report = cls._read(json.loads(document)["report"])
        if report.failed:
            raise errors._of_report(report)
        return report

    @classmethod
    def _read(cls, values: dict[str, Any]) -> Report:
        known = {field.name: values[field.name] for field in fields(Report)}
        known["errors"] = tuple(Failure(**failure) for failure in values["errors"])
        return Report(**known)


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval of a measurement, counted at the receiver."""

    t_s: float
    """End of the interval, in seconds since the start."""
    goodput_bps: float
    rtt_ms: float
    loss_rate: float
    gap_ns: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of `perf`."""

    report: Report
    role: Literal["sender", "receiver"]
    """Role of this side."""
    intervals: tuple[Interval, ...]

    @classmethod
    def _of(cls, document: str, role: Literal["sender", "receiver"]) -> Measurement:
        values = json.loads(document)
        intervals = tuple(Interval(**interval) for interval in values["intervals"])
        return cls(Report._read(values["report"]), role, intervals)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a running transfer; the names are those of `sabul cp --json-lines`."""

    bytes: int
    resumed_bytes: int
    durable_bytes: int
    bytes_total: int | None
    files: int
    entries: int
    entries_total: int | None
    failed: int
    is_total_certain: bool
    """If false, the totals are lower bounds."""
    seconds: float
    place: int | None
    """Place in line at the server, from 1."""
    rtt_ms: float
    loss_rate: float
    carrier: str
    goodput_bps: float
    """Goodput since the previous progress."""


class Meter:
    """Reads the progress of one transfer, and computes the goodput between two readings."""

    def __init__(self) -> None:
        self._last = (0.0, 0)

    def read(self, document: str) -> Progress:
        """Returns the progress in this JSON document."""
        values = json.loads(document)
        at_s, arrived = values["seconds"], values["bytes"] - values["resumed_bytes"]
        (since_s, before), self._last = self._last, (at_s, arrived)
        goodput_bps = (arrived - before) * 8 / (at_s - since_s) if at_s > since_s else 0.0
        return Progress(**values, goodput_bps=max(goodput_bps, 0.0))


ProgressCallback: TypeAlias = Callable[[Progress], object]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a listing at the server."""

    path: str
    """Path as a copy would name it."""
    kind: Literal["file", "directory", "link", "other"]
    bytes: int
    mode: int
    """Permission bits."""
    modified_ns: int | None
    """Modification time in nanoseconds since 1970."""
    owner: int
    group: int

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]


def entries(rows: Iterable[_sabul._Row], onerror: Callable[[errors.Error], object] | None) -> list[Entry]:
    """Returns the entries of a listing. An entry that cannot be examined raises, or is passed to `onerror`."""
    found = []
    for path, facts, failure in rows:
        if facts is not None:
            found.append(Entry(os.fsdecode(path), *facts))
        elif failure is not None:
            error = errors._of_file(*failure)
            if onerror is None:
                raise error
            onerror(error)
    return found


def encode(path: Path) -> bytes:
    """Returns the bytes of a path."""
    return os.fsencode(path)


def several(paths: Paths) -> list[Path]:
    """Returns one or several paths as a list."""
    if isinstance(paths, str | bytes | os.PathLike):
        return [paths]
    return list(paths)


def checked(given: Mapping[str, Any], known: type, other: type | None = None) -> dict[str, Any]:
    """Returns the keyword arguments of `known` without those that are None.

    Raises TypeError for an argument that neither `known` nor `other` has.
    """
    names = set(known.__annotations__)
    allowed = names | set(other.__annotations__ if other else ())
    for name in given:
        if name not in allowed:
            raise TypeError(f"unexpected keyword argument '{name}'; known are {', '.join(sorted(allowed))}")
    # The extension module requires one item of its structs.
    found: dict[str, Any] = {"carrier": None}
    found |= {name: value for name, value in given.items() if name in names and value is not None}
    if isinstance(push := found.pop("push", None), bool):
        push = program() if push else None
    if push is not None:
        found["push"] = push
    if "cc_params" in found:
        found["cc_params"] = {key: str(value) for key, value in found["cc_params"].items()}
    return found


def program() -> str:
    """Returns the path of the program that was installed with this package."""
    if (found := _program.find()) is None:
        raise errors.UsageError("this package has no program sabul to upload; name a program with push='PATH'")
    return found


@dataclass(frozen=True, slots=True)
class Plan:
    """Direction and paths of a copy."""

    address: str
    is_put: bool
    sources: list[Path]
    destination: Path

    @classmethod
    def of(cls, src: Paths, dst: Path) -> Plan:
        """Finds the side of the server; exactly one side is remote."""
        sources = several(src)
        if not sources:
            raise errors.UsageError("no source: give at least one path")
        to = _sabul.split(os.fsdecode(dst))
        places = [_sabul.split(os.fsdecode(source)) for source in sources]
        if to is not None:
            if any(places):
                raise errors.UsageError("both sides are remote; copy to this machine first, then to the other one")
            return cls(to[0], True, sources, to[1])
        servers = {place[0] for place in places if place is not None}
        if not servers:
            raise errors.UsageError("both sides are local; write the remote one as HOST:PATH or sabul://HOST/PATH")
        if len(servers) > 1 or None in places:
            raise errors.UsageError("the sources are not on one host; copy from each host by itself")
        paths: list[Path] = [place[1] for place in places if place is not None]
        return cls(servers.pop(), False, paths, dst)
