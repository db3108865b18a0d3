"""Reads a suite from its files, whole or not at all, and the hashes that say what was run. Touches no row.

A fault names file, scenario and field. Everything a scenario gives to others (profile, request) is read as they would.
"""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from agentsite import env, money
from agentsite.canonical import canonical_text, sha256, sha256_bytes
from agentsite.tenants.profiles import Profile
from runs.contracts import RunRequest
from runs.evaluation.scenarios import Json, Scenario, Suite
from runs.management import tenancy

SUITES = Path(__file__).resolve().parent / "suites"
HEAD = "suite.yaml"
PACKAGES = ("agentsite", "approvals", "runs", "tools")
SCORER = ("scoring.py", "figures.py")
READ_ENV, WRITE_ENV = "COMMERCE_READ_TOKEN", "COMMERCE_WRITE_TOKEN"
PROMISES: Json = {"honours_keys": True, "settle_s": 1}
OURS = ("url", "read_token_env", "write_token_env")
NOWHERE = "http://127.0.0.1:9"
MAX_BYTES = 5_000_000
UNREADABLE = (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError, yaml.YAMLError)
"""What reading YAML raises: a value that is none of its own tag is no error of YAML's."""
MERGE, TIMESTAMP = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:timestamp"


class BadSuite(Exception):
    """A suite that cannot be run; the message names file, scenario and field."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A suite with the scenarios that are to be run; `whole` unless some were left out."""

    suite: Suite
    scenarios: tuple[Scenario, ...]
    whole: bool = True

    @property
    def hash(self) -> str:
        """Over everything that was declared, in the order of the ids; thresholds included."""
        said = sorted((scenario.model_dump(mode="json") for scenario in self.scenarios), key=lambda s: str(s["id"]))
        return sha256({"suite": self.suite.model_dump(mode="json"), "scenarios": said})

    def chosen(self, *, only: str | None = None, tag: str | None = None) -> Loaded:
        """Those whose id matches the glob `only`, with the tag. Raises BadSuite where none is left."""
        kept = tuple(
            s for s in self.scenarios if (only is None or fnmatchcase(s.id, only)) and (tag is None or tag in s.tags)
        )
        if not kept:
            raise BadSuite(f"{self.suite.name}: no scenario is called {only or 'anything'} and has the tag {tag}")
        return Loaded(suite=self.suite, scenarios=kept, whole=self.whole and len(kept) == len(self.scenarios))


def load(named: str) -> Loaded:
    """A suite by its folder, or by the name of one that ships. Raises BadSuite."""
    folder = Path(named) if os.path.isdir(named) else SUITES / named  # noqa: PTH112 - False for what can be no name
    if not os.path.isfile(folder / HEAD):  # noqa: PTH113 - the same
        raise BadSuite(f"{named}: no folder with a {HEAD}, and no suite of that name ships")
    suite = _suite(folder / HEAD)
    files = [path for path in sorted(folder.glob("*.yaml")) if path.name != HEAD]
    found = [scenario for path in files for scenario in _scenarios(path)]
    if not found:
        raise BadSuite(f"{folder.name}: holds no scenario")
    twice = [name for name, count in Counter(s.id for s in found).items() if count > 1]
    if twice:
        raise BadSuite(f"{folder.name}: id: {twice[0]} is there twice")
    return Loaded(suite=suite, scenarios=tuple(found))


def scorer_hash() -> str:
    return _hash({name: Path(__file__).with_name(name) for name in SCORER})


def code_hash() -> str:
    """Over every module of ours, as it lies on the disk now."""
    paths = (path for package in PACKAGES for path in (env.ROOT / package).rglob("*.py"))
    return _hash({str(path.relative_to(env.ROOT)): path for path in paths})


def _hash(files: dict[str, Path]) -> str:
    return sha256({name: sha256_bytes(path.read_bytes()) for name, path in files.items()})


# --- what a scenario gives to others ------------------------------------------------------------------------------


def profile(scenario: Scenario, url: str) -> Json:
    """The document of its tenant's profile: the default one with the scenario's changes and a business system."""
    changes = dict(scenario.profile)
    promises = {**PROMISES, **changes.pop("commerce", {})}
    commerce = {**promises, "url": url, "read_token_env": READ_ENV, "write_token_env": WRITE_ENV}
    return {**tenancy.DEFAULT_PROFILE, **changes, "commerce": commerce}


def read_profile(scenario: Scenario, url: str = NOWHERE) -> Profile:
    """Raises tenancy.BadProfile."""
    return tenancy.read_profile(profile(scenario, url))


def request(scenario: Scenario) -> Json:
    """The body of its POST."""
    asked = scenario.asked
    given = {
        "order_ids": list(asked.order_ids) if asked.order_ids else None, "limits": asked.limits,
        "attachments": list(asked.attachments) or None,
    }  # fmt: skip
    actor = {"customer_id": asked.customer_id, **({"session_id": asked.session_id} if asked.session_id else {})}
    body = {"request_id": scenario.id, "goal": asked.goal, "actor": actor}
    return body | {name: value for name, value in given.items() if value is not None}


# --- files ---------------------------------------------------------------------------------------------------------


class _Strict(yaml.SafeLoader):
    """YAML as it is written: a time stays text, and a key that is there twice is a fault."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != MERGE]
        if len(set(map(str, keys))) < len(keys):
            raise yaml.constructor.ConstructorError(None, None, "a key is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Strict.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != TIMESTAMP]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadSuite(f"{path.name}: larger than {MAX_BYTES} bytes")
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Strict)  # noqa: S506 - a SafeLoader, and stricter
    except UNREADABLE as error:
        raise BadSuite(f"{path.name}: {' '.join(str(error).split())[:300]}") from None


def _suite(path: Path) -> Suite:
    try:
        return Suite.model_validate(_read(path))
    except ValidationError as error:
        raise BadSuite(f"{path.name}: {_first(error)}") from None


def _scenarios(path: Path) -> Iterator[Scenario]:
    listed = _read(path)
    if not isinstance(listed, list):
        raise BadSuite(f"{path.name}: expected a list of scenarios")
    for number, document in enumerate(listed, start=1):
        named = document.get("id", f"scenario {number}") if isinstance(document, dict) else f"scenario {number}"
        try:
            yield _checked(Scenario.model_validate(document))
        except ValidationError as error:
            raise BadSuite(f"{path.name}: {named}: {_first(error)}") from None
        except (tenancy.BadProfile, ValueError) as error:
            raise BadSuite(f"{path.name}: {named}: {error}") from None


def _checked(scenario: Scenario) -> Scenario:
    """Raises ValueError, ValidationError or BadProfile, naming the field."""
    commerce = scenario.profile.get("commerce", {})
    if not isinstance(commerce, dict) or any(name in commerce for name in OURS):
        raise ValueError("profile.commerce: only honours_keys, key_life_s and settle_s may be said")
    RunRequest.model_validate(request(scenario))
    read_profile(scenario)
    canonical_text(scenario.model_dump(mode="json"))
    for place, wire in _money_in(scenario.model_dump(mode="json"), ""):
        try:
            money.parse(wire)
        except money.BadMoney as error:
            raise ValueError(f"{place}: {error.field}: {error}") from None
    return scenario


def _money_in(value: Any, place: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        if set(value) == {"amount", "currency"} and not place.endswith(".body"):
            yield place, value
        for name, inner in value.items():
            yield from _money_in(inner, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _money_in(inner, f"{place}.{number}")


def _first(error: ValidationError) -> str:
    fault = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, fault['loc'])) or 'document'}: {fault['msg']}"
