"""Reads the project's own source as syntax trees, for the house tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agentsite", "runs", "approvals", "tools")


@lru_cache(maxsize=1)
def sources() -> dict[str, ast.Module]:
    """Every production module by its path from the root, migrations left out."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" not in path.parts:
                found[str(path.relative_to(ROOT))] = ast.parse(path.read_text(), filename=str(path))
    return found


def calls(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of every call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield dotted(node.func), node.lineno


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "?"


def imported(tree: ast.AST) -> set[str]:
    """Names of imported modules, `from a import b` as `a` and `a.b`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def strings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(text, line) of every string constant, f-string parts included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno
