"""What a tool's registry entry and the site let happen at all, before a fact is read (M55); asked by the gate alone.

Effect, permission, danger, the site's list of blocked tools, placeholders of secrets. Imports no executor and no runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tools import placeholders, registry
from tools.contracts import Check, Danger, Effect, Json, Permission, Proposal, Scope, ToolEntry


def read_refusal(scope: Scope, proposal: Proposal, blocked: Collection[str]) -> str | None:
    """Why a read may not run, as a slug, or None."""
    entry = registry.TOOLS.get(proposal.tool)
    if entry is None:
        return "unknown_tool"
    if proposal.tool in blocked:
        return "tool_blocked"
    if entry.effect is not Effect.READ or proposal.tool not in scope.read_tools:
        return "tool_not_in_scope"
    if entry.permission is Permission.NEVER:
        return "tool_never_allowed"
    if not danger_fits(entry):
        return "tool_too_dangerous"
    # Only the hand of a write resolves a placeholder.
    return "secret_not_allowed" if placeholders.used(proposal.args) else None


def write_checks(
    scope: Scope, tool: str, args: Json, *, blocked: Collection[str], secrets: Collection[str]
) -> Iterable[Check]:
    """The checks of a proposed write that its entry decides; `secrets` are the placeholder names of its tenant."""
    entry = registry.TOOLS.get(tool)
    if tool in blocked:
        yield Check(name="tool_blocked", ok=False, inputs={"tool": tool})
    in_scope = entry is not None and entry.effect is Effect.WRITE and tool in scope.write_tools
    yield Check(name="tool_not_in_scope", ok=in_scope, inputs={"tool": tool})
    yield Check(name="tool_never_allowed", ok=entry is not None and entry.permission is not Permission.NEVER)
    if entry is not None and not danger_fits(entry):
        inputs = {"danger": entry.danger.value, "permission": entry.permission.value}
        yield Check(name="tool_too_dangerous", ok=False, inputs=inputs)
    yield from _secret_checks(entry, args, secrets)


def danger_fits(entry: ToolEntry) -> bool:
    """What runs with no check of its arguments must be safe."""
    return entry.permission is not Permission.UNRESTRICTED or entry.danger is Danger.SAFE


def _secret_checks(entry: ToolEntry | None, args: Json, secrets: Collection[str]) -> Iterable[Check]:
    """A placeholder stands only where the tool's entry takes one, and names one of the profile's secrets (M71)."""
    used = placeholders.used(args)
    if not used:
        return
    declared = entry.secret_args if entry is not None else ()
    fits = all(field in declared and name in secrets for field, name in used)
    inputs = {"fields": sorted({field for field, _ in used}), "names": sorted({name for _, name in used})}
    yield Check(name="secret_not_allowed", ok=fits, inputs=inputs)
