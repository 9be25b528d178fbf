"""Paths of universal-pathlib: `UPath("sabul://host/path")` works as `pathlib.Path`, over the file system of fsspec.

    from upath import UPath

    for path in UPath("sabul://me@far/data").glob("*.csv"):
        print(path, path.stat().st_size)

The entry point `universal_pathlib.implementations` names the class, so no import of this module is needed.
"""

from __future__ import annotations

from typing import Any, Self

import fsspec
from upath import UPath

from .errors import ExistsError, UsageError
from .fs import SabulFileSystem, url_of

__all__ = ["SabulPath"]

# universal-pathlib takes the rules of paths from the classes that fsspec has loaded.
fsspec.register_implementation("sabul", SabulFileSystem, clobber=True)


class SabulPath(UPath):
    """A path at a server. Keyword arguments are those of `SabulFileSystem`."""

    __slots__ = ()

    def __str__(self) -> str:
        """The URL of the path, which names the server; a relative path is its text."""
        if self._relative_base is not None:
            return super().__str__()
        return url_of(self.storage_options.get("address"), self.path)

    def rename(self, target: Any, **kwargs: Any) -> Self:
        """Renames a file or directory in one step, and replaces a file `target`.

        A `target` without a protocol is a path at the same server. Raises UsageError if the target is at another
        server, and ExistsError if the target is a directory.
        """
        found = self._at_server(target)
        if found == self:
            return found
        if found.is_dir():
            raise ExistsError(f"'{found}' is a directory; name the new path itself")
        return super().rename(found, **kwargs)

    def replace(self, target: Any) -> Self:
        """As `rename`."""
        return self.rename(target)

    def _at_server(self, target: Any) -> Self:
        """Returns a path at the server of this path."""
        if isinstance(target, SabulPath):
            is_here = target.storage_options == self.storage_options
            path = str(target) if target._relative_base is not None else target.path
        else:
            text = str(target)
            given = SabulFileSystem._get_kwargs_from_urls(text)
            is_here = text.startswith("sabul://") and given.get("address") == self.storage_options.get("address")
            is_here = is_here or "://" not in text
            path = SabulFileSystem._strip_protocol(text)
        if not is_here:
            raise UsageError(f"'{target}' is not at the server of '{self}'; copy the file, then remove it")
        return self.with_segments(path)
