"""The README's tables are the code's: a reader may trust them."""

from __future__ import annotations

import re

from runs import states
from tests.house.walls import ROOT, sources

README = (ROOT / "README.md").read_text()


def test_readme_prints_the_state_table() -> None:
    shown = README.split("<!-- states -->")[1].split("<!-- /states -->")[0].strip()
    assert shown == states.as_markdown()


def test_readme_map_names_real_places() -> None:
    section = README.split("<!-- map -->")[1].split("<!-- /map -->")[0]
    places = re.findall(r"^\| `([^`]+)` \|", section, flags=re.M)
    assert len(places) > 10
    assert [p for p in places if not (ROOT / p).exists()] == []


def test_readme_commands_exist() -> None:
    named = set(re.findall(r"manage\.py ([a-z_]+)", README)) - {"migrate"}
    assert [c for c in named if f"runs/management/commands/{c}.py" not in sources()] == []


def test_readme_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", README)
    assert [link for link in links if not (ROOT / link).exists()] == []
