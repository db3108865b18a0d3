"""Door: `evaluate`, a suite of scenarios on one model route, on a private site; what came of them is scored."""

from __future__ import annotations

import json
from argparse import SUPPRESS
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, connection

from agentsite import clock, env
from agentsite.private.binaries import MissingServer
from agentsite.private.servers import ServiceError
from runs import evaluations, qualification
from runs import prompt as prompts
from runs.chaos.ground import SiteFailed
from runs.evaluation import comparing, figures, loading, preparing, running, told
from runs.evaluation.comparing import Compared
from runs.evaluation.running import SETUPS, Measured, Order
from runs.evaluations import Result
from runs.management import output, schema
from runs.management.base import SiteCommand
from runs.models import Evaluation

BY = "shell"


class Command(SiteCommand):
    help = (
        "Run a suite of scenarios on a model route, against a private site and private sandboxes, score what came of "
        "each, and store the figures here. Touches no tenant of this installation. "
        "Exit codes: 0 the suite's thresholds are met, 1 they are not, 2 usage."
    )
    needs_database = False

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--suite", default="refunds", metavar="DIR|NAME", help="a folder, or a suite that ships (refunds)")
        add("--model", metavar="ROUTE", help="PROVIDER:MODEL (the first one of AGENT_MODELS)")
        add("--setup", choices=sorted(SETUPS), default="embedded", help="full: PostgreSQL and Redis (embedded)")
        add("--parallel", type=_whole, default=8, metavar="N", help="scenarios side by side (8)")
        add("--rounds", type=_whole, default=1, metavar="N", help="play each scenario so often (1)")
        add("--only", metavar="GLOB", help="scenarios whose id matches")
        add("--tag", metavar="TAG", help="scenarios with this tag")
        add("--deadline", type=_whole, metavar="S", help="seconds for one scenario (60; 600 with a provider)")
        add("--keep", type=Path, metavar="DIR", help="keep there what was recorded of scenarios that failed")
        add("--qualify", action="store_true", help="where the thresholds are met, let the route propose writes")
        add("--no-store", action="store_true", help="store nothing in this installation's database")
        add("--json", action="store_true", help="print one line of JSON")
        add("--prepare-private", type=Path, metavar="FILE", help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["prepare_private"]:
            return self._prepare(options["prepare_private"])
        order = _order(options)
        stores = self._stores(options)
        if not connection.in_atomic_block:
            connection.close()  # an evaluation takes hours, and no connection outlives that for sure
        started_at = clock.now()
        try:
            measured = running.run(order, self._say if not options["json"] else _silent)
        except (MissingServer, ServiceError, SiteFailed) as error:
            raise CommandError(str(error)) from None
        result = _result(order, measured, started_at)
        try:
            compared, row, qualified = self._kept(result, stores=stores, wants=options["qualify"])
        except DatabaseError as error:  # what was measured has cost its time and money: it is told all the same
            self._tell(result, None, None, told.Qualified(), as_json=options["json"])
            raise CommandError(f"measured, but not stored: {type(error).__name__}") from None
        self._tell(result, compared, row, qualified, as_json=options["json"])
        if options["qualify"] and not qualified.made:
            raise CommandError(f"not qualified: {qualified.refused}")
        if result.failing:
            raise CommandError("thresholds were not met: " + "; ".join(result.failing))
        return None

    def _prepare(self, file: Path) -> None:
        try:
            self.stdout.write(json.dumps(preparing.prepare(file)))
        except (preparing.NotPrivate, OSError) as error:
            raise CommandError(str(error)) from None

    def _stores(self, options: dict[str, Any]) -> bool:
        """Whether this installation's database takes the figures. Asked before anything is run."""
        if options["no_store"]:
            if options["qualify"]:
                raise CommandError("--qualify stores what it rests on: it does not go with --no-store", returncode=2)
            return False
        away = schema.unreachable() or _unprepared()
        if away and options["qualify"]:
            raise CommandError(f"--qualify needs this installation's database: {away}")
        if away:
            self.stderr.write(f"nothing will be stored: {away}")
        return not away

    def _kept(self, result: Result, *, stores: bool, wants: bool) -> tuple[Compared | None, Evaluation | None, Any]:
        if not stores:
            return None, None, told.Qualified()
        before = evaluations.before(result)
        compared = None
        if before is not None:
            compared = comparing.compare(
                result.cases, before.cases, same_suite=before.suite_hash == result.suite_hash,
                same_scorer=before.scorer_hash == result.scorer_hash,
            )  # fmt: skip
        row = evaluations.store(result, by=BY)
        return compared, row, _qualified(result, row) if wants else told.Qualified()

    def _tell(
        self, result: Result, compared: Compared | None, row: Evaluation | None, qualified: told.Qualified, *,
        as_json: bool,
    ) -> None:  # fmt: skip
        if as_json:
            more = {"evaluation": row.pk if row else None, "before": compared.wire() if compared else None}
            return output.data(self.stdout, {**told.wire(result), **more, "qualification": qualified.made})
        for part in told.parts(result, compared):
            output.show(self.stdout, part)
        for words in told.lines(result, row.pk if row else None, qualified):
            output.say(self.stdout, words)
        return None

    def _say(self, words: str) -> None:
        output.say(self.stdout, f"[dim]{words}[/dim]")


def _order(options: dict[str, Any]) -> Order:
    """Raises CommandError 2 for what cannot be run."""
    route = options["model"] or env.read().AGENT_MODELS[0]
    provider, _, model = route.partition(":")
    if provider not in env.PROVIDERS or not model or "," in route:
        raise CommandError(f"--model: PROVIDER:MODEL, with one of {', '.join(env.PROVIDERS)}", returncode=2)
    if provider == "scripted":
        route = f"scripted:{Path(model).resolve()}"
    try:
        loaded = loading.load(options["suite"]).chosen(only=options["only"], tag=options["tag"])
    except loading.BadSuite as error:
        raise CommandError(f"--suite: {error}", returncode=2) from None
    if options["keep"] is not None:
        _may_keep(options["keep"])
    return Order(
        loaded=loaded, route=route, setup=options["setup"], lanes=options["parallel"], rounds=options["rounds"],
        deadline_s=options["deadline"], keep=options["keep"],
    )  # fmt: skip


def _may_keep(folder: Path) -> None:
    """Asked before anything is run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--keep: {folder} is no folder ({type(error).__name__})", returncode=2) from None


def _result(order: Order, measured: Measured, started_at: Any) -> Result:
    suite, counted = order.loaded.suite, figures.figures(measured.cases)
    thresholds = suite.thresholds.model_dump()
    today = prompts.template_hash()
    return Result(
        agent=suite.agent, route=order.route, answered=measured.answered, setup=SETUPS[order.setup], suite=suite.name,
        suite_hash=order.loaded.hash, scorer_hash=loading.scorer_hash(), code_hash=measured.code_hash,
        prompt_hash=", ".join(measured.template_hashes)[:80] or today, tools_hash=qualification.tools_hash(suite.agent),
        thresholds=thresholds, figures={**counted, "rounds": order.rounds, "whole": order.loaded.whole},
        cases=measured.cases, failing=tuple(figures.failing(counted, thresholds)), whole=order.loaded.whole,
        same_code=measured.same_code, started_at=started_at, ended_at=clock.now(),
    )  # fmt: skip


def _qualified(result: Result, row: Evaluation) -> told.Qualified:
    try:
        made = evaluations.qualify(result, row, by=BY)
    except evaluations.NotQualified as error:
        return told.Qualified(refused=str(error))
    return told.Qualified(made=made.pk)


def _unprepared() -> str | None:
    try:
        Evaluation.objects.exists()
    except DatabaseError:
        return schema.fault() or "it has no table for evaluations"
    return None


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _silent(words: str) -> None:
    """A program that reads JSON is told nothing else."""
