"""Which objects of a table and day count.

Pure: paths in, decisions out. `store` lists and reads, `compact` publishes. A manifest replaces the one before it as
a whole, so a reader needs only the one of the greatest number, and sees either all of a compaction or nothing of it.

Three rules make removal safe beside readers and other compactions:

1. What does not count by a manifest never counts by a later one. Names of hosts' objects stay in `replaced` for good,
so an object that a host sends once more after its removal does not count twice.
2. The name of a compacted object begins with the number of the manifest that it was made for. Once a manifest of that
number is there, the object is in it or will never be in any. So what an interrupted compaction left behind can be
told from what another one is about to publish.
3. Removal goes by a manifest that is older than the grace period, so a query that began before it has ended or given
up.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from .contract import VERSION, ObjectName, check_version, manifest_path, parse_object
from .errors import FleetError


@dataclass(frozen=True)
class Manifest:
    """What counts of a table and day, next to the objects of hosts that are not in `replaced`."""

    table: str
    date: dt.date
    number: int
    live: frozenset[str] = field(default_factory=frozenset)
    replaced: frozenset[str] = field(default_factory=frozenset)

    @property
    def path(self) -> str:
        """Where it is stored, below the store."""
        return manifest_path(self.table, self.date, self.number)

    def to_json(self) -> bytes:
        """The file, with sorted names: equal manifests have equal bytes."""
        content = {
            "version": VERSION,
            "table": self.table,
            "date": self.date.isoformat(),
            "number": self.number,
            "live": sorted(self.live),
            "replaced": sorted(self.replaced),
        }
        return json.dumps(content, indent=0).encode()

    def counts(self, name: ObjectName) -> bool:
        """Whether an object counts while this manifest is the valid one."""
        if name.hour is not None:
            return name.path not in self.replaced
        return name.path in self.live

    def is_dead(self, name: ObjectName) -> bool:
        """Whether an object counts neither now nor by any manifest to come (rules 1 and 2)."""
        if name.hour is not None:
            return name.path in self.replaced
        return name.path not in self.live and name.number <= self.number


def parse(data: bytes, path: str) -> Manifest:
    """A manifest from its file. `path` is for errors, and has to agree with the contents."""
    try:
        content = json.loads(data)
        check_version(content["version"], path)
        manifest = Manifest(
            str(content["table"]),
            dt.date.fromisoformat(content["date"]),
            int(content["number"]),
            frozenset(map(str, content["live"])),
            frozenset(map(str, content["replaced"])),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise FleetError(
            f"read {path}: not a manifest ({type(error).__name__}: {error}); restore it, or remove it "
            "if no object was removed on its account yet"
        ) from error
    if manifest.path != path:
        raise FleetError(f"read {path}: its contents are those of {manifest.path}; it was copied or renamed: remove it")
    return manifest


def none_yet(table: str, date: dt.date) -> Manifest:
    """What is valid before the first compaction: number 0, by which all objects of hosts count."""
    return Manifest(table, date, 0)


def counting(manifest: Manifest, paths: Iterable[str]) -> list[str]:
    """The objects that count, sorted: those of hosts among `paths`, and those that the manifest lists as live.

    Live objects need not be in `paths`: one that is missing has to be an error of the reader, and not be overlooked.
    """
    names = [name for name in map(parse_object, paths) if name is not None and name.hour is not None]
    of_hosts = {name.path for name in names if manifest.counts(name)}
    return sorted(of_hosts | manifest.live)


def dead(manifest: Manifest, paths: Iterable[str]) -> list[str]:
    """The objects among `paths` that can be removed once `manifest` is older than the grace period, sorted."""
    names = (parse_object(path) for path in paths)
    return sorted(name.path for name in names if name is not None and manifest.is_dead(name))


def next_manifest(before: Manifest, live: Iterable[str], merged: Iterable[str]) -> Manifest:
    """The manifest after a compaction that has put `merged` objects of hosts into those that are now `live`."""
    replaced = before.replaced | frozenset(merged)
    return Manifest(before.table, before.date, before.number + 1, frozenset(live), replaced)


def object_name(number: int, bucket: str, inputs: Iterable[str]) -> str:
    """The name of a compacted object: its manifest's number, then a hash of what went into it. A repeat gives the
    same name.
    """
    digest = hashlib.sha256("\n".join([bucket, *sorted(inputs)]).encode()).hexdigest()
    return f"{number:08x}{digest[:24]}"
