"""Variables that a profile names for its placeholders: whose they may not be; messages with secrets that come twice."""

from __future__ import annotations

from typing import Any

import pytest

from agentsite import env, redaction
from agentsite.tenants.models import AgentProfile
from runs import store
from runs.management import tenancy
from runs.management.commands import worker
from runs.models import Input, Run
from tests import edge
from tests.edge import RUNS, admitted, client, post
from tests.world import World, worker_dies
from tools import credentials
from tools.contracts import Backend
from tools.errors import AccessRefused

pytestmark = pytest.mark.django_db(transaction=True)
COMMERCE = {"url": "https://acme.example", "read_token_env": "ACME_READ", "write_token_env": "ACME_WRITE"}
NEVER = ("DATABASE_URL", "SECRET_KEY", "AGENT_MODELS", "OPENAI_API_KEY", "ACME_READ", "ACME_WRITE")


def document(**secrets: str) -> dict[str, Any]:
    return {**tenancy.DEFAULT_PROFILE, "commerce": COMMERCE, "secrets": secrets}


@pytest.mark.parametrize("variable", NEVER)
def test_profile_whose_placeholder_is_a_credential_of_ours_is_refused_by_name(variable: str) -> None:
    with pytest.raises(tenancy.BadProfile) as refused:
        tenancy.read_profile(document(NOTE="ACME_NOTE", HELD=variable))
    assert refused.value.faults == [f"secrets.HELD: {variable} is a variable of the site or of commerce"]
    assert tenancy.read_profile(document(NOTE="ACME_NOTE")).secrets == {"NOTE": "ACME_NOTE"}


def test_children_keep_what_the_site_and_reads_need_whatever_a_stored_profile_names() -> None:
    edge.tenant(commerce=COMMERCE, secrets={f"N{n}": name for n, name in enumerate(NEVER)} | {"NOTE": "ACME_NOTE"})
    dropped = worker.not_needed("passes")
    assert dropped == ["ACME_NOTE", "ACME_WRITE", "COMMERCE_WRITE_TOKEN"]


@pytest.mark.parametrize("variable", NEVER)
def test_placeholder_of_a_stored_profile_never_stands_for_a_credential(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "held-for-a-test-0815")
    backend = Backend(
        tenant_id="t", url="https://acme.example", read_token_env="ACME_READ", write_token_env="ACME_WRITE",
        honours_keys=True, key_life_s=1, settle_s=1, secrets={"NOTE": variable},
    )  # fmt: skip
    with pytest.raises(AccessRefused) as refused:
        credentials.stands_for(backend, "NOTE")
    assert refused.value.slug == "secret_missing"


def test_message_with_a_secret_sent_again_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "acme-secret-of-a-test-4711"
    edge.tenant()
    shop = client(edge.token())
    path = f"{RUNS}/{admitted(shop)['run_id']}/messages"
    redaction.keep(secret)
    said = {"text": f"My key is {secret}, please help.", "message_id": "m-1"}
    first, again = post(shop, path, said), post(shop, path, said)
    assert (first.status_code, again.status_code, again.json()) == (202, 202, first.json())
    assert Input.objects.get(message_id="m-1").text == f"My key is {redaction.REDACTED}, please help."
    other = post(shop, path, {**said, "text": "Something else."})
    assert (other.status_code, other.json()["type"]) == (422, "message-id-reused")


def test_message_sent_again_after_its_secret_became_known_is_one_message() -> None:
    edge.tenant()
    shop = client(edge.token())
    path = f"{RUNS}/{admitted(shop)['run_id']}/messages"
    secret = "acme-learnt-later-4712"
    said = {"text": f"My key is {secret}.", "message_id": "m-1"}
    first = post(shop, path, said)
    redaction.keep(secret)
    assert (first.status_code, post(shop, path, said).status_code) == (202, 202)
    assert Input.objects.filter(kind="message").count() == 1


def test_tool_that_a_profile_names_twice_is_shown_once(world: World) -> None:
    world.profile(read_tools=["get_order", "get_payments", "get_order", "search_policy"], people_tools=["ask", "ask"])
    run = world.start(script=[{"final": "Thank you.", "evidence": []}])
    shown = run.turns.get(number=1).tools_shown
    assert shown == ["get_order", "get_payments", "search_policy", "issue_refund", "ask"]
    assert AgentProfile.objects.filter(tenant_id=world.tenant).count() == 2


def test_words_under_way_show_no_part_of_a_secret_that_is_held_elsewhere(world: World) -> None:
    secret = "held-elsewhere-and-long-4711"
    world.settings(SECRETS_ELSEWHERE=env.digest(secret))
    shown = [redaction.unfinished(f"Use token={secret[:size]}") for size in range(len(secret) + 1)]
    assert set(shown[:-1]) == {"Use "} and secret[:8] not in shown[-1]
    assert redaction.unfinished(f"Use token={secret} now, or do") == f"Use token={redaction.REDACTED} now, or "
    world.settings(SECRETS_ELSEWHERE="")
    assert redaction.unfinished("Use it now, or do") == "Use it now, or do"


def test_profile_of_an_agent_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(tenancy.BadProfile) as refused:
        tenancy.read_profile({**tenancy.DEFAULT_PROFILE, "agent": "returns"})
    assert refused.value.faults == ["agent: returns is no agent, so it would be shown no tool"]


def test_customer_may_write_to_a_run_whose_contract_is_broken_while_a_write_is_under_way(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="sent")
    Run.objects.filter(pk=run.pk).update(contract=["broken"])
    store.append_input(str(run.pk), kind="message", message_id="m-1", text="I will kill myself", by="cust_5521")
    assert world.events(run, "words.found") == [{"to": "staff", "error": "sensitive_words", "words": ["kill myself"]}]


@pytest.mark.parametrize(
    "broken",
    [["no object"], {"commerce": {**COMMERCE, "of_a_newer_release": 1}}, {"commerce": 7, "secrets": {"N": 5}}, "words"],
)
def test_workers_start_beside_a_profile_that_no_code_of_ours_can_load(broken: Any) -> None:
    edge.tenant(commerce=COMMERCE, secrets={"NOTE": "ACME_NOTE"})
    edge.tenant("t_broken")
    AgentProfile.objects.filter(tenant_id="t_broken").update(document=broken)
    assert worker.not_needed("passes") == ["ACME_NOTE", "ACME_WRITE", "COMMERCE_WRITE_TOKEN"]
