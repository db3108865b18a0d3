"""A whole run beside an embeddings endpoint: it learns no order, no card and no secret, and no fault of its stops a run
(M71, M89)."""

from __future__ import annotations

import pytest

from tests import embeddings as served
from tests.loopback import Answer, Loopback, raw, reset, slow
from tests.planted import READ, WRITE
from tests.world import TENANT, World, s0
from tools.models import PassageVector
from tools.policy.embedding import embed_missing

PATH = "/v1/embeddings"


def configure(world: World, server: Loopback) -> None:
    world.settings(
        EMBEDDINGS_URL=served.url(server), EMBEDDINGS_MODEL=served.MODEL, EMBEDDINGS_API_KEY=served.KEY,
        EMBEDDINGS_TIMEOUT_S="0.3",
    )  # fmt: skip


def test_run_that_searches_by_meaning_pays_once_and_tells_the_endpoint_no_object(world: World) -> None:
    with Loopback() as server:
        server.on(PATH, served.answer())
        configure(world, server)
        made = embed_missing(TENANT, within_s=60)
        assert made is not None and made.made == PassageVector.objects.count() > 3
        run = world.start(script=s0())
        world.approve(run)
        assert world.resume(run).status == "completed"
        bodies = [call.body.decode() for call in server.calls]
    assert len(bodies) >= 2, "texts once, and at least one question"
    assert not [b for b in bodies if "8472" in b or "pay_9001" in b or READ in b or WRITE in b or served.KEY in b]
    assert len(world.refunds()) == len(world.posts()) == 1


@pytest.mark.parametrize("answer", [raw(b"nonsense"), reset, slow(5, served.answer())])
def test_run_goes_on_whatever_the_endpoint_does(world: World, answer: Answer) -> None:
    with Loopback() as server:
        server.on(PATH, served.answer())
        configure(world, server)
        embed_missing(TENANT, within_s=60)
        server.on(PATH, answer)
        run = world.start(script=s0())
        world.approve(run)
        assert world.resume(run).status == "completed"
    assert len(world.posts()) == 1
