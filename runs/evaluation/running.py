"""Door: a whole evaluation: a private site and its lanes, every scenario played, scored and counted.

Nothing of this installation is touched: of the caller's environment the private site gets what concerns models alone.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsite import clock, env
from runs.chaos import calls
from runs.chaos.ground import EMBEDDED, PASSWORD, POSTGRES_REDIS, Ground
from runs.chaos.site import Site
from runs.evaluation import loading, scoring
from runs.evaluation.acting import Seat, Stage
from runs.evaluation.lanes import Lane
from runs.evaluation.people import Client, Member
from runs.evaluation.playing import Play, Played
from runs.evaluation.preparing import LEAD, OPERATOR, SECOND
from runs.evaluation.scenarios import Policy
from runs.evaluation.scoring import Happened
from runs.inference import gateway
from runs.management import tenancy

Json = dict[str, Any]
Say = Callable[[str], None]
SETUPS = {"embedded": EMBEDDED, "full": POSTGRES_REDIS}
OF_MODELS = ("OPENAI_", "ANTHROPIC_", "MODEL_", "EMBEDDINGS_")
PERIODS = {
    "LEASE_S": "3", "SWEEP_S": "0.5", "RETRY_S": "0.3", "PENDING_POLL_S": "0.5", "CALL_TIMEOUT_S": "4",
    "WRITE_TIMEOUT_S": "4", "RESEND_FOR_S": "60", "RECONCILE_FOR_S": "12", "VERIFY_FOR_S": "4",
    "DEPENDENCY_FOR_S": "6", "REPLY_FOR_S": "6", "ASK_AGAIN_FOR_S": "4", "BREAKER_COOL_S": "0.5",
    "BREAKER_MAX_COOL_S": "2", "PASSES_THREADS": "16", "WRITES_PROCESSES": "4", "MODEL_TIMEOUT_S": "60",
}  # fmt: skip
"""Shrunk, so that a failure takes seconds. A write in doubt is proven absent after 4 + 1 + 0.5 seconds (the request's
timeout, `settle_s` and half of it), and given up as unknown after 12."""
DEADLINE_S, MODEL_DEADLINE_S = 60.0, 600.0
PROBE = "ev_probe"
HELLO: Json = {"request_id": "probe", "goal": "Hello, are you there?", "actor": {"customer_id": "cust_probe"}}
MOST_KEPT = 50
STAFF = {"lead": LEAD, "second": SECOND, "operator": OPERATOR}


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is asked of an evaluation. `deadline_s` is a scenario's; `keep` is for the records of those that fail."""

    loaded: loading.Loaded
    route: str
    setup: str = "embedded"
    lanes: int = 8
    rounds: int = 1
    deadline_s: float | None = None
    keep: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What came of it; `answered` are the names that models answered under, `same_code` whether no file changed."""

    cases: tuple[Json, ...]
    answered: tuple[str, ...]
    template_hashes: tuple[str, ...]
    code_hash: str
    same_code: bool


def run(order: Order, say: Say, ground: Ground | None = None) -> Measured:
    """Everything, from the first process to the scores. Raises SiteFailed, ServiceError or MissingServer."""
    before = loading.code_hash()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentsite-evaluate-")))
        lanes = [_lane(stack, folder / f"lane{n}") for n in range(min(order.lanes, _plays(order)))]
        say("preparing a private site …")
        site = _site(order, stack, folder, ground or stack.enter_context(Ground()))
        seats = _seats(order, site, lanes, _answers_as(site, order))
        stage = Stage(url=site.url, **{role: Member(site.url, name).sign_in() for role, name in STAFF.items()})
        say(f"{len(seats)} scenarios on {order.route}, {len(lanes)} at a time …")
        played = _all(order, stage, seats, lanes, say)
        cases = _cases(order, site, played)
        _keep(order, site, played, cases)
        turns = site.rows("SELECT DISTINCT answered_model, template_hash FROM runs_turn WHERE answered_model <> ''")
        return Measured(
            cases=tuple(cases), answered=tuple(sorted({str(row[0]) for row in turns})), code_hash=before,
            template_hashes=tuple(sorted({str(row[1]) for row in turns})), same_code=loading.code_hash() == before,
        )  # fmt: skip


def _plays(order: Order) -> int:
    return len(order.loaded.scenarios) * order.rounds


# --- the ground -------------------------------------------------------------------------------------------------------


def _lane(stack: ExitStack, folder: Path) -> Lane:
    lane = Lane(folder)
    stack.callback(lane.close)
    return lane


def _site(order: Order, stack: ExitStack, folder: Path, ground: Ground) -> Site:
    given = {name: value for name, value in env.child_environment().items() if name.startswith(OF_MODELS)}
    site = Site(
        SETUPS[order.setup], ground, folder / "site", loading.NOWHERE, workers=1,
        **{**PERIODS, **given, "AGENT_MODELS": order.route},
    )  # fmt: skip
    stack.callback(site.close)
    return site.start()


def _answers_as(site: Site, order: Order) -> str:
    """The name that the route's model answers under; where a provider is asked, by one request that no scenario is."""
    _, _, model = order.route.partition(":")
    if gateway.account(order.route) is None:
        return model
    token = _prepare(site, order, [{"id": PROBE, "profile": _bare(), "policies": []}], [])[PROBE]
    return _name(site, token, order.deadline_s or MODEL_DEADLINE_S) or model


