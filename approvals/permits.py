"""Keeper: who may decide an approval, at the click and again at the release. Writes nothing; imports no runs.

On PostgreSQL the rows that grant a permission are held until the caller's transaction ends; SQLite's writing
transactions are one at a time anyway.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from django.contrib.auth import get_user_model
from django.db import connection

from agentsite import statements
from agentsite.refusals import Refusal

DECIDE = "approvals.decide_approval"
DECIDE_LARGE = "approvals.decide_large_approval"
# Every arm gives (what, a number, another number, a word). PostgreSQL goes through them in this order, and each of them
# in the order of its ids, so that two who hold rows wait for one another in one direction alone. `{share}` is empty or
# holds the rows of one table; what is decided is decided by the rows that came back held, never by an older snapshot.
_GRANTS = """
SELECT * FROM (SELECT 'person', u.id, CASE WHEN u.is_active THEN 1 ELSE 0 END +
  CASE WHEN u.is_superuser THEN 2 ELSE 0 END, u.username FROM auth_user u
  WHERE u.id {people} ORDER BY u.id{share_u}) AS held_people
UNION ALL SELECT * FROM (SELECT 'sees', s.user_id, 0, s.tenant_id FROM tenants_stafftenant s
  WHERE s.user_id {people}{of_tenant} ORDER BY s.id{share_s}) AS held_tenants
UNION ALL SELECT * FROM (SELECT 'member', m.user_id, m.group_id, '' FROM auth_user_groups m
  WHERE m.user_id {people} ORDER BY m.id{share_m}) AS held_memberships
UNION ALL SELECT * FROM (SELECT 'own', g.user_id, 0, c.app_label || '.' || p.codename
  FROM auth_user_user_permissions g JOIN auth_permission p ON p.id = g.permission_id
  JOIN django_content_type c ON c.id = p.content_type_id
  WHERE g.user_id {people} AND p.codename IN ({wanted}) ORDER BY g.id{share_g}) AS held_permissions
UNION ALL SELECT * FROM (SELECT 'group', 0, g.group_id, c.app_label || '.' || p.codename
  FROM auth_group_permissions g JOIN auth_permission p ON p.id = g.permission_id
  JOIN django_content_type c ON c.id = p.content_type_id
  WHERE g.group_id IN (SELECT group_id FROM auth_user_groups WHERE user_id {people})
  AND p.codename IN ({wanted}) ORDER BY g.id{share_g}) AS held_group_permissions
"""
# The same of those who approved an approval, after what was asked and who they are.
_STATED = """
SELECT * FROM (SELECT 'asked', a.required, CASE WHEN a.large THEN 1 ELSE 0 END, a.created_by FROM approvals_approval a
  WHERE a.id = %s) AS asked
UNION ALL SELECT * FROM (SELECT 'of', 0, 0, a.tenant_id FROM approvals_approval a WHERE a.id = %s) AS of_tenant
UNION ALL SELECT * FROM (SELECT 'said', d.id, d.user_id, '' FROM approvals_decision d
  JOIN approvals_approval a ON a.id = d.approval_id WHERE {said} ORDER BY d.id) AS said
