"""The orchestrator: one handler a status. A handler looks, calls at most one model or one write, and returns.

It writes nothing: `runs.advance` checkpoints what it returns. It alone may import the gate and the dispatcher.
"""

from runs.orchestrator.comparing import compare_due
from runs.orchestrator.later import Later, Send
from runs.orchestrator.ports import LIVE, Ports
from runs.orchestrator.sending import ticket
from runs.orchestrator.settling import settle
from runs.orchestrator.steps import asks_model, can_send, resolve_intent, send, step
from runs.orchestrator.turns import overtaken

__all__ = [
    "LIVE", "Later", "Ports", "Send", "asks_model", "can_send", "compare_due", "overtaken", "resolve_intent", "send",
    "settle", "step", "ticket",
]  # fmt: skip
