"""Contracts of two releases on one database: older ones go on as they were granted, and one that older code could not
read carries a number that keeps it away from it."""

from __future__ import annotations

from pydantic import BaseModel

from runs.contracts import OLDEST_SCHEMA, SCHEMA, Contract
from runs.models import Run, Turn
from tests.world import KEY, World

FIELDS = {
    4: "Actor.channel Actor.customer_id Actor.session_id Contract.actor Contract.agent Contract.aggregates"
    " Contract.approval_ttl_s Contract.approved_ttl_s Contract.created_by Contract.goal Contract.idempotency_root"
    " Contract.limits Contract.manual_qualification Contract.policy_first Contract.policy_version_pin"
    " Contract.profile_revision Contract.queue_owner Contract.request_id Contract.schema_version Contract.scope"
    " Contract.sensitive Contract.session_memory Contract.shadow Contract.tenant_id Contract.trace_id"
    " CurrencyRule.max_amount"
    " CurrencyRule.requires_approval_above CurrencyRule.two_people_above GrantedScope.order_ids"
    " GrantedScope.people_tools GrantedScope.read_tools GrantedScope.write_tools Limits.deadline_ms"
    " Limits.max_cost Limits.max_input_tokens Limits.max_model_calls Limits.max_output_tokens"
    " Limits.max_write_attempts SensitiveWords.approval SensitiveWords.person Total.amount Total.count"
    " Totals.customer_day Totals.tenant_hour WriteGrant.by_currency"
}  # fmt: skip


def fields(model: type[BaseModel]) -> set[str]:
    """Every field of a model and of the models in it."""
    found = set[str]()
    for name, one in model.model_fields.items():
        found |= {f"{model.__name__}.{name}"} | set().union(*map(fields, _models(one.annotation)))
    return found


def _models(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models(inner)]


def test_field_of_a_contract_comes_with_a_number_that_older_code_leaves_alone() -> None:
    """A contract refuses fields it does not know: older code that took such a run would end it as unreadable."""
    assert sorted(fields(Contract)) == FIELDS[SCHEMA].split(), "another field: raise SCHEMA, and list its fields here"


def test_run_carries_the_number_of_its_contract(world: World) -> None:
    run = world.admit()
    assert (run.schema, run.contract["schema_version"]) == (SCHEMA, SCHEMA)


def test_run_of_the_oldest_schema_goes_on_as_it_was_granted(world: World) -> None:
    """Its contract knows no tools for people and no words, its turns have no estimate."""
    run = world.start()
    contract = {name: value for name, value in run.contract.items() if name != "sensitive"}
    contract["scope"] = {name: value for name, value in contract["scope"].items() if name != "people_tools"}
    Run.objects.update(contract={**contract, "schema_version": OLDEST_SCHEMA}, schema=OLDEST_SCHEMA)
    Turn.objects.update(estimate=0, cached_tokens=0, registry_version="", policy_version="", template_hash="")
    world.approve(run)
    run = world.resume(run)
    assert (run.status, run.outcome, run.schema) == ("completed", "refunded", OLDEST_SCHEMA)
    assert world.posts() == [("pay_9002", "2000.00", KEY)]
    shown = Turn.objects.filter(run=run).order_by("number").last()
    assert shown is not None and not {"message", "ask", "plan", "escalate"} & set(shown.tools_shown)
