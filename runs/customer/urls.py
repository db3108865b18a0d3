"""Door: the paths of the customer's page, mounted under `/c/`. Whatever else is asked for there is no link of ours."""

from __future__ import annotations

from django.urls import path

from runs.customer import views

urlpatterns = [
    path("<str:token>/", views.page, name="customer"),
    path("<str:token>/message/", views.message, name="customer-message"),
    path("<str:token>/feedback/", views.feedback, name="customer-feedback"),
    path("<path:rest>", views.nothing),
    path("", views.nothing),
]
