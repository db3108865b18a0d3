"""Search by meaning: vectors made in batches, held, compared, fused; an endpoint may do as it likes (M89)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from agentsite import dbtime, redaction
from agentsite.tenants.models import Tenant
from tests import embeddings as served
from tests.embeddings import configured, texts
from tests.loopback import Answer, Loopback, Wire, ok, raw, reset, slow
from tools.models import Breaker, PassageVector, PolicyCorpus, PolicyPassage
from tools.policy import embedding
from tools.policy.documents import load
from tools.policy.embedding import Coverage, embed_missing
from tools.policy.search import search
from tools.policy.vectors import fuse, nearest, question

T, OTHER = "t_acme_in", "t_other"
PATH = "/v1/embeddings"
CLAUSES = {
    "Shipping": "Shipping is free above fifty euros.",
    "Loss": "A parcel that vanished is replaced.",
    "Money": "A duplicate capture is refunded within thirty days.",
}


def document(doc: str = "POL-1", version: int = 1, status: str = "current", clauses: dict[str, str] = CLAUSES) -> str:
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in clauses.items())
    return f"---\nid: {doc}\nversion: {version}\ntitle: Rules\nstatus: {status}\n---\n\n{body}\n"


def many(count: int, doc: str = "POL-MANY") -> str:
    return document(doc, clauses={f"Clause {n}": f"Text number {n} of shop{n}." for n in range(count)})


def sections(found: list[tuple[int, float]] | None) -> list[str]:
    assert found is not None
    names = dict(PolicyPassage.objects.values_list("pk", "section"))
    return [names[key] for key, _ in found]


def made(tenant_id: str) -> Coverage | None:
    """What comes of making vectors with all the time there is."""
    return embed_missing(tenant_id, within_s=60)


def at_an_outage(server: Loopback) -> Coverage | None:
    """What comes of making vectors where the first failure is taken for an outage."""
    with configured(server, BREAKER_FAILURES="1", BREAKER_COOL_S="60"):
        return embed_missing(T, within_s=9)


def stored(model: str = served.MODEL) -> int:
    return PassageVector.objects.filter(model=model).count()


@pytest.fixture(autouse=True)
def tenants(db: None) -> None:
    Tenant.objects.create(id=T)
    Tenant.objects.create(id=OTHER)


@pytest.fixture(scope="module")
def wire() -> Iterator[Loopback]:
    with Loopback() as started:
        yield started


@pytest.fixture
def server(wire: Loopback) -> Iterator[Loopback]:
    """An endpoint that works, at which this site is configured."""
    wire.calls.clear()
    wire.on(PATH, served.answer())
    with configured(wire):
        yield wire


# --- finding -----------------------------------------------------------------------------------------------


def test_passage_is_found_by_meaning_alone(server: Loopback) -> None:
    load(T, document())
    assert made(T) == Coverage(texts=3, missing=0, made=3)
    found = nearest(T, "consignment disappeared", 2)
    assert sections(found)[0] == "Loss"
    assert sections(nearest(T, "reimbursement, charged twice", 1)) == ["Money"]
    assert found is not None and 0.5 < found[0][1] <= 1.0


def test_without_an_endpoint_nothing_is_asked_and_nothing_is_made(wire: Loopback) -> None:
    wire.calls.clear()
    load(T, document())
    assert made(T) is None
    assert embedding.coverage(T) is None
    assert nearest(T, "refund", 3) is None
    assert wire.calls == []


def test_titles_are_part_of_what_is_embedded(server: Loopback) -> None:
    load(T, document())
    made(T)
    assert texts(server.calls[0])[0] == "Rules\nShipping\n\nShipping is free above fifty euros."


def test_equal_passages_stand_in_the_order_of_their_ids(server: Loopback) -> None:
    for doc in ("POL-B", "POL-A", "POL-C"):
        load(T, document(doc))
    made(T)
    found = nearest(T, "freight", 3)
    assert found is not None
    assert [key for key, _ in found] == sorted(key for key, _ in found)
    assert len({score for _, score in found}) == 1
    assert nearest(T, "freight", 3) == found


def test_one_text_is_embedded_once_wherever_it_stands(server: Loopback) -> None:
    load(T, document("POL-A"))
    load(T, document("POL-B"))
    assert made(T) == Coverage(texts=3, missing=0, made=3)
    assert len(nearest(T, "freight refund parcel", 20) or []) == 6


def test_tenants_share_no_vectors(server: Loopback) -> None:
    load(T, document())
    load(OTHER, document())
    made(T)
    assert set(PassageVector.objects.values_list("tenant_id", flat=True)) == {T}
    assert made(OTHER) == Coverage(texts=3, missing=0, made=3)
    mine = set(PolicyPassage.objects.filter(document__tenant_id=T).values_list("pk", flat=True))
    assert {key for key, _ in nearest(T, "freight refund parcel", 20) or []} <= mine


def test_version_in_force_is_searched_and_no_other(server: Loopback) -> None:
    load(T, document())
    made(T)
    load(T, document(version=2, clauses={"Money": "A duplicate capture is refunded within sixty days."}))
    load(T, document(version=3, status="draft", clauses={"Money": "Nothing is refunded."}))
    assert made(T) == Coverage(texts=1, missing=0, made=1)
    found = nearest(T, "reimbursement", 20)
    assert {key for key, _ in found or []} == set(
        PolicyPassage.objects.filter(document__version=2).values_list("pk", flat=True)
    )
    assert stored() == 1, "vectors of texts that nobody may find are not kept"


def test_hit_of_a_tenant_without_policies_is_none(server: Loopback) -> None:
    assert nearest(T, "refund", 3) is None
    assert made(T) == Coverage(texts=0, missing=0, stopped="busy")


# --- with words --------------------------------------------------------------------------------------------


def found(query: str, limit: int = 3, tenant: str = T) -> list[str]:
    return [passage.section for passage in search(tenant, query, pin="POL-1@v1", limit=limit)]


def test_search_finds_what_no_word_of_the_question_stands_in(server: Loopback) -> None:
    load(T, document())
    made(T)
    assert found("consignment disappeared", 1) == ["Loss"]
    with configured(server, EMBEDDINGS_URL="", EMBEDDINGS_MODEL=""):
        assert found("consignment disappeared", 1) == ["Shipping"], "words alone: the beginning of the pinned one"


def test_search_puts_first_what_both_rankings_name(server: Loopback) -> None:
    load(T, document())
    made(T)
    [first, *_] = search(T, "a parcel that disappeared", pin="POL-1@v1", limit=3)
    assert (first.section, first.current) == ("Loss", True)
    assert first.score == pytest.approx(2 / 61, abs=0.001)


def test_search_is_the_same_with_an_endpoint_that_is_away_as_without_one(server: Loopback) -> None:
    load(T, document())
    with configured(server, EMBEDDINGS_URL="", EMBEDDINGS_MODEL=""):
        words = search(T, "capture refunded twice", pin="POL-1@v1")
    made(T)
    server.on(PATH, ok({}, 503))
    assert search(T, "capture refunded twice", pin="POL-1@v1") == words
    assert [passage.section for passage in words] == ["Money"]


def test_search_by_meaning_shows_no_superseded_version_and_no_other_tenants(server: Loopback) -> None:
    load(T, document())
    made(T)
    load(T, document(version=2, clauses={"Now": "Nothing is said."}))
    load(OTHER, document())
    seen = search(T, "consignment disappeared reimbursement", pin="POL-1@v2", limit=20)
    assert {(passage.version, passage.section) for passage in seen} == {(2, "Now")}
    assert all(passage.current for passage in seen)


def test_search_makes_some_of_what_was_missing(server: Loopback) -> None:
    load(T, document())
    server.on(PATH, ok({}, 500))
    assert at_an_outage(server) == Coverage(texts=3, missing=3, stopped="upstream_unavailable")
    Breaker.objects.all().delete()
    server.on(PATH, served.answer())
    assert found("consignment disappeared", 1) == ["Shipping"]
    for number in range(20):
        if embedding.coverage(T) == Coverage(texts=3, missing=0):
            break
        PolicyCorpus.objects.update(stamp=f"a slow machine {number}")
        found("consignment disappeared", 1)
    assert found("consignment disappeared", 1) == ["Loss"]


# --- fusing ------------------------------------------------------------------------------------------------


def test_fusing_adds_reciprocal_ranks() -> None:
    words, meaning = [(7, 9.0), (5, 8.0), (3, 1.0)], [(3, 0.9), (9, 0.8)]
    assert fuse([words, meaning], 10) == [
        (3, round(1 / 63 + 1 / 61, 12)), (7, round(1 / 61, 12)), (5, round(1 / 62, 12)), (9, round(1 / 62, 12)),
    ]  # fmt: skip
    assert [key for key, _ in fuse([words, meaning], 2)] == [3, 7]


@pytest.mark.parametrize(("lists", "wanted"), [([], []), ([[]], []), ([[(1, 0.0), (1, 9.0)]], [(1, 0.016393442623)])])
def test_fusing_little(lists: list[list[tuple[int, float]]], wanted: list[tuple[int, float]]) -> None:
    assert fuse(lists, 5) == wanted


def test_fusing_breaks_ties_by_key_whatever_the_order_of_the_lists() -> None:
    lists = [[(9, 1.0), (4, 1.0), (2, 1.0)], [(4, 1.0), (2, 1.0), (9, 1.0)], [(2, 1.0), (9, 1.0), (4, 1.0)]]
    orders = [[0, 1, 2], [2, 1, 0], [1, 2, 0]]
    assert [[key for key, _ in fuse([lists[i] for i in order], 3)] for order in orders] == [[2, 4, 9]] * 3
    assert fuse(lists, 0) == fuse(lists, -1) == []


# --- what leaves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "leaves"),
    [
        ("Refund order 8472 to anna.b+x@shop.example please", "Refund order to please"),
        ("card 4111 1111 1111 1111 was charged twice", "card was charged twice"),
        ("call +49-170-555-0199 within 30 days", "call within 30 days"),
        ("see https://shop.example/o/8472?t=secret and www.shop.example/x", "see and"),
        ("कार्ड ४१११११११ पर दो बार", "कार्ड पर दो बार"),
        ("pay_duplicate_1 of ORD-2026-0000847 under POL-REF-004", "pay_duplicate_1 of under POL-REF-004"),
        ("我的包裹丢失了8472请退款", "我的包裹丢失了 请退款"),
        ("8472 4711", ""),
        ("", ""),
    ],
)
def test_question_names_no_person_and_no_object(asked: str, leaves: str) -> None:
    assert question(asked) == leaves


@pytest.mark.parametrize("odd", ["a" * 100_000, "a@" * 50_000, "1" * 100_000, "x." * 50_000 + "://", "www." * 30_000])
def test_question_of_any_length_is_made_ready_at_once(odd: str) -> None:
    begun = time.monotonic()
    question(odd)
    assert time.monotonic() - begun < 5


def test_no_secret_leaves(server: Loopback) -> None:
    secret = "tok-7a91c5-known-to-this-site"
    redaction.keep(secret)
    load(T, document(clauses={"Keys": f"Say {secret} to the courier."}))
    made(T)
    nearest(T, f"what if I say {secret} or {served.KEY} for freight, order 847299?", 3)
    assert len(server.calls) == 2
    assert secret not in served.said(server)
    assert not [call for call in server.calls if served.KEY in call.body.decode()]
    assert "847299" not in served.said(server)


def test_question_of_nothing_but_numbers_is_not_asked(server: Loopback) -> None:
    load(T, document())
    made(T)
    server.calls.clear()
    assert nearest(T, "8472 4711 someone@shop.example", 3) is None
    assert nearest(T, "freight", 0) is None
    assert server.calls == []


# --- an endpoint that is away, or worse --------------------------------------------------------------------


def _turned(count: int) -> Answer:
    return served.answer(lambda asked: [served.vector(text, count, "another") for text in asked])


@pytest.mark.parametrize(
    "answer",
    [
        ok({}, 500), ok({}, 429, more=(("Retry-After", "30"),)), ok({}, 401), ok({}, 400), ok({}, 404), reset,
        raw(b"nonsense"), raw(b""), slow(1, served.answer()), _turned(32), served.data(lambda rows: rows[1:]),
        served.answer(lambda asked: [[0.0] * 64 for _ in asked]),
    ],
)  # fmt: skip
def test_search_by_words_goes_on_whatever_the_endpoint_does(server: Loopback, answer: Answer) -> None:
    load(T, document())
    made(T)
    with configured(server, EMBEDDINGS_TIMEOUT_S="0.3"):
        server.on(PATH, answer)
        assert nearest(T, "freight", 3) is None
        server.on(PATH, served.answer())
    Breaker.objects.all().delete()
    assert sections(nearest(T, "freight", 1)) == ["Shipping"]


def test_breaker_spares_an_endpoint_that_is_away(server: Loopback) -> None:
    load(T, document())
    made(T)
    server.on(PATH, raw(b"nonsense"))
    server.calls.clear()
    assert [nearest(T, "freight", 3) for _ in range(9)] == [None] * 9
    assert len(server.calls) == 3
    row = Breaker.objects.get(dependency="embeddings")
    assert row.account == f"{served.MODEL}@{server.url}"
    server.on(PATH, served.answer())
    Breaker.objects.update(open_until=dbtime.now() - timedelta(seconds=1))
    assert sections(nearest(T, "freight", 1)) == ["Shipping"]
    assert Breaker.objects.get(dependency="embeddings").open_until is None


def test_question_that_is_too_long_is_asked_shorter(server: Loopback) -> None:
    load(T, document())
    made(T)
    server.on(PATH, served.taking(32, chars=2_000))
    assert sections(nearest(T, "freight " * 1_000, 1)) == ["Shipping"]
    assert Breaker.objects.filter(failures__gt=0).count() == 0


# --- loading -----------------------------------------------------------------------------------------------


def test_load_makes_the_vectors_at_once(server: Loopback, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(document())
    out = StringIO()
    call_command("index_policies", tmp_path, tenant=T, json=True, stdout=out)
    assert json.loads(out.getvalue())["vectors"] == {"texts": 3, "missing": 0, "made": 3, "stopped": ""}


def test_load_is_whole_without_vectors(server: Loopback, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(document())
    server.on(PATH, ok({}, 401))
    out = StringIO()
    call_command("index_policies", tmp_path, tenant=T, json=True, stdout=out)
    told = json.loads(out.getvalue())
    assert told["vectors"] == {"texts": 3, "missing": 3, "made": 0, "stopped": "access_refused"}
    assert [row["policy"] for row in told["policies"]] == ["POL-1@v1"]
    assert found("parcel replaced", 1) == ["Loss"]


# --- making ------------------------------------------------------------------------------------------------


def test_making_goes_on_where_it_stopped(server: Loopback) -> None:
    load(T, many(20))
    server.on(PATH, served.answer(), ok({}, 500))
    assert at_an_outage(server) == Coverage(texts=20, missing=12, made=8, stopped="upstream_unavailable")
    Breaker.objects.all().delete()
    server.on(PATH, served.answer())
    server.calls.clear()
    assert embed_missing(T, within_s=30) == Coverage(texts=20, missing=0, made=12)
    assert [len(texts(call)) for call in server.calls] == [1, 12], "the one is known: it tells whether the model is"
    assert stored() == 20


def test_time_that_the_endpoint_names_is_waited_for_within_the_time_there_is(server: Loopback) -> None:
    load(T, document())
    busy = ok({}, 429, more=(("Retry-After", "0.2"),))
    server.on(PATH, busy, busy, served.answer())
    with configured(server, BREAKER_COOL_S="0.1", BREAKER_MAX_COOL_S="0.2"):
        assert embed_missing(T, within_s=20) == Coverage(texts=3, missing=0, made=3)
    Breaker.objects.all().delete()
    PassageVector.objects.all().delete()
    server.on(PATH, ok({}, 429, more=(("Retry-After", "60"),)))
    begun = time.monotonic()
    assert embed_missing(T, within_s=50) == Coverage(texts=3, missing=3, stopped="upstream_unavailable")
    assert time.monotonic() - begun < 40


@pytest.mark.parametrize(("most", "chars"), [(7, 10**9), (1, 10**9), (32, 3_000), (2, 600)])
def test_batch_that_is_refused_is_made_smaller_and_a_long_text_shorter(server: Loopback, most: int, chars: int) -> None:
    load(T, document(clauses={f"Clause {n}": f"Freight of {'x' * n * 200} shops." for n in range(1, 41)}))
    server.on(PATH, served.taking(most, chars=chars))
    assert embed_missing(T, within_s=60) == Coverage(texts=40, missing=0, made=40)


def test_texts_that_nobody_takes_hold_up_no_other(server: Loopback) -> None:
    load(T, many(30))

    def picky(wire: Wire) -> None:
        bad = any(f"shop{n}." in text for n in (4, 5, 6) for text in texts(served.last(wire)))
        (ok({}, 400) if bad else served.answer())(wire)

    server.on(PATH, picky)
    assert embed_missing(T, within_s=30) == Coverage(texts=30, missing=3, made=27)
    assert len(nearest(T, "text number of", 50) or []) == 27


def test_endpoint_that_refuses_everything_is_soon_let_alone(server: Loopback) -> None:
    load(T, many(100))
    server.on(PATH, ok({"error": "no such model"}, 400))
    assert embed_missing(T, within_s=60) == Coverage(texts=100, missing=100, stopped="text_refused")
    assert len(server.calls) <= 13


def test_answer_that_is_not_whole_stores_nothing_of_its_batch(server: Loopback) -> None:
    load(T, document())
    server.on(PATH, served.data(lambda rows: rows[:2]))
    assert at_an_outage(server) == Coverage(texts=3, missing=3, stopped="bad_answer")
    assert stored() == 0


def test_model_that_answers_in_other_lengths_stores_one_of_them(server: Loopback) -> None:
    load(T, many(16))
    server.on(PATH, served.answer(), _turned(32), ok({}, 401))
    assert embed_missing(T, within_s=9) == Coverage(texts=16, missing=8, made=8, stopped="access_refused")
    assert {len(bytes(v)) for v in PassageVector.objects.values_list("vector", flat=True)} == {4 * 64}


@pytest.mark.parametrize("length", [64, 32])
def test_another_model_under_the_same_name_makes_all_anew(server: Loopback, length: int) -> None:
    load(T, document())
    made(T)
    server.on(PATH, _turned(length))
    assert made(T) == Coverage(texts=3, missing=0, made=3)
    assert {len(bytes(v)) for v in PassageVector.objects.values_list("vector", flat=True)} == {4 * length}
    assert sections(nearest(T, "freight", 1)) == ["Shipping"]


def test_another_name_has_vectors_of_its_own(server: Loopback) -> None:
    load(T, document())
    made(T)
    with configured(server, EMBEDDINGS_MODEL="next"):
        assert made(T) == Coverage(texts=3, missing=0, made=3)
        assert sections(nearest(T, "freight", 1)) == ["Shipping"]
    assert (stored(), stored("next")) == (3, 3)


def test_vector_that_is_no_vector_is_made_again(server: Loopback) -> None:
    load(T, document())
    made(T)
    PassageVector.objects.filter(pk=PassageVector.objects.latest("pk").pk).update(vector=b"\x00" * 12)
    assert made(T) == Coverage(texts=3, missing=0, made=1)
    assert len(nearest(T, "freight refund parcel", 20) or []) == 3


@pytest.mark.parametrize("broken", [b"", b"\x00" * 13, b"\xff" * 256], ids=["none", "odd", "no numbers"])
def test_vectors_that_are_none_break_no_search_and_are_made_again(server: Loopback, broken: bytes) -> None:
    load(T, document())
    made(T)
    PassageVector.objects.update(vector=broken)
    PolicyCorpus.objects.update(stamp="another")
    assert not nearest(T, "freight", 1)
    done = made(T)
    assert done is not None and (done.missing, done.stopped) == (0, "")
    PolicyCorpus.objects.update(stamp="a third")
    assert sections(nearest(T, "freight", 1)) == ["Shipping"]


def test_one_maker_a_tenant_at_a_time(server: Loopback) -> None:
    load(T, document())
    PolicyCorpus.objects.update(embeds_token="another", embeds_until=dbtime.now() + timedelta(seconds=9))
    assert made(T) == Coverage(texts=3, missing=3, stopped="busy")
    assert server.calls == []
    PolicyCorpus.objects.update(embeds_until=dbtime.now() - timedelta(seconds=1))
    assert made(T) == Coverage(texts=3, missing=0, made=3)
    assert PolicyCorpus.objects.get().embeds_until is None


def test_maker_whose_right_was_taken_stores_nothing(server: Loopback) -> None:
    load(T, document())

    lease = embedding._Lease(T, 5)
    assert lease.take()
    PolicyCorpus.objects.update(embeds_token="another")
    row = PassageVector(tenant_id=T, model=served.MODEL, content_hash="x", vector=b"1234")
    assert not lease.change(gone=[], made=[row])
    lease.give_back()
    assert (stored(), PolicyCorpus.objects.get().embeds_token) == (0, "another")
