"""Secrets planted in a test's world, and the search for them in every place that a run leaves something."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.test import Client

from runs import prompt as prompts
from runs import store
from runs.models import Run
from runs.orchestrator.offered import offered
from tests.world import World

READ, WRITE = "sandbox-read", "sandbox-write"
"""The tenant's credentials: what the sandbox takes."""
MODEL_KEY = "sk-planted-0123456789abcdef"
ODD_KEY = 'emb"odd\\key/with spaces & äöü'
SECRETS = {"OPENAI_API_KEY": MODEL_KEY, "EMBEDDINGS_API_KEY": ODD_KEY, "ACME_NOTE": "note-secret-4711-planted"}
ALL = (READ, WRITE, *SECRETS.values())
CARD = "4111 1111 1111 1111"


def forms(secret: str) -> set[str]:
    """How a secret may stand in a stored text: as it is, in JSON of either kind, in a page."""
    import json
    from html import escape

    plain = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return plain | {escape(form) for form in plain} | {json.dumps(form)[1:-1] for form in plain}


def leaks(text: str, secrets: tuple[str, ...] = ALL) -> list[str]:
    return [secret for secret in secrets if any(form in text for form in forms(secret))]


def in_database(secrets: tuple[str, ...] = ALL) -> list[str]:
    """`table.column: secret` of every cell of every table that holds one."""
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in cursor.description]
            for row in cursor.fetchall():
                for name, value in zip(names, row, strict=True):
                    found += [f"{table}.{name}: {s}" for s in leaks(str(value), secrets)]
    return found


def in_prompt(run: Run, world: World) -> list[str]:
    from agentsite import env

    state = store.load(str(run.pk), "")
    settings = env.read()
    built = prompts.build_prompt(
        state, offered(state, settings), window_tokens=200_000, tail_tokens=settings.MODEL_TAIL_TOKENS
    )
    return leaks("\n".join(message.content for message in built.messages))


def in_pages(run: Run, staff: Client, approvals: list[str]) -> list[str]:
    """Of the console: lists, the run's page, its approvals, each write."""
    paths = [
        "/admin/runs/run/",
        f"/admin/runs/run/{run.pk}/change/",
        "/admin/approvals/approval/",
        "/admin/runs/write/",
    ]
    paths += [f"/admin/approvals/approval/{approval_id}/change/" for approval_id in approvals]
    return [f"{path}: {s}" for path in paths for s in leaks(_page(staff, path))]


def in_answers(run: Run, client: Client) -> list[str]:
    """Of the interface for programs: the run, its list, events and observations."""
    base = f"/api/v1/runs/{run.pk}"
    paths = ["/api/v1/runs", base, f"{base}/events?limit=200", f"{base}/observations?limit=50"]
    return [f"{path}: {s}" for path in paths for s in leaks(_page(client, path))]


def _page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code, answer.content[:300])
    return answer.content.decode()


@contextmanager
def log_lines() -> Iterator[io.StringIO]:
    """Everything the site's own handler writes meanwhile."""
    handler = next(h for h in logging.getLogger().handlers if type(h.formatter).__name__ == "ProcessorFormatter")
    assert isinstance(handler, logging.StreamHandler)
    lines, root = io.StringIO(), logging.getLogger()
    before, level = handler.setStream(lines), root.level
    root.setLevel(logging.INFO)  # a library that another test ran may have raised it
    try:
        yield lines
    finally:
        root.setLevel(level)
        handler.setStream(before or handler.stream)
