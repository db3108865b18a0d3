"""The action hash against its published vectors, computed here a second way from the text alone."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.house.walls import ROOT
from tools.contracts import action_hash

VECTORS = json.loads((ROOT / "docs" / "action-hash-vectors.json").read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["action"]["tenant_id"])
def test_action_hash_equals_its_vector(vector: dict[str, object]) -> None:
    action = dict(vector["action"])  # type: ignore[call-overload]
    assert action.pop("v") == 1
    assert action_hash(**action) == vector["action_hash"]
    digest = hashlib.sha256(str(vector["canonical"]).encode()).hexdigest()
    assert vector["action_hash"] == f"sha256:{digest}"
    assert json.loads(str(vector["canonical"])) == vector["action"]


def test_action_hash_changes_with_one_byte() -> None:
    action = dict(VECTORS[0]["action"])
    action.pop("v")
    changed = json.loads(json.dumps(action))
    changed["args"]["amount"]["amount"] = "2000.01"
    assert action_hash(**changed) != VECTORS[0]["action_hash"]
