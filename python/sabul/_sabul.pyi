# The extension module. Functions with `waits` block if true, and otherwise return an awaitable.
import builtins
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, final, overload

from .errors import Error

__all__ = ["Reads", "Session", "Transfer", "Upload", "__version__", "connect", "escape", "simulate", "split"]

__version__: str

_Kind: TypeAlias = Literal["file", "directory", "link", "other"]
_Facts: TypeAlias = tuple[_Kind, int, int, int | None, int, int]
_Row: TypeAlias = tuple[bytes, _Facts | None, tuple[str, str] | None]
_Rows: TypeAlias = list[_Row]
_Range: TypeAlias = tuple[bytes, int, int | None, int | None]
_Contents: TypeAlias = list[builtins.bytes | Error]

@overload
def connect(address: str | None, reach: Mapping[str, Any], waits: Literal[True]) -> Session: ...
@overload
def connect(address: str | None, reach: Mapping[str, Any], waits: Literal[False]) -> Awaitable[Session]: ...
@overload
def simulate(text: str, name: str, settings: Sequence[str], waits: Literal[True]) -> list[str]: ...
@overload
def simulate(text: str, name: str, settings: Sequence[str], waits: Literal[False]) -> Awaitable[list[str]]: ...
def split(place: str) -> tuple[str, bytes] | None: ...
def escape(path: bytes) -> bytes: ...

@final
class Session:
    @property
    def peer(self) -> str: ...
    @overload
    def put(
        self,
        sources: Sequence[str],
        destination: bytes,
        recursive: bool,
        options: Mapping[str, Any],
        waits: Literal[True],
    ) -> Transfer: ...
    @overload
    def put(
        self,
        sources: Sequence[str],
        destination: bytes,
        recursive: bool,
        options: Mapping[str, Any],
        waits: Literal[False],
    ) -> Awaitable[Transfer]: ...
    @overload
    def get(
        self,
        sources: Sequence[bytes],
        destination: str,
        recursive: bool,
        options: Mapping[str, Any],
        waits: Literal[True],
    ) -> Transfer: ...
    @overload
    def get(
        self,
        sources: Sequence[bytes],
        destination: str,
        recursive: bool,
        options: Mapping[str, Any],
        waits: Literal[False],
    ) -> Awaitable[Transfer]: ...
    @overload
    def upload(
        self, destination: bytes, options: Mapping[str, Any], waits: Literal[True]
    ) -> tuple[Upload, Transfer]: ...
    @overload
    def upload(
        self, destination: bytes, options: Mapping[str, Any], waits: Literal[False]
    ) -> Awaitable[tuple[Upload, Transfer]]: ...
    @overload
    def read(
        self, path: bytes, offset: int, length: int | None, options: Mapping[str, Any], waits: Literal[True]
    ) -> builtins.bytes: ...
    @overload
    def read(
        self, path: bytes, offset: int, length: int | None, options: Mapping[str, Any], waits: Literal[False]
    ) -> Awaitable[builtins.bytes]: ...
    @overload
    def read_ranges(self, ranges: Sequence[_Range], options: Mapping[str, Any], waits: Literal[True]) -> _Contents: ...
    @overload
    def read_ranges(
        self, ranges: Sequence[_Range], options: Mapping[str, Any], waits: Literal[False]
    ) -> Awaitable[_Contents]: ...
    @overload
    def open_ranges(self, ranges: Sequence[_Range], options: Mapping[str, Any], waits: Literal[True]) -> Reads: ...
    @overload
    def open_ranges(
        self, ranges: Sequence[_Range], options: Mapping[str, Any], waits: Literal[False]
    ) -> Awaitable[Reads]: ...
    @overload
    def list(self, paths: Sequence[bytes], view: str, waits: Literal[True]) -> _Rows: ...
    @overload
    def list(self, paths: Sequence[bytes], view: str, waits: Literal[False]) -> Awaitable[_Rows]: ...
    @overload
    def make_folders(self, paths: Sequence[bytes], parents: bool, waits: Literal[True]) -> None: ...
    @overload
    def make_folders(self, paths: Sequence[bytes], parents: bool, waits: Literal[False]) -> Awaitable[None]: ...
    @overload
    def remove(self, paths: Sequence[bytes], recursive: bool, waits: Literal[True]) -> None: ...
    @overload
    def remove(self, paths: Sequence[bytes], recursive: bool, waits: Literal[False]) -> Awaitable[None]: ...
    @overload
    def rename(self, old: bytes, new: bytes, replace: bool, waits: Literal[True]) -> None: ...
    @overload
    def rename(self, old: bytes, new: bytes, replace: bool, waits: Literal[False]) -> Awaitable[None]: ...
    @overload
    def measure(
        self, seconds: float | None, bytes: int | None, reverse: bool, options: Mapping[str, Any], waits: Literal[True]
    ) -> Transfer: ...
    @overload
    def measure(
        self, seconds: float | None, bytes: int | None, reverse: bool, options: Mapping[str, Any], waits: Literal[False]
    ) -> Awaitable[Transfer]: ...
    @overload
    def close(self, waits: Literal[True]) -> None: ...
    @overload
    def close(self, waits: Literal[False]) -> Awaitable[None]: ...

@final
class Reads:
    @overload
    def next(self, waits: Literal[True]) -> tuple[int, builtins.bytes | Error] | None: ...
    @overload
    def next(self, waits: Literal[False]) -> Awaitable[tuple[int, builtins.bytes | Error] | None]: ...

@final
class Transfer:
    def progress(self) -> str: ...
    def cancel(self) -> None: ...
    @overload
    def changed(self, waits: Literal[True]) -> str | None: ...
    @overload
    def changed(self, waits: Literal[False]) -> Awaitable[str | None]: ...
    @overload
    def finish(self, waits: Literal[True]) -> str: ...
    @overload
    def finish(self, waits: Literal[False]) -> Awaitable[str]: ...

@final
class Upload:
    @overload
    def write(self, bytes: builtins.bytes, waits: Literal[True]) -> None: ...
    @overload
    def write(self, bytes: builtins.bytes, waits: Literal[False]) -> Awaitable[None]: ...
    @overload
    def end(self, waits: Literal[True]) -> None: ...
    @overload
    def end(self, waits: Literal[False]) -> Awaitable[None]: ...
