"""Which tools a model is shown in this turn: granted, of the agent's role, fit for the run's state, blocked by nobody.

Pure but for the settings it is handed. What was shown is recorded with the turn; a call to anything else is unknown.
"""

from __future__ import annotations

from agentsite.env import Environment
from runs import languages, wordlists
from runs.contracts import RunState, ToolSchema
from runs.states import Status
from tools import registry
from tools.contracts import Effect, Permission

QUESTIONS = 3
"""How often a run may ask its customer."""
TO_CUSTOMER = ("message", "ask")
TO_OTHERS = ("ask", "escalate")
"""Tools that end the model's own work on a run for now: they stand alone in a turn."""


def offered(run: RunState, settings: Environment) -> tuple[ToolSchema, ...]:
    """The tools of this run's next turn: reads, writes, people tools, each in the order of their grant (M61)."""
    granted = run.contract.scope
    # Each once, however often a profile names it: providers refuse a list that holds a tool twice.
    names = dict.fromkeys((*granted.read_tools, *granted.write_tools, *granted.people_tools))
    shown = [name for name in names if name not in settings.TOOLS_BLOCKED and _fits(run, name)]
    return tuple(ToolSchema(**schema) for schema in registry.schemas(shown))


def asked(run: RunState) -> int:
    """How many questions reached the customer."""
    return sum(o.source == "ask" and o.ok for o in run.observations)


def _fits(run: RunState, name: str) -> bool:
    tool = registry.TOOLS.get(name)
    if tool is None or tool.permission is Permission.NEVER or name not in registry.ROLES.get(run.agent, ()):
        return False
    if tool.effect is Effect.WRITE:
        # Where none is confirmed it stays: the gate says why a further one is denied, and staff see that it was tried.
        spent = run.write_attempts >= run.contract.limits.max_write_attempts
        return run.open_write is None and not (spent and run.confirmed)
    if name in TO_OTHERS and (run.status is Status.VERIFIED or run.confirmed):
        return False
    if name in TO_CUSTOMER and not wordlists.known(languages.of_customer(run.contract.goal, run.observations)):
        return False  # whatever it said, he would not get it
    return name != "ask" or asked(run) < QUESTIONS
