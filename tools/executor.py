"""The one hand that moves money: sends one released write once. It alone holds the write token; it asks no gate.

Between the committed mark and the first byte stand three questions: is this ticket the action that was hashed, is
the frozen body that action, is there still time to end before the mark gives up.
"""

from __future__ import annotations

from agentsite import clock
from agentsite.canonical import NotStrictJson, canonical_text, strict_loads
from tools import breaker, credentials, placeholders, registry
from tools.adapters import commerce, http
from tools.contracts import Backend, Effect, Release, SentMark, WriteAnswer, action_hash, write_key
from tools.errors import AccessRefused, NobodyThere, OutcomeUnknown

BODY_FIELDS = ("order_id", "payment_id", "amount", "reason")


class TamperedRelease(AssertionError):
    """A ticket that does not agree with itself: our own bug or somebody's hand. Nothing was sent."""


def execute(release: Release, mark: SentMark, backend: Backend) -> WriteAnswer:
    """Sends the write of this ticket, once, within the registry's timeout; there is no retry.

    Raises TamperedRelease, Refused (the answer proves that nothing was made) or OutcomeUnknown (everything else,
    `not_sent_in_time` and a missing credential included: look the write up, as after any doubt).
    """
    _check(release, backend)
    timeout_s = registry.timeout_s(release.tool)

    def in_time() -> None:
        if mark.window_s - (clock.monotonic() - mark.marked_at) < timeout_s:
            raise OutcomeUnknown(slug="not_sent_in_time")

    try:
        token = credentials.write_token(backend)
        body = _on_the_wire(release, backend)
    except AccessRefused as error:
        raise OutcomeUnknown(slug=error.slug) from None
    try:
        return commerce.post_refund(
            http.shared(),
            backend.url,
            token,
            key=release.key,
            body=body,
            trace_id=release.trace_id,
            timeout_s=timeout_s,
            before_send=in_time,
        )
    except NobodyThere as down:
        breaker.failed(_permit(backend), down.retry_after_s)
        raise


def is_ready(release: Release, backend: Backend) -> bool:
    """Whether this process holds the backend's write credential, and its breaker is closed; asked before an attempt is
    spent. A write is never the probe of a half-open one: the look-up that comes before it is.

    Raises TamperedRelease as `execute` would, so that a write which is never sent is never marked sent either.
    """
    _check(release, backend)
    try:
        credentials.write_token(backend)
        _on_the_wire(release, backend)
    except AccessRefused:
        return False
    permit = _permit(backend)
    return breaker.is_closed(permit.dependency, permit.account)


def _on_the_wire(release: Release, backend: Backend) -> str:
    """The frozen body with its secrets in place of their placeholders; the very same text where it holds none.

    Raises AccessRefused `secret_missing`, and TamperedRelease where a placeholder stands in a field that takes none.
    """
    body = strict_loads(release.body)
    used = placeholders.used(body)
    if not used:
        return release.body
    takes = registry.entry(release.tool).secret_args
    if not all(field in takes and name for field, name in used):
        raise TamperedRelease("a placeholder of a secret in a field that takes none")

    def secret(name: str) -> str:
        return credentials.stands_for(backend, name).get_secret_value()

    return canonical_text({n: placeholders.resolved(v, secret) if n in takes else v for n, v in body.items()})


def _permit(backend: Backend) -> breaker.Permit:
    account = breaker.account_of(backend.tenant_id, backend.url)
    return breaker.Permit(dependency=breaker.BUSINESS_SYSTEM, account=account)


def _check(release: Release, backend: Backend) -> None:
    """Raised and not asserted, so that no switch of the interpreter turns it off."""
    hashed = action_hash(
        tenant_id=release.tenant_id,
        run_id=release.run_id,
        tool=release.tool,
        args=release.args,
        policy=release.policy,
    )
    if hashed != release.action_hash:
        raise TamperedRelease("the action is not the one that was hashed")
    if registry.entry(release.tool).effect is not Effect.WRITE or backend.tenant_id != release.tenant_id:
        raise TamperedRelease("no write, or a backend of another tenant")
    if backend.url != release.origin:
        raise TamperedRelease("released for another business system")
    if not _fields_agree(release) or not _body_agrees(release):
        raise TamperedRelease("what would be sent is not the action that was hashed")


def _fields_agree(release: Release) -> bool:
    args = release.args
    key = write_key(
        tenant_id=release.tenant_id, request_id=release.request_id, tool=release.tool, target=release.payment_id
    )
    named = (args.get("order_id"), args.get("payment_id"), args.get("amount"))
    return named == (release.order_id, release.payment_id, release.amount.wire()) and release.key == key


def _body_agrees(release: Release) -> bool:
    try:
        body = strict_loads(release.body)
    except NotStrictJson:
        return False
    return isinstance(body, dict) and all(body.get(name) == release.args.get(name) for name in BODY_FIELDS)
