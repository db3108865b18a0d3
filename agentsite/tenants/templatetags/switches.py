"""Door: what stands still, for the banner of every page of the console."""

from __future__ import annotations

from django import template

from agentsite.tenants import switches

register = template.Library()
register.simple_tag(switches.standing, name="standing")