UNION ALL {grants}
"""
_SAID = "a.id = %s AND d.counted AND d.decision = 'approve' AND d.attested = a.attestation"
_SAYING = "SELECT d.user_id FROM approvals_decision d JOIN approvals_approval a ON a.id = d.approval_id WHERE {said}"
ACTIVE, SUPERUSER = 1, 2
_WANTED = "'decide_approval', 'decide_large_approval'"


class Asked(Protocol):
    """What of an approval its decider is judged by."""

    @property
    def created_by(self) -> str: ...
    @property
    def large(self) -> bool: ...


class Who(Protocol):
    """A user, or what was read of him."""

    @property
    def pk(self) -> Any: ...
    @property
    def is_active(self) -> bool: ...
    def has_perm(self, perm: str) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Person:
    """A user as the database knows him at one moment, with what of his rights decides about approvals."""

    pk: Any
    name: str
    is_active: bool
    is_superuser: bool = False
    tenants: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()

    def has_perm(self, perm: str) -> bool:
        return self.is_active and (self.is_superuser or perm in self.may)

    def sees(self, tenant_id: str) -> bool:
        """Of the tenants that were asked about."""
        return self.is_superuser or tenant_id in self.tenants


@dataclass(frozen=True, kw_only=True)
class _Asked:
    required: int
    large: bool
    created_by: str
    tenant_id: str


def objection(approval: Asked, user: Who) -> Refusal | None:
    """Why this user may not decide this approval whatever its status, or None. The page and `decide` both ask here."""
    if approval.created_by == f"user:{user.pk}":
        return Refusal(403, "own-run", "Nobody decides what they asked for.", "You started this run yourself.")
    if not user.is_active or not user.has_perm(DECIDE):
        return Refusal(403, "not-permitted", "You may not decide approvals.", "Your account lacks this permission.")
    if approval.large and not user.has_perm(DECIDE_LARGE):
        return Refusal(403, "not-permitted", "You may not decide approvals of this size.", "It is a large one.")
    return None


def person(user_id: Any) -> Person:
    """The user as he is now, with every tenant that he sees. Raises his model's DoesNotExist."""
    with statements.cursor() as cursor:
        cursor.execute(_ONE, [user_id] * _ONE.count("%s"))
        found = _named(cursor.fetchall())
    if not found:
        raise get_user_model().DoesNotExist
    return found[0]


def still_hold(approval_id: str) -> bool:
    """Whether those who approved, as many as it takes, may decide this approval now, read afresh and held where a
    transaction relies on it. A yes without the statement that was asked for is none."""
    sql = _stated(connection.vendor, hold=connection.in_atomic_block and connection.vendor == "postgresql")
    with statements.cursor() as cursor:
        cursor.execute(sql, [approval_id] * sql.count("%s"))
        rows = cursor.fetchall()
    found = {what: (one, other, word) for what, one, other, word in rows if what in ("asked", "of")}
    if not found:
        return False
    (required, large, created_by), (_, _, tenant_id) = found["asked"], found["of"]
    asked = _Asked(required=required, large=bool(large), created_by=created_by, tenant_id=tenant_id)
    ids = [user_id for what, _, user_id, _ in rows if what == "said"]
    if len(ids) < asked.required or None in ids:
        return False
    people = _named(rows)
    return len(people) == len(set(ids)) and all(
        objection(asked, one) is None and one.sees(asked.tenant_id) for one in people
    )


def _named(rows: Sequence[tuple[Any, ...]]) -> list[Person]:
    """The people of an answer, each with what it says of him."""
    named = defaultdict(set)
    for what, one, other, word in rows:
        named[what, other if what == "group" else one].add((other, word))
    return [_person(pk, flags, name, named) for what, pk, flags, name in rows if what == "person"]


def _person(pk: Any, flags: int, name: str, named: dict[tuple[str, Any], set[tuple[Any, str]]]) -> Person:
    groups = [group for group, _ in named["member", pk]]
    may = {perm for key in (("own", pk), *(("group", group) for group in groups)) for _, perm in named[key]}
    return Person(
        pk=pk, name=name, is_active=bool(flags & ACTIVE), is_superuser=bool(flags & SUPERUSER), may=frozenset(may),
        tenants=frozenset(tenant for _, tenant in named["sees", pk]),
    )  # fmt: skip


def _grants(people: str, *, hold: bool = False, of_tenant: str = "") -> str:
    """`people`: what follows the column of a person; `of_tenant`: another condition on the tenants that he sees."""
    share = {f"share_{name}": f" FOR SHARE OF {name}" if hold else "" for name in "usmg"}
    return _GRANTS.format(people=people, wanted=_WANTED, of_tenant=of_tenant, **share)


_ONE = _grants("= %s")


@lru_cache(maxsize=4)
def _stated(vendor: str, *, hold: bool) -> str:
    """On PostgreSQL who approved is a value to the arms that hold rows, and no table of theirs: a row that was waited
    for is looked at anew by itself alone."""
    saying = _SAYING.format(said=_SAID)
    people = f"= ANY(ARRAY({saying}))" if vendor == "postgresql" else f"IN ({saying})"
    of_tenant = " AND s.tenant_id = (SELECT a.tenant_id FROM approvals_approval a WHERE a.id = %s)"
    return _STATED.format(said=_SAID, grants=_grants(people, hold=hold, of_tenant=of_tenant))
