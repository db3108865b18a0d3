"""Fixtures of the races: a world in this process, over whichever database the session has, and a real sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from agentsite import env
from tests.system.business import Business

if TYPE_CHECKING:
    from tests.races.contest import Contest


@pytest.fixture
def contest(transactional_db: None, business: Business, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contest]:
    """Runs that stand before the point of no return, as many as a race needs; what must always hold is checked last."""
    from tests import invariants  # models may be imported only when Django is set up, after this file
    from tests.races.contest import Contest

    patch = pytest.MonkeyPatch()
    try:
        made = Contest(business, tmp_path_factory.mktemp("contest"), patch)
        yield made
        invariants.check_all(made.world)
    finally:
        patch.undo()
        env.read.cache_clear()
