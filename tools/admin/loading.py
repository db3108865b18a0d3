"""Part of a door: the form that loads a policy, and what is pinned to one. Reads rows; writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.files.uploadedfile import UploadedFile

from agentsite.tenants.models import AgentProfile, Tenant, visible_tenants
from agentsite.text import visible
from tools.models import PolicyDocument
from tools.policy.documents import FIELDS, MAX_BYTES, PolicyFormatError, decoded

if TYPE_CHECKING:
    from django.contrib.auth.models import User

EXAMPLE = (
    "---\nid: POL-REF-004\nversion: 5\ntitle: Refunds\neffective_from: 2026-12-01\neffective_until: null\n"
    "status: draft\n---\n\n# Refunds\n\n…"
)
MAX_PROFILES = 500


class LoadForm(forms.Form):
    """A tenant, and a policy as a file or a text: exactly one of the two."""

    tenant = forms.ChoiceField(label="Tenant")
    file = forms.FileField(label="File", required=False, allow_empty_file=True)
    text = forms.CharField(label="or text", required=False, strip=False)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        mine = visible_tenants(user)
        rows = Tenant.objects.all() if mine is None else Tenant.objects.filter(pk__in=mine)
        ids = list(rows.order_by("pk").values_list("pk", flat=True))
        tenants: Any = self.fields["tenant"]
        tenants.choices = [(pk, visible(pk)) for pk in ids]
        self.example = EXAMPLE
        self.known = ", ".join(FIELDS)
        self.most_kb = MAX_BYTES // 1000

    def clean(self) -> dict[str, Any]:
        found = super().clean() or {}
        if not self.errors and bool(found.get("file")) == bool(found.get("text", "").strip()):
            self.add_error("file", "A file or a text is needed, and not both.")
        return found

    @property
    def tenant_id(self) -> str:
        return str(self.cleaned_data["tenant"])

    @property
    def source(self) -> str:
        """The field the policy came in."""
        return "file" if self.cleaned_data.get("file") else "text"

    def policy(self) -> str:
        """The policy's text. Raises PolicyFormatError."""
        upload: UploadedFile[Any] | None = self.cleaned_data.get("file")
        return decoded(upload.read(MAX_BYTES + 1)) if upload else str(self.cleaned_data["text"])

    def field_of(self, error: PolicyFormatError) -> str:
        return "tenant" if error.field == "tenant" else self.source


def pinned_by(document: PolicyDocument) -> list[dict[str, Any]]:
    """The profiles in force of the document's tenant that pin a version of it: `{agent, version}`."""
    rows = AgentProfile.objects.filter(tenant_id=document.tenant_id).order_by("agent", "-revision")
    newest: dict[str, str] = {}
    for agent, found in rows.values_list("agent", "document")[:MAX_PROFILES]:
        newest.setdefault(agent, str(found.get("policy_pin", "")) if isinstance(found, dict) else "")
    begin = f"{document.doc_id}@v"
    return [{"agent": a, "version": p.removeprefix(begin)} for a, p in newest.items() if p.startswith(begin)]
