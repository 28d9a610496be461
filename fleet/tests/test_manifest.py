"""Manifests: what counts, and that nothing counts twice or is lost in any order of deliveries, compactions and
removals.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import fsspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isotherm_fleet import contract, manifest
from isotherm_fleet.compact import Compactor, Options, Plan, expiry, plan
from isotherm_fleet.errors import FleetError
from isotherm_fleet.store import Entry, Store

DATE = dt.date(2026, 11, 10)
DAY = "v1/wss/date=2026-11-10"


def host_object(number: int, hour: int = 0) -> str:
    return f"{DAY}/hour={hour:02}/{number:032x}.parquet"


def test_without_a_manifest_all_objects_of_hosts_count_and_no_other_file() -> None:
    paths = [
        host_object(2),
        host_object(1),
        f"{DAY}/bucket=00/{7:032x}.parquet",
        f"{DAY}/hour=00/.part-1",
        f"{DAY}/hour=24/{1:032x}.parquet",
    ]
    assert manifest.counting(manifest.none_yet("wss", DATE), paths) == [host_object(1), host_object(2)]


def test_a_live_object_counts_even_if_it_is_not_listed() -> None:
    live = f"{DAY}/bucket=00/{1:08x}{0:024x}.parquet"
    valid = manifest.Manifest("wss", DATE, 1, frozenset([live]), frozenset([host_object(1)]))
    assert manifest.counting(valid, [host_object(1), host_object(2)]) == sorted([live, host_object(2)])


def test_an_object_of_a_compaction_to_come_is_not_dead() -> None:
    valid = manifest.Manifest("wss", DATE, 3)
    past, coming = (f"{DAY}/bucket=00/{number:08x}{0:024x}.parquet" for number in (3, 4))
    assert manifest.dead(valid, [past, coming]) == [past]


def test_a_manifest_survives_its_file_and_a_newer_version_is_refused_by_name() -> None:
    valid = manifest.Manifest("wss", DATE, 3, frozenset(["b", "a"]), frozenset([host_object(1)]))
    assert manifest.parse(valid.to_json(), valid.path) == valid
    newer = json.loads(valid.to_json()) | {"version": 2}
    with pytest.raises(FleetError, match=r"00000003\.json: it has version 2"):
        manifest.parse(json.dumps(newer).encode(), valid.path)
    with pytest.raises(FleetError, match="copied or renamed"):
        manifest.parse(valid.to_json(), valid.path.replace("00000003", "00000004"))
    for damaged in (b"", b"{", b"[]", b'{"version": 1}'):
        with pytest.raises(FleetError, match="not a manifest"):
            manifest.parse(damaged, valid.path)


def test_new_objects_are_appended_until_a_bucket_is_full() -> None:
    live = [f"{DAY}/bucket=00/{number:08x}{0:024x}.parquet" for number in (1, 2)]
    valid = manifest.Manifest("wss", DATE, 2, frozenset(live), frozenset([host_object(1)]))
    entries = [Entry(path, 100, 0.0) for path in [*live, host_object(1), host_object(2)]]
    appended = plan(valid, entries, max_per_bucket=3)
    assert appended is not None
    assert (appended.inputs, sorted(appended.kept)) == ((host_object(2),), live)
    whole = plan(valid, entries, max_per_bucket=2)
    assert whole is not None
    assert (list(whole.inputs), whole.kept) == (sorted([*live, host_object(2)]), ())
    assert whole.after([whole.output(0)]).replaced == {host_object(1), host_object(2)}
    assert plan(valid, entries[:3]) is None


def test_buckets_follow_the_size() -> None:
    entries = [Entry(host_object(n), 100, 0.0) for n in range(5)]
    for limit, buckets in ((500, 1), (499, 2), (124, 8), (1, 64)):
        planned = plan(manifest.none_yet("wss", DATE), entries, bucket_bytes=limit)
        assert planned is not None and planned.buckets == buckets


class ClockedStore(Store):
    """A store in memory whose objects have the time of a clock that the test moves."""

    def __init__(self) -> None:
        fs = fsspec.filesystem("memory", skip_instance_cache=True)
        fs.store, fs.pseudo_dirs = {}, [""]
        super().__init__(fs, "/fleet", "memory://fleet")
        self.now_s = 0.0
        self.written: dict[str, float] = {}

    def put(self, path: str, ids: list[int]) -> None:
        if not self.fs.exists(self.full(path)):
            self.fs.pipe_file(self.full(path), json.dumps(ids).encode())
            self.written[path] = self.now_s

    def put_if_absent(self, path: str, data: bytes) -> bool:
        created = super().put_if_absent(path, data)
        if created:
            self.written[path] = self.now_s
        return created

    def entries(self, directory: str) -> Any:
        for entry in super().entries(directory):
            yield Entry(entry.path, entry.size_bytes, self.written[entry.path])

    def relative(self, full: str) -> str:
        return full.removeprefix("/fleet/")


class Deliveries(RuleBasedStateMachine):
    """Hosts deliver, also the same object again after its removal; compactors plan, stall, publish, die and clean.

    At every moment the objects that count hold each delivered row once, and a query that is shorter than the grace
    period finds all objects that counted when it began.
    """

    GRACE_S = 10.0

    def __init__(self) -> None:
        super().__init__()
        self.store = ClockedStore()
        self.delivered: set[int] = set()
        self.stalled: list[Plan] = []
        self.reading: list[tuple[float, list[str], set[int]]] = []

    @rule(number=st.integers(0, 12))
    def deliver(self, number: int) -> None:
        self.delivered.add(number)
        self.store.put(host_object(number, number % 24), [number])

    @rule(max_per_bucket=st.integers(1, 3), bucket_bytes=st.sampled_from([4, 1000]))
    def begin(self, max_per_bucket: int, bucket_bytes: int) -> None:
        valid = self.store.manifest("wss", DATE)
        planned = plan(valid, list(self.store.entries(DAY)), max_per_bucket=max_per_bucket, bucket_bytes=bucket_bytes)
        if planned is not None:
            self.stalled.append(planned)

    @precondition(lambda self: self.stalled)
    @rule(data=st.data(), die_after=st.integers(0, 6))
    def finish(self, data: st.DataObject, die_after: int) -> None:
        planned = data.draw(st.sampled_from(self.stalled))
        self.stalled.remove(planned)
        try:
            ids = sorted(number for path in planned.inputs for number in json.loads(self.store.read(path)))
        except FileNotFoundError:
            return  # It stalled for longer than the grace period, and fails on its inputs.
        written = []
        for bucket in range(planned.buckets):
            mine = [number for number in ids if number % planned.buckets == bucket]
            if die_after == 0:
                return
            if mine:
                self.store.put(planned.output(bucket), mine)
                written.append(planned.output(bucket))
                die_after -= 1
        after = planned.after(written)
        self.store.put_if_absent(after.path, after.to_json())

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.store.now_s += seconds

    @rule()
    def clean(self) -> None:
        options = Options(grace_s=self.GRACE_S, now=lambda: self.store.now_s)
        Compactor(self.store, options).clean("wss", DATE)

    @rule()
    def begin_query(self) -> None:
        self.reading.append((self.store.now_s, self.store.counting("wss", DATE), set(self.delivered)))

    @precondition(lambda self: self.reading)
    @rule()
    def end_query(self) -> None:
        began_s, paths, delivered = self.reading.pop(0)
        if self.store.now_s - began_s < self.GRACE_S:
            ids = [number for path in paths for number in json.loads(self.store.read(path))]
            assert sorted(ids) == sorted(delivered)

    @invariant()
    def each_row_counts_once(self) -> None:
        counted = self.store.counting("wss", DATE)
        ids = [number for path in counted for number in json.loads(self.store.read(path))]
        assert sorted(ids) == sorted(self.delivered)


Deliveries.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestDeliveries = Deliveries.TestCase


def test_an_expired_day_counts_nothing_and_late_objects_expire_too() -> None:
    live = f"{DAY}/bucket=00/{1:08x}{0:024x}.parquet"
    valid = manifest.Manifest("wss", DATE, 1, frozenset([live]), frozenset())
    entries = [Entry(path, 1, 0.0) for path in (live, host_object(1))]
    after = expiry(valid, entries)
    assert after is not None
    assert manifest.counting(after, [entry.path for entry in entries]) == []
    assert manifest.dead(after, [entry.path for entry in entries]) == sorted([live, host_object(1)])
    assert expiry(after, entries) is None


def test_names_that_are_no_objects_are_not_taken_for_some() -> None:
    good = f"{DAY}/hour=23/{1:032x}.parquet"
    assert contract.parse_object(good) is not None
    for bad in (
        good[:-1],
        "/" + good,
        good.replace("v1", "v2"),
        good.replace("hour=23", "hour=2"),
        good.replace("-10/", "-32/"),
    ):
        assert contract.parse_object(bad) is None
