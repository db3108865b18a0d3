"""A tenant's policies are loaded in one transaction, however many they are: no run of his waits for it (M9, M27)."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from runs.models import Run
from tests.races.contest import Contest
from tests.world import TENANT, final
from tools.models import PolicyDocument
from tools.policy import documents, incidents

STUCK_S = 30.0
NEW = "---\nid: POL-NEW-001\nversion: 1\ntitle: New\nstatus: current\n---\n# New\n\nA rule.\n"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer and no row locks")
def test_runs_are_admitted_and_abstain_while_policies_are_loaded(contest: Contest) -> None:
    PolicyDocument.objects.filter(tenant_id=TENANT).update(status="superseded")
    loaded, over = threading.Event(), threading.Event()

    def load() -> bool:
        with transaction.atomic():
            documents.load(TENANT, NEW)
            loaded.set()
            return over.wait(STUCK_S)

    def run() -> bool:
        assert loaded.wait(STUCK_S)
        contest.world.admit("req-beside", [final()])
        incidents.abstained(TENANT, "POL-REF-004@v4", "run-beside", "")
        over.set()
        return True

    assert contest.race(load, run) == [True, True]
    assert Run.objects.filter(request_id="req-beside").count() == 1
