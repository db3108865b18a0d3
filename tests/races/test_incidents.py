"""Freshness incidents raised at once: one open row, every run counted that abstained and none that did not (M9)."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from tests.races.contest import Contest
from tests.world import TENANT
from tools.models import PolicyDocument, PolicyIncident
from tools.policy import incidents

PIN = "POL-REF-004@v4"
ROUNDS = 5


class Overtaken(Exception):
    """An end of a run that an input forbade: its transaction is undone."""


def abstains(run_id: str, *, undone: bool = False) -> Callable[[], bool]:
    def commit() -> bool:
        try:
            with transaction.atomic():
                incidents.abstained(TENANT, PIN, run_id, "refunds@acme.example")
                if undone:
                    raise Overtaken
        except Overtaken:
            return False
        return True

    return commit


def test_runs_that_abstain_at_once_are_one_incident_and_an_undone_end_is_none(contest: Contest) -> None:
    PolicyDocument.objects.filter(tenant_id=TENANT).update(status="superseded")
    for number in range(ROUNDS):
        PolicyIncident.objects.all().delete()
        ends = [abstains(f"run-{number}-{n}", undone=n % 3 == 2) for n in range(6)]
        assert sum(contest.race(*ends)) == 4
        [incident] = PolicyIncident.objects.all()
        assert (incident.runs, incident.current, incident.last_run_id.endswith(("2", "5"))) == (4, None, False)
