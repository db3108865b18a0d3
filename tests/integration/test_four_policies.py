"""A public refund policy in four dated versions: in any order, twice, for two tenants; pinned, withheld, unseen (M9).

The texts are basecamp/policies (CC BY 4.0), see `../shared/cases/README.md`; without them the tests are skipped.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from agentsite.tenants.models import Tenant
from runs.models import Observation, Write
from tests.world import TENANT, World, reads, refund, s0
from tools.contracts import PolicyState
from tools.models import PolicyDocument, PolicyIncident, PolicyPassage
from tools.policy import standing
from tools.policy.documents import load, load_directory
from tools.policy.freshness import policy_state
from tools.policy.search import search

CASES = Path(__file__).resolve().parents[3] / "shared/cases/policies/refund"
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not CASES.is_dir(), reason="the policies of ../shared/cases are not here"),
]
A, B, PIN = "t_first", "t_second", "POL-BC-REF@v4"
EVERYTHING = "full partial refunds credits examples charged forgot to cancel downtime support case-by-case note"


def versions() -> dict[int, str]:
    """The four texts under our own front matter; each, as it was in its day, calls itself current."""
    return {n: _with_front(n, path) for n, path in enumerate(sorted(CASES.glob("v0*.md")), start=1)}


def _with_front(version: int, path: Path) -> str:
    text = path.read_text()
    body = text.split("---\n", 2)[2] if text.startswith("---\n") else text
    dated = path.stem.partition("_")[2]
    front = (
        f"id: POL-BC-REF\nversion: {version}\ntitle: A fair refund policy\neffective_from: {dated}\nstatus: current\n"
    )
    return f"---\n{front}---\n\n{body}"


def shown(tenant_id: str, query: str = EVERYTHING, pin: str = PIN) -> set[tuple[str, int, bool]]:
    return {(p.doc, p.version, p.current) for p in search(tenant_id, query, pin=pin, limit=20)}


def statuses(tenant_id: str) -> dict[int, str]:
    return dict(PolicyDocument.objects.filter(tenant_id=tenant_id).values_list("version", "status"))


def test_four_versions_in_any_order_twice_for_two_tenants_leave_the_fourth() -> None:
    texts = versions()
    assert len(texts) == 4
    expected = {1: "superseded", 2: "superseded", 3: "superseded", 4: "current"}
    # Of two tenants one loads them backwards, so that twelve of the 24 orders and their reverses are all of them.
    halves = [order for order in itertools.permutations(texts) if order < order[::-1]]
    for number, order in enumerate(halves):
        first, second = f"t_a{number}", f"t_b{number}"
        for tenant_id in (first, second):
            Tenant.objects.create(id=tenant_id)
        for version, other in zip(order, reversed(order), strict=True):
            load(first, texts[version])
            load(second, texts[other])
        for version, other in zip(order, reversed(order), strict=True):
            load(first, texts[version])
            load(second, texts[other])
        for tenant_id in (first, second):
            assert statuses(tenant_id) == expected, order
            assert policy_state(tenant_id, PIN) == PolicyState(doc="POL-BC-REF", pinned=4, current=4)
        if number % 3 == 0:  # an index a tenant is built for it
            assert shown(first) == {("POL-BC-REF", 4, True)}, order
    rows = PolicyPassage.objects.filter(document__version=4).values_list("document__tenant_id", "text")
    by_tenant: dict[str, list[str]] = {}
    for tenant_id, text in rows.order_by("position"):
        by_tenant.setdefault(tenant_id, []).append(text)
    assert len(by_tenant) == 24 and len({tuple(cut) for cut in by_tenant.values()}) == 1, "each is cut the same way"


def test_other_tenant_sees_nothing_of_it() -> None:
    for tenant_id in (A, B):
        Tenant.objects.create(id=tenant_id)
    for text in versions().values():
        load(A, text)
    assert shown(A) == {("POL-BC-REF", 4, True)}
    assert shown(B) == set()
    assert policy_state(B, PIN) == PolicyState(doc="POL-BC-REF", pinned=4, current=None)
    load(B, "---\nid: POL-B\nversion: 1\ntitle: B\nstatus: current\n---\n\nWe never refund downtime.\n")
    assert shown(B) == {("POL-B", 1, True)}
    assert shown(A) == {("POL-BC-REF", 4, True)}
    assert all("downtime" not in p.text or "never" not in p.text for p in search(A, EVERYTHING, pin=PIN, limit=20))


@pytest.fixture
def basecamp(world: World, tmp_path: Path) -> World:
    """A world whose refunds are decided on the fourth version."""
    for version, text in versions().items():
        (tmp_path / f"{version}.md").write_text(text)
    load_directory(tmp_path, TENANT)
    world.profile(policy_pin=PIN)
    return world


def test_run_on_the_fourth_version_reads_it_alone_and_may_refund(basecamp: World) -> None:
    run = basecamp.start(
        script=s0(), goal="I forgot to cancel and want a full refund of the extra charge of order 8472."
    )
    assert run.status == "awaiting_approval"
    found = Observation.objects.filter(run=run, source="search_policy")
    cited = {
        (p["doc"], p["version"], p["current"]) for o in found for p in o.content["passages"] if p["doc"] == "POL-BC-REF"
    }
    assert cited == {("POL-BC-REF", 4, True)}
    basecamp.approve(run)
    assert basecamp.resume(run, until="completed").outcome == "refunded"
    assert len(basecamp.posts()) == 1


def test_run_whose_fourth_version_is_withheld_ends_as_stale(basecamp: World) -> None:
    row = PolicyDocument.objects.get(tenant_id=TENANT, doc_id="POL-BC-REF", version=4)
    standing.withdraw(row.pk, as_seen=standing.seen(row), by="own_1")
    run = basecamp.start(
        script=[reads("get_order", "get_payments", "search_policy"), refund(evidence=("get_payments",))]
    )
    assert (run.status, run.reason, basecamp.posts(), Write.objects.count()) == ("escalated", "policy_stale", [], 0)
    (incident,) = PolicyIncident.objects.all()
    assert (incident.doc_id, incident.pinned, incident.current, incident.runs) == ("POL-BC-REF", 4, None, 1)
    assert (incident.owner, incident.last_run_id) == ("refunds@acme.example", str(run.pk))


def test_run_that_waits_for_a_person_while_its_version_is_withheld_refunds_nothing(basecamp: World) -> None:
    run = basecamp.start()
    assert run.status == "awaiting_approval"
    row = PolicyDocument.objects.get(tenant_id=TENANT, doc_id="POL-BC-REF", version=4)
    standing.withdraw(row.pk, as_seen=standing.seen(row), by="own_1")
    basecamp.approve(run)
    run = basecamp.resume(run)
    assert (run.status, run.reason, basecamp.posts()) == ("escalated", "policy_stale", [])
