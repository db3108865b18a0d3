"""Door: the paths of the runs API, mounted under `/api/v1/`."""

from __future__ import annotations

from django.urls import path

from runs.api import files, schemes, views

urlpatterns = [
    path("runs", views.RunsView.as_view(), name="runs"),
    path("runs/<str:run_id>", views.RunView.as_view(), name="run"),
    path("runs/<str:run_id>/events", views.EventsView.as_view(), name="run-events"),
    path("runs/<str:run_id>/observations", views.ObservationsView.as_view(), name="run-observations"),
    path("runs/<str:run_id>/attachments/<str:attachment_id>", files.AttachmentView.as_view(), name="run-attachment"),
    path("runs/<str:run_id>/messages", views.MessagesView.as_view(), name="run-messages"),
    path("runs/<str:run_id>/feedback", views.FeedbackView.as_view(), name="run-feedback"),
    path("runs/<str:run_id>/cancel", views.CancelView.as_view(), name="run-cancel"),
]

__all__ = ["schemes", "urlpatterns"]
