"""Door: users and groups as Django has them, without the parts whose own markup fails a reader of screens."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.http import HttpRequest

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class Users(UserAdmin):  # type: ignore[type-arg]
    """Plain lists of groups and permissions; when somebody came is told, never written."""

    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # what somebody decided names him for ever; who leaves is switched off


@admin.register(Group)
class Groups(GroupAdmin):
    """A plain list of permissions."""

    filter_horizontal = ()
