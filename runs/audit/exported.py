"""Checks a file of `export_run` with the key alone: no row is read. Part of `runs.audit`."""

from __future__ import annotations

import uuid
from typing import Any

from agentsite.canonical import canonical_text
from runs.audit.links import Keys, payload_state
from runs.audit.logs import Logs
from runs.audit.values import Head, Link, Noted, Verdict
from runs.audit.verifying import Audit


class BadExport(ValueError):
    """A document that is no exported run, or one that carries no chain."""


def verify_export(document: Any, keys: Keys, logs: Logs) -> Verdict:
    """Check the chain in an exported run, and the state that the document names beside it. Raises BadExport."""
    try:
        head, links = _head(document), sorted(map(_link, document["events"]), key=lambda link: link.seq)
    except KeyError as error:
        raise BadExport(f"it carries no chain: {error} is missing") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise BadExport(f"no exported run: {type(error).__name__}") from None
    audit = Audit(keys, logs)
    audit.run(head, links, logs.of(head.run_id))
    return audit.verdict


def _head(document: Any) -> Head:
    run = document["run"]
    return Head(
        run_id=str(uuid.UUID(run["run_id"])), request_id=run["request_id"], tenant_id=run["tenant_id"],
        trace_id=run["trace_id"], agent=run["agent"], status=run["status"], reason=run["reason"],
        outcome=document["outcome"], last_seq=int(run["last_seq"]), chain_head=run["chain_head"],
        archive=_noted(document.get("archive")),
    )  # fmt: skip


def _noted(note: Any) -> Noted | None:
    if note is None:
        return None
    words = {name: str(note[name]) for name in Noted._fields if name != "last_seq"}
    return Noted(last_seq=int(note["last_seq"]), **words)


def _link(event: Any) -> Link:
    payload = None if event["payload"] is None else canonical_text(event["payload"])
    return Link(
        int(event["seq"]), event["type"], event["at"], event["version"], event["span"], canonical_text(event["meta"]),
        event["digest"], event["prev"], event["mac"], event["key_id"],
        payload_state(payload, event["salt"], event["digest"]),
    )  # fmt: skip
