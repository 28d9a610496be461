"""A store of rollups: a folder, or a bucket that fsspec can open (`s3://`, `gs://`, `az://`, ...).

The only module that lists, reads and writes objects. What counts is decided by `manifest`. Paths are relative to the
store and use `/`. DuckDB reads local files itself, and others through the same fsspec file system, so that one set of
credentials serves both.

Listings are never cached: a compaction has to see what came a second ago.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from . import contract, manifest
from .errors import FleetError, UsageError
from .manifest import Manifest

_TEMPORARY = ".part-"
_CLIENTS = {"botocore", "aiobotocore", "aiohttp", "google", "gcsfs", "azure"}
"""Modules whose errors come from a store."""


@dataclass(frozen=True)
class Entry:
    """An object: path below the store, size, and when it was last written, in seconds since 1970."""

    path: str
    size_bytes: int
    written_s: float


class Store:
    """Lists, reads and writes the objects of one store."""

    def __init__(self, fs: Any, root: str, url: str) -> None:
        """`root` is the store's path as `fs` has it; `url` is what people know it by."""
        self.fs = fs
        self.root = root.rstrip("/")
        self.url = url
        self.is_local = _protocol(fs) == "file"

    # Names.

    def full(self, path: str) -> str:
        """The path as the file system has it."""
        return f"{self.root}/{path}" if path else self.root

    def uri(self, path: str) -> str:
        """The name by which DuckDB and Spark open an object."""
        return self.full(path) if self.is_local else f"{_protocol(self.fs)}://{self.full(path)}"

    def relative(self, full: str) -> str:
        """The path below the store, of a path or URI of the file system."""
        stripped = str(self.fs._strip_protocol(full))
        return stripped[len(self.root) + 1 :] if stripped.startswith(self.root + "/") else stripped

    # Reading.

    def is_there(self) -> bool:
        """Whether there is anything under the store's address."""
        with _explained(f"list {self.url}"):
            return bool(self.fs.exists(self.full(contract.ROOT)) or self.fs.exists(self.root))

    def exists(self, path: str) -> bool:
        """Whether there is an object of this path."""
        with _explained(f"read {self.url}/{path}"):
            return bool(self.fs.exists(self.full(path)))

    def entries(self, directory: str) -> Iterator[Entry]:
        """All objects below a folder, in no order; none if there is no such folder."""
        if self.is_local:
            yield from self._local_entries(directory)
            return
        with _explained(f"list {self.url}/{directory}"):
            found = self.fs.find(self.full(directory), detail=True, refresh=True)
        for full, info in found.items():
            if info["type"] == "file":
                yield Entry(self.relative(full), int(info["size"]), _written_s(info))

    def _local_entries(self, directory: str) -> Iterator[Entry]:
        """As `entries`. Several times as fast as fsspec's, which matters with one object for each host and hour."""
        with _explained(f"list {self.url}/{directory}"):
            pending = [self.full(directory)]
            while pending:
                try:
                    with os.scandir(pending.pop()) as found:
                        for item in found:
                            if item.is_dir(follow_symlinks=False):
                                pending.append(item.path)
                                continue
                            with contextlib.suppress(FileNotFoundError):
                                stat = item.stat()
                                yield Entry(item.path[len(self.root) + 1 :], stat.st_size, stat.st_mtime)
                except FileNotFoundError:
                    continue

    def folders(self, directory: str) -> list[str]:
        """Names of the folders in a folder, sorted."""
        with _explained(f"list {self.url}/{directory}"):
            try:
                infos = self.fs.ls(self.full(directory), detail=True, refresh=True)
            except FileNotFoundError:
                return []
        return sorted(str(info["name"]).rstrip("/").rsplit("/", 1)[-1] for info in infos if info["type"] == "directory")

    def read(self, path: str) -> bytes:
        """An object's bytes. Raises `FileNotFoundError` if it is not there."""
        with _explained(f"read {self.url}/{path}"):
            return bytes(self.fs.cat_file(self.full(path)))

    def tables(self) -> list[str]:
        """Tables that have objects, also those that this version does not know."""
        names = self.folders(contract.ROOT)
        return [name for name in names if not name.startswith("_") and not contract.is_hourly(name)]

    def dates(self, table: str) -> list[dt.date]:
        """Days of which a table has objects, in order."""
        dates = (contract.date_of_dir(name) for name in self.folders(contract.table_dir(table)))
        return sorted(date for date in dates if date is not None)

    def manifests(self, table: str, date: dt.date) -> list[tuple[int, Entry]]:
        """The manifests of a table and day with their numbers, in order."""
        entries = self.entries(contract.manifest_dir(table, date))
        numbered = ((contract.parse_manifest(entry.path), entry) for entry in entries)
        return sorted(((number, entry) for number, entry in numbered if number is not None), key=lambda pair: pair[0])

    def manifest(self, table: str, date: dt.date) -> Manifest:
        """The valid manifest of a table and day."""
        # A compaction may remove old manifests between the listing and the read. There is a newer one then.
        for _ in range(3):
            numbered = self.manifests(table, date)
            if not numbered:
                return manifest.none_yet(table, date)
            path = numbered[-1][1].path
            with contextlib.suppress(FileNotFoundError):
                return manifest.parse(self.read(path), path)
        raise FleetError(
            f"read manifests of {table} of {date} in {self.url}: they vanish as they are listed; try again"
        )

    def counting(self, table: str, date: dt.date) -> list[str]:
        """The objects of a table and day that count, sorted. Reads the manifest first: see the comment inside."""
        # The other way round, a compaction in between could add objects of hosts that the listing lacks.
        valid = self.manifest(table, date)
        return manifest.counting(valid, (entry.path for entry in self.entries(contract.day_dir(table, date))))

    def hourly(self, table: str, date: dt.date) -> set[str]:
        """The siblings with sums by hour of a table and day, whether or not their objects count."""
        if table not in contract.HOURLY:
            return set()
        entries = self.entries(contract.hourly_path(contract.day_dir(table, date)))
        return {entry.path for entry in entries if contract.parse_object(entry.path) is not None}

    # Writing.

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Creates an object as a whole. Returns whether it is there with these bytes: `False` if another has the name.

        An equal object counts as created: if the answer to a put was lost, its repeat finds what it has put itself.
        """
        if self._create(path, data):
            return True
        try:
            return self.read(path) == data
        except FileNotFoundError:
            return False

    def _create(self, path: str, data: bytes) -> bool:
        with _explained(f"create {self.url}/{path}"):
            if self.is_local:
                return _link_new(Path(self.full(path)), data)
            try:
                self.fs.pipe_file(self.full(path), data, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                if _is_precondition(error):
                    return False
                raise
            return True

    def put_file(self, path: str, source: Path) -> None:
        """Stores a file under a name that is derived from its inputs, as a whole. What is there already is equal, and
        stays.
        """
        with _explained(f"create {self.url}/{path}"):
            if self.fs.exists(self.full(path)):
                return
            if self.is_local:
                target = Path(self.full(path))
                target.parent.mkdir(parents=True, exist_ok=True)
                _sync(source)
                source.replace(target)
                return
            self.fs.put_file(str(source), self.full(path))

    def remove(self, paths: Iterable[str]) -> int:
        """Removes objects, and returns how many there were. One that is gone already is no error."""
        count = 0
        for path in paths:
            with _explained(f"remove {self.url}/{path}"), contextlib.suppress(FileNotFoundError):
                self.fs.rm_file(self.full(path))
                count += 1
        return count

    def leftovers(self, directory: str, before_s: float) -> list[str]:
        """Local files that a killed writer left unfinished before that time."""
        if not self.is_local:
            return []
        entries = self.entries(directory)
        return sorted(entry.path for entry in entries if _TEMPORARY in entry.path and entry.written_s < before_s)

    def part_dir(self, directory: str) -> Path | None:
        """Where to write a file that is to be stored in this folder; `None` if anywhere does.

        A local file gets its name by renaming, which takes the same file system. The name marks it as unfinished.
        """
        if not self.is_local:
            return None
        path = Path(self.full(directory))
        path.mkdir(parents=True, exist_ok=True)
        return path


def part_name() -> str:
    """A new name for a file that is not finished."""
    return f"{_TEMPORARY}{uuid.uuid4().hex}"


def open_store(url: str, options: dict[str, Any] | None = None) -> Store:
    """Opens a store by its address: a path, or a URL whose scheme fsspec knows. `options` go to the file system."""
    if not url:
        raise UsageError(
            "no store: give --store, or set ISOTHERM_FLEET_STORE, to a folder or a URL such as s3://bucket/prefix"
        )
    is_path = "://" not in url
    try:
        extra = {} if is_path else {"use_listings_cache": False}
        fs, root = fsspec.core.url_to_fs(str(Path(url).absolute()) if is_path else url, **extra, **(options or {}))
    except ImportError as error:
        raise FleetError(
            f"open {url}: {error}; install what fsspec needs for it, such as isotherm-fleet[s3]"
        ) from error
    except ValueError as error:
        raise UsageError(f"open {url}: {error}") from error
    store = Store(fs, str(root), url)
    if store.is_local and not Path(store.root).is_dir():
        raise FleetError(f"open {url}: no such folder; give the folder that holds {contract.ROOT}/")
    return store


def _protocol(fs: Any) -> str:
    name = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    return "file" if name in ("file", "local") else str(name)


def _written_s(info: dict[str, Any]) -> float:
    """When an object was last written; each file system has a key of its own for it."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = info.get(key)
        if isinstance(value, dt.datetime):
            return value.timestamp()
        if isinstance(value, str):
            return dt.datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
        if isinstance(value, (int, float)):
            return float(value)
    raise FleetError(f"list {info.get('name')}: the store gives no time of writing, which removal needs")


