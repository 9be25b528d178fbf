"""Communication of Dask over sabul: addresses with `sabul://` in place of `tcp://`.

    dask scheduler --protocol sabul
    dask worker sabul://head:8786 --protocol sabul
    client = distributed.Client("sabul://head:8786")

Messages use TCP, or TLS if the cluster has certificates. Frames of one MiB or more, such as columns of a data frame,
use encrypted streams of sabul between the same machines. If no stream can be opened, these frames use TCP, too.

Settings below `sabul.comm` in the configuration of Dask: `min-frame`, size of the smallest frame in a stream
("1 MiB"); `ports`, ports of the listeners for streams ("4850-4949"); `same-host`, streams within a machine (false).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakValueDictionary

import dask
from dask.utils import parse_bytes
from distributed.comm.addressing import parse_address, parse_host_port, unparse_host_port
from distributed.comm.core import Comm, CommClosedError, Connector
from distributed.comm.tcp import TCP, TLS, TCPBackend, TCPConnector, TCPListener, TLSConnector, TLSListener
from distributed.comm.utils import from_frames, to_frames
from distributed.sizeof import safe_sizeof
from distributed.utils import ensure_memoryview, nbytes

from . import _sabul
from .errors import Error, UsageError

__all__ = ["Backend"]

logger = logging.getLogger(__name__)

_PREFIX = "sabul://"
# Key of the ticket in the handshake.
_TICKET = "sabul-ticket"
# Key of a message whose large frames follow as a stream, with the name of the stream.
_STREAM = "sabul-stream"
# Key of a message without content: the peer has a session, or should connect.
_HINT = "sabul-hint"
_READY, _CONNECT = "ready", "connect"
# Bytes in one call of the extension module.
_PIECE_BYTES = 1 << 20
# Seconds between looks at the connection of a message, while a stream of the message is under way. Ours: the last
# confirmation of a stream may arrive after the end of its connection.
_LOOK_S = 1.0
# Seconds until a peer that cannot be reached is tried again.
_RETRY_S = 60.0


def _setting(name: str, default: Any) -> Any:
    return dask.config.get(f"sabul.comm.{name}", default)


def _ports() -> tuple[int, int]:
    text = str(_setting("ports", "4850-4949"))
    first, _, last = text.partition("-")
    with suppress(ValueError):
        return int(first), int(last or first)
    raise UsageError(f"sabul.comm.ports '{text}' is no range of ports; write FIRST-LAST")


class _Peer:
    """Session with the listener of another process, shared by all connections from this event loop to it."""

    def __init__(self) -> None:
        self.session: _sabul.FrameSession | None = None
        self._lock = asyncio.Lock()
        self._failed_at = -_RETRY_S

    async def connect(self, ticket: str, address: str) -> _sabul.FrameSession | None:
        """Returns the session; `None` if the peer cannot be reached."""
        async with self._lock:
            if self.session is None and time.monotonic() >= self._failed_at + _RETRY_S:
                try:
                    self.session = await _sabul.connect_frames(ticket, address)
                except Error as error:
                    self._failed_at = time.monotonic()
                    logger.warning("frames for %s use TCP, because sabul cannot connect: %s", address, error)
            return self.session


# Peers by event loop and ticket. A peer exists as long as a connection uses it.
_peers: WeakValueDictionary[tuple[int, str], _Peer] = WeakValueDictionary()


class _Framed(Comm):  # type: ignore[misc]
    """Connection that sends the large frames of its messages as streams.

    The side that listens has a listener for streams. The other side has a session with that listener, and sends and
    requests streams. It connects with the first large message.
    """

    listener: _sabul.FrameListener | None = None
    """Listener of the side that listens."""
    _peer: _Peer | None = None
    """Peer of the other side, after its first large message."""
    _is_ready = False
    """Whether both sides know that there is a session."""
    _has_asked = False
    """Whether the side that listens has asked the other one to connect."""
    _connecting: asyncio.Task[Any] | None = None

    def handshake_info(self) -> dict[str, Any]:
        """Adds the ticket of the listener."""
        info: dict[str, Any] = super().handshake_info()
        if self.listener is not None:
            info[_TICKET] = [self.listener.ticket, self.listener.port]
        return info

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        """Writes a message, and returns its number of bytes."""
        limit = parse_bytes(_setting("min-frame", "1 MiB"))
        end = await self._end(is_large=safe_sizeof(msg, default_size=limit) >= limit)
        if end is None:
            return int(await super().write(msg, serializers, on_error))
        frames = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context={"sender": self.local_info, "recipient": self.remote_info, **self.handshake_options},
            frame_split_size=self.max_shard_size,
        )
        sizes = [nbytes(frame) for frame in frames]
        large = [at for at, size in enumerate(sizes) if size >= limit]
        small = [b"" if size >= limit else bytes(frame) for frame, size in zip(frames, sizes, strict=True)]
        name = secrets.token_hex(16)
        await super().write({_STREAM: name, "frames": small, "large": [(at, sizes[at]) for at in large]})
        if large:
            with self._aborted_by_errors():
                writer = await self._while_open(end.send(name))
                try:
                    for piece in _pieces(frames[at] for at in large):
                        await self._while_open(writer.write(piece))
                    await self._while_open(writer.finish())
                finally:
                    # Without effect after `finish`.
                    writer.cancel()
        return sum(sizes)

    async def read(self, deserializers: Any = None) -> Any:
        """Reads a message."""
        while True:
            message = await super().read(deserializers)
            if not isinstance(message, dict):
                return message
            if _STREAM in message:
                break
            if _HINT not in message:
                return message
            if message[_HINT] == _READY:
                self._is_ready = True
            elif self._connecting is None:
                # The next message of this side announces the session.
                self._connecting = asyncio.create_task(self._connect())
        frames = list(message["frames"])
        if large := message["large"]:
            with self._aborted_by_errors():
                end = self.listener or await self._connect()
                if end is None:
                    raise CommClosedError(f"in {self}: the peer sends a stream, and sabul cannot connect to the peer")
                found = await self._while_open(end.receive(message[_STREAM], [size for _, size in large]))
            for (at, _), frame in zip(large, found, strict=True):
                frames[at] = frame
        return await from_frames(
            frames, deserialize=self.deserialize, deserializers=deserializers, allow_offload=self.allow_offload
        )

    def abort(self) -> None:
        """Closes the connection at once."""
        self._forget()
        super().abort()

    def close(self) -> Any:
        """Closes the connection after its last bytes."""
        self._forget()
        return super().close()

    def _forget(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self._peer = None

    async def _end(self, is_large: bool) -> _sabul.FrameListener | _sabul.FrameSession | None:
        """Returns the end that sends the frames of a message; `None` for TCP."""
        if self.listener is not None:
            if is_large and not (self._is_ready or self._has_asked or self._is_near()):
                self._has_asked = True
                await super().write({_HINT: _CONNECT})
            return self.listener if is_large and self._is_ready else None
        session = await self._connect() if is_large else self._peer.session if self._peer else None
        if session is not None and not self._is_ready:
            self._is_ready = True
            await super().write({_HINT: _READY})
        return session if is_large else None

    async def _connect(self) -> _sabul.FrameSession | None:
        """Returns the session with the listener of the peer; `None` if there is none."""
        place = self.remote_info.get(_TICKET)
        if place is None or self._is_near():
            return None
        ticket, port = place
        if self._peer is None:
            key = id(asyncio.get_running_loop()), ticket
            self._peer = _peers.get(key) or _peers.setdefault(key, _Peer())
        host, _ = parse_host_port(parse_address(self.peer_address)[1])
        return await self._peer.connect(ticket, unparse_host_port(host, port))

    def _is_near(self) -> bool:
        return bool(self.same_host) and not _setting("same-host", False)

    async def _while_open(self, part: Awaitable[Any]) -> Any:
        """Returns the result of a part of a stream. Raises CommClosedError if the connection is closed meanwhile:
        the peer then does not read the message, and so never takes or opens the stream."""
        task = asyncio.ensure_future(part)
        was_closed = False
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
                if was_closed:
                    raise CommClosedError(f"in {self}: the connection was closed before all frames of a message")
                was_closed = self.closed()
            return task.result()
        finally:
            task.cancel()

    @contextmanager
    def _aborted_by_errors(self) -> Iterator[None]:
        """Aborts the connection after an error, because both sides then differ about what was sent."""
        peer = self._peer
        try:
            yield
        except BaseException as error:
            if peer is not None:
                # The next connection makes another session.
                peer.session = None
            self.abort()
            if isinstance(error, Error):
                raise CommClosedError(f"in {self}: {error}") from error
            raise


def _pieces(frames: Iterable[Any]) -> Iterator[bytes]:
    for frame in frames:
        view = ensure_memoryview(frame)
        for at in range(0, view.nbytes, _PIECE_BYTES):
            yield bytes(view[at : at + _PIECE_BYTES])


class _Plain(_Framed, TCP):  # type: ignore[misc]
    pass


class _Encrypted(_Framed, TLS):  # type: ignore[misc]
    pass


class _PlainConnector(TCPConnector):  # type: ignore[misc]
    prefix = _PREFIX
    comm_class = _Plain


class _EncryptedConnector(TLSConnector):  # type: ignore[misc]
    prefix = _PREFIX
    comm_class = _Encrypted


class _Listens:
    """Part of a listener that also listens for streams."""

    streams: _sabul.FrameListener | None = None

    async def start(self) -> None:
        await super().start()  # type: ignore[misc]
        # The streams have the address of the listener.
        host = self.get_host_port()[0]  # type: ignore[attr-defined]
        try:
            self.streams = _sabul.listen_frames(host, _ports())
        except Error:
            self.stop()
            raise

    def stop(self) -> None:
        super().stop()  # type: ignore[misc]
        self.streams = None

    async def on_connection(self, comm: Any, handshake_overrides: dict[str, Any] | None = None) -> None:
        comm.listener = self.streams
        await super().on_connection(comm, handshake_overrides)  # type: ignore[misc]


class _PlainListener(_Listens, TCPListener):  # type: ignore[misc]
    prefix = _PREFIX
    comm_class = _Plain


class _EncryptedListener(_Listens, TLSListener):  # type: ignore[misc]
    prefix = _PREFIX
    comm_class = _Encrypted


class _Connector(Connector):  # type: ignore[misc]
    async def connect(self, address: str, deserialize: bool = True, **connection_args: Any) -> Any:
        connector = _EncryptedConnector() if _has_certificates(connection_args) else _PlainConnector()
        return await connector.connect(address, deserialize, **connection_args)


class Backend(TCPBackend):  # type: ignore[misc]
    """Backend for the entry point `distributed.comm.backends`."""

    _connector_class = _Connector

    def get_listener(
        self, loc: str, handle_comm: Callable[..., Any], deserialize: bool, **connection_args: Any
    ) -> TCPListener:
        """Returns a listener, with TLS if there are certificates."""
        kind = _EncryptedListener if _has_certificates(connection_args) else _PlainListener
        return kind(loc, handle_comm, deserialize, **connection_args)


def _has_certificates(connection_args: dict[str, Any]) -> bool:
    return isinstance(connection_args.get("ssl_context"), ssl.SSLContext)
