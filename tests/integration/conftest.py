"""Fixtures of in-process tests of the whole loop: one sandbox process for all of them, a world for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from agentsite import env
from tests.system.business import Business

if TYPE_CHECKING:
    from tests.world import World


@pytest.fixture(scope="session")
def business_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Business]:
    with Business(tmp_path_factory.mktemp("sb") / "sandbox.sqlite3") as system:
        yield system


@pytest.fixture
def world(
    transactional_db: None, business_system: Business, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """W0; what must always be true is checked once the test has passed."""
    from tests import invariants  # models may be imported only when Django is set up, after this file
    from tests.world import World

    patch = pytest.MonkeyPatch()
    try:
        made = World(business_system, tmp_path_factory.mktemp("w"), patch)
        yield made
        invariants.check_all(made)
    finally:
        patch.undo()
        env.read.cache_clear()
