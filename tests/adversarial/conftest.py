"""Fixtures of the attacks: a world in this process, over whichever database the session has, and a real sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from agentsite import env
from tests.system.business import Business

if TYPE_CHECKING:
    from tests.world import World


@pytest.fixture
def world(transactional_db: None, business: Business, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """W0; what must always be true is checked once the test has passed."""
    from tests import invariants  # models may be imported only when Django is set up, after this file
    from tests.world import World

    patch = pytest.MonkeyPatch()
    try:
        made = World(business, tmp_path_factory.mktemp("attack"), patch)
        yield made
        invariants.check_all(made)
    finally:
        patch.undo()
        env.read.cache_clear()
