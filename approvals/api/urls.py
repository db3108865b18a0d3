"""Door: the paths of the approvals API, mounted under `/api/v1/`."""

from __future__ import annotations

from django.urls import path

from approvals.api import views

urlpatterns = [
    path("approvals", views.ApprovalsView.as_view(), name="approvals"),
    path("approvals/<str:approval_id>", views.ApprovalView.as_view(), name="approval"),
    path("approvals/<str:approval_id>/decision", views.DecisionView.as_view(), name="approval-decision"),
]
