"""What the tests share: a store that is made once, copies of it to change, and a seed that is printed."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "spark")]

from maker import Maker  # noqa: E402

HOURS = 26
"""More than a day, so that each table has two days."""


def pytest_report_header() -> str:
    """The seed of all stores of this run; `FLEET_TEST_SEED` repeats it."""
    return f"seed: {seed()}"


def seed() -> int:
    """A seed for this run."""
    return int(os.environ.setdefault("FLEET_TEST_SEED", str(random.SystemRandom().randrange(10**6))))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """A store of six hosts. Not to be changed: see `copied`."""
    maker = Maker(tmp_path_factory.mktemp("made"), seed=seed(), hosts=6)
    maker.fill(HOURS)
    return maker


@pytest.fixture
def copied(made: Maker, tmp_path: Path) -> Path:
    """A copy of that store, to be changed."""
    target = tmp_path / "store"
    shutil.copytree(made.root, target)
    return target


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[Callable[..., Maker]]:
    """Makes small stores."""

    def make(**settings: Any) -> Maker:
        return Maker(tmp_path / "small", seed=seed(), **settings)

    yield make
