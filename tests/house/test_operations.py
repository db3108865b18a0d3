"""Alerts, runbook and dashboard agree: what is asked parses, every alert has its section, every panel its place."""

from __future__ import annotations

import json
import re
from typing import Any

import promql_parser
import pytest
import yaml
from django.http import QueryDict
from django.urls import resolve

from approvals.admin.views import VIEWS
from runs.admin import lists
from tests.house.walls import ROOT, sources

pytestmark = pytest.mark.any_database
RULES: dict[str, Any] = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
DASHBOARDS: list[dict[str, Any]] = [
    json.loads(path.read_text()) for path in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json"))
]
PANELS = [panel for dashboard in DASHBOARDS for panel in dashboard["panels"]]
TARGETS = [target for panel in PANELS for target in panel.get("targets", ())]
PARTS = ("Means", "Customer sees", "Look at", "Do", "Over when")


def expressions() -> list[str]:
    """Every expression of the alerts and of the panels."""
    return [str(rule["expr"]) for rule in ALERTS] + [str(target["expr"]) for target in TARGETS]


def sections() -> dict[str, str]:
    """The runbook's sections by their headings."""
    found = re.split(r"^## (.+)$", RUNBOOK, flags=re.M)
    return dict(zip(found[1::2], found[2::2], strict=True))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_alert_says_what_who_is_woken_for_and_what_to_do(alert: dict[str, Any]) -> None:
    name, told = alert["alert"], alert["annotations"]
    assert promql_parser.parse(alert["expr"])
    assert re.fullmatch(r"[0-9]+[mhs]", alert["for"])
    assert alert["labels"] in ({"severity": "page"}, {"severity": "ticket"})
    assert told["summary"] and told["description"]
    assert told["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    section = sections()[name]
    assert re.findall(r"^- \*\*(.+?):\*\* \S", section, re.M) == list(PARTS)


def test_runbook_has_a_section_for_every_alert_and_none_besides() -> None:
    names = [alert["alert"] for alert in ALERTS]
    assert len(names) == len(set(names))
    assert list(sections()) == names, "in the order of the rules"


def test_commands_of_the_runbook_exist() -> None:
    named = set(re.findall(r"manage\.py\s+([a-z_]+)", RUNBOOK))
    assert len(named) > 5
    assert [c for c in named if f"runs/management/commands/{c}.py" not in sources()] == []


def test_pages_of_the_runbook_exist() -> None:
    views = {view.slug for view in (*lists.RUN_VIEWS, *lists.WRITE_VIEWS)}
    for page in re.findall(r"`(/[^`]*)`", RUNBOOK):
        path, _, query = page.partition("?")
        assert resolve(path), page
        given = QueryDict(query)
        assert given.get("needs", "finish") in views, page
        assert given.get("state", "settle") in {*views, "dead"}, page
        assert given.get("view", "pending") in VIEWS, page


def test_expressions_never_sum_what_every_instance_says() -> None:
    """A gauge is the database's, whoever is asked: a sum over two web processes would be twice the truth."""
    bare = re.compile(r"(?<!max )sum(?: by \([a-z, ]+\))? ?\((?!max by|increase)")
    assert [e for e in expressions() if bare.search(e)] == []


def test_prometheus_reads_the_alerts_and_asks_a_web_process_that_knows_its_name() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yaml").read_text())
    (job,) = config["scrape_configs"]
    assert (config["rule_files"], job["job_name"], job["metrics_path"]) == (["alerts.yaml"], "agentsite", "/metrics")
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    for target in job["static_configs"][0]["targets"]:
        host, _, port = target.partition(":")
        assert services[host]["ports"][0].endswith(f":{port}")
        assert host in services[host]["environment"]["ALLOWED_HOSTS"].split(",")


def test_dashboard_shows_the_panels_that_operators_were_promised() -> None:
    titles = {panel["title"] for panel in PANELS}
    assert titles >= {
        "Runs that ended within the hour, by outcome", "Share that went to people", "Cap hits within the hour",
        "Active time", "Human wait", "Share that expired undecided", "Unknown writes", "Oldest pending approval",
        "Queue length", "Failures of tasks, hints and logs", "Tokens by model", "Cost by model", "Webhook backlog",
    }  # fmt: skip


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: str(dashboard["uid"]))
def test_dashboard_is_one_that_grafana_takes(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(ids) == len(set(ids))
    assert (dashboard["editable"], dashboard["schemaVersion"] >= 30) == (False, True)
    places = [panel["gridPos"] for panel in panels]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells)), "panels lie upon each other"
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("panel", [p for p in PANELS if p["type"] != "row"], ids=lambda panel: str(panel["title"]))
def test_panel_asks_the_provisioned_source_something_that_parses(panel: dict[str, Any]) -> None:
    source = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yaml").read_text())
    (known,) = source["datasources"]
    assert panel["title"] and panel["description"] and panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        assert target["datasource"] == {"type": known["type"], "uid": known["uid"]}
        assert promql_parser.parse(target["expr"])
        assert target["legendFormat"]