def _bare() -> Json:
    commerce = {"url": loading.NOWHERE, "read_token_env": loading.READ_ENV, "write_token_env": loading.WRITE_ENV}
    return {**tenancy.DEFAULT_PROFILE, "write_tools": {}, "commerce": commerce}


def _name(site: Site, token: str, limit_s: float) -> str:
    """The name in a provider's first answer; empty where there was none."""
    client, until = Client(site.url, token), clock.monotonic() + limit_s
    run_id = str(calls.document(client.ask(HELLO), 202)["run_id"])
    found: list[tuple[Any, ...]] = []
    while not found and clock.monotonic() < until:
        found = site.rows("SELECT answered_model FROM runs_turn WHERE answered_model <> ''")
        run = client.run(run_id, wait_s=1)
        if not found and run is not None and run["completed_at"]:
            break
    client.say(run_id, "cancel", reason="only its name was wanted")
    return str(found[0][0]) if found else ""


def _prepare(site: Site, order: Order, tenants: Sequence[Json], routes: Sequence[Sequence[str]]) -> dict[str, str]:
    file = site.folder / "prepare.json"
    asked = {
        "database": site.database, "password": PASSWORD, "agent": order.loaded.suite.agent, "routes": list(routes),
        "tenants": list(tenants),
    }  # fmt: skip
    file.write_text(json.dumps(asked))
    tokens: dict[str, str] = json.loads(site.manage("evaluate", f"--prepare-private={file}"))["tokens"]
    return tokens


def _seats(order: Order, site: Site, lanes: list[Lane], answers_as: str) -> list[Seat]:
    """Every scenario of every round with a tenant of its own, made by one process."""
    rounds = [(number, scenario) for number in range(1, order.rounds + 1) for scenario in order.loaded.scenarios]
    placed = [(f"ev_{n:05}", lanes[n % len(lanes)], *pair) for n, pair in enumerate(rounds)]
    tenants = [
        {"id": tenant, "profile": loading.profile(scenario, lane.url), "policies": [*map(_document, scenario.policies)]}
        for tenant, lane, _, scenario in placed
    ]
    tokens = _prepare(site, order, tenants, [[order.route, answers_as]])
    return [
        Seat(scenario=scenario, round=number, tenant=tenant, token=tokens[tenant], lane=lane)
        for tenant, lane, number, scenario in placed
    ]  # fmt: skip


def _document(policy: Policy) -> str:
    front = {"id": policy.id, "version": policy.version, "title": policy.title, "status": policy.status}
    lines = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in front.items())
    return f"---\n{lines}\n---\n\n{policy.text}\n"


# --- the scenarios ----------------------------------------------------------------------------------------------------