def _link_new(target: Path, data: bytes) -> bool:
    """Creates a file with all of its bytes, unless there is one: a link is made only if the name is free."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.parent / part_name()
    try:
        part.write_bytes(data)
        _sync(part)
        os.link(part, target)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _is_precondition(error: OSError) -> bool:
    """Whether a store refused a put because the name is taken. s3fs reports it as an `OSError` with the code of the
    answer.

    409 is another put of the same name that has not ended: of two at once at most one may succeed, so this one has
    failed.
    """
    text = f"{error} {error.__cause__}"
    return any(
        code in text
        for code in ("PreconditionFailed", "ConditionalRequestConflict", "At least one of the pre-conditions")
    )


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns an error of the file system into one that says what was attempted."""
    try:
        yield
    except FileNotFoundError:
        raise
    except PermissionError as error:
        raise FleetError(
            f"{what}: permission denied ({error}); check the credentials and the rights of the store"
        ) from error
    except Exception as error:
        # Clients of object stores raise errors of their own. Anything else is a bug, and shows its traceback.
        is_of_client = type(error).__module__.split(".")[0] in _CLIENTS
        if is_of_client or (isinstance(error, OSError) and not isinstance(error, FileExistsError)):
            raise FleetError(f"{what}: {error or type(error).__name__}") from error
        raise