def _all(order: Order, stage: Stage, seats: list[Seat], lanes: list[Lane], say: Say) -> list[Played]:
    """Lanes side by side, each with its scenarios one after the other."""
    done = threading.Semaphore(0)
    within = MODEL_DEADLINE_S if gateway.account(order.route) is not None else DEADLINE_S
    deadline_s = order.deadline_s or within

    def work(lane: Lane) -> list[Played]:
        found = []
        for seat in seats:
            if seat.lane is lane:
                found.append(_one(stage, seat, deadline_s))
                done.release()
        return found

    with ThreadPoolExecutor(len(lanes)) as pool:
        under_way = [pool.submit(work, lane) for lane in lanes]
        for number in range(1, len(seats) + 1):
            while not done.acquire(timeout=1) and not all(lane.done() for lane in under_way):
                pass
            if number % 20 == 0:
                say(f"{number} of {len(seats)} are done …")
        found = [played for lane in under_way for played in lane.result()]
    return sorted(found, key=lambda one: one.seat.tenant)


def _one(stage: Stage, seat: Seat, deadline_s: float) -> Played:
    try:
        return Play(stage, seat, deadline_s).play()
    except (calls.NoAnswer, calls.Refused) as error:
        happened = Happened(over="stuck", status="unknown", approved={}, sent={}, notes=(str(error)[:300],))
        return Played(seat=seat, happened=happened, run=None, wall_ms=0)


def _cases(order: Order, site: Site, played: list[Played]) -> list[Json]:
    spent = {str(tenant): int(micros) for tenant, micros in site.rows("SELECT tenant_id, cost_micros FROM runs_run")}
    return [_case(one, spent.get(one.seat.tenant, 0)) for one in played]


def _case(played: Played, cost_micros: int) -> Json:
    seat, happened = played.seat, played.happened
    scenario = seat.scenario
    scored = scoring.score(scenario.expected, happened, loading.read_profile(scenario).write_tools)
    return {
        "id": scenario.id, "title": scenario.title, "round": seat.round, "tenant": seat.tenant,
        "tags": list(scenario.tags), "language": scenario.language, "kind": scored.kind, "wrong": list(scored.wrong),
        "forbidden": list(scored.forbidden), "lies": list(scored.lies), "escalated": scored.escalated,
        "capped": scored.capped, "expects_a_person": "escalated" in scenario.expected.status,
        "status": happened.status, "outcome": happened.outcome, "reason": happened.reason, "said": happened.said[:2000],
        "refunds": [
            {name: refund[name] for name in ("refund_id", "payment_id", "amount", "state")}
            for refund in happened.refunds
        ],
        "notes": list(happened.notes), "usage": _usage(played.run, cost_micros), "wall_ms": played.wall_ms,
    }  # fmt: skip


def _usage(run: Json | None, cost_micros: int) -> Json:
    usage: Json = run["usage"] if run else {}
    names = ("model_calls", "input_tokens", "output_tokens", "active_ms")
    currency = usage["cost"]["currency"] if usage else "USD"
    return {**{name: usage.get(name, 0) for name in names}, "cost_micros": cost_micros, "currency": currency}


# --- what is kept -----------------------------------------------------------------------------------------------------


def _keep(order: Order, site: Site, played: list[Played], cases: list[Json]) -> None:
    """For each case that failed its whole record and its story, beside the logs of the site."""
    if order.keep is None:
        return
    order.keep.mkdir(parents=True, exist_ok=True)
    for log in site.folder.glob("*.log"):
        shutil.copy(log, order.keep)
    for one, case in [pair for pair in zip(played, cases, strict=True) if pair[1]["kind"] != "success"][:MOST_KEPT]:
        named = f"{one.seat.scenario.id}.{one.seat.round}"
        (order.keep / f"{named}.case.json").write_text(json.dumps(case, indent=1, ensure_ascii=False) + "\n")
        if one.run is not None:
            asked = (one.seat.scenario.id, f"--tenant={one.seat.tenant}")
            for command, ending in (("export_run", "json"), ("why", "txt")):
                (order.keep / f"{named}.{ending}").write_text(site.manage(command, *asked))
