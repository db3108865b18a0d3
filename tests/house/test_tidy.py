"""Small and clear, measured: functions, classes, files, names and opening sentences."""

from __future__ import annotations

import ast
import statistics
import subprocess

from tests.house.walls import ROOT, sources

MAX_FUNCTION, MAX_FILE, MAX_CLASS = 50, 400, 150
FORBIDDEN_NAMES = {"utils", "helpers", "common", "core", "services", "manager", "misc"}
# A longer one stands here with its reason.
LONGER: dict[str, str] = {
    "runs/contracts.py": "every value that crosses the control zone, in one paper a reader looks names up in",
}


def _length(node: ast.AST) -> int:
    """Lines of a definition without its docstring."""
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    body = node.body
    has_doc = body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    doc = (body[0].end_lineno or 0) - body[0].lineno + 1 if has_doc else 0
    return (node.end_lineno or node.lineno) - node.lineno + 1 - doc


def _functions() -> list[tuple[str, int]]:
    return [
        (f"{path}:{node.name}", _length(node))
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_functions_stay_small() -> None:
    assert [f for f, lines in _functions() if lines > MAX_FUNCTION] == []


def test_functions_are_about_eight_lines() -> None:
    lengths = [lines for _, lines in _functions()]
    assert statistics.median(lengths) <= 9
    assert sum(length > 30 for length in lengths) / len(lengths) < 0.03


def test_files_stay_readable() -> None:
    long = [p for p in sources() if len((ROOT / p).read_text().splitlines()) > MAX_FILE]
    assert [p for p in long if p not in LONGER] == []


def test_every_exception_to_the_length_is_still_needed() -> None:
    assert [p for p in LONGER if len((ROOT / p).read_text().splitlines()) <= MAX_FILE] == []


def test_classes_stay_small() -> None:
    found = [
        f"{path}:{node.name}"
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and _length(node) > MAX_CLASS
    ]
    assert found == []


def test_modules_have_the_missions_names() -> None:
    assert [p for p in sources() if set(p.removesuffix(".py").split("/")) & FORBIDDEN_NAMES] == []


def test_every_module_opens_with_a_sentence() -> None:
    bare = [p for p, tree in sources().items() if tree.body and not ast.get_docstring(tree)]
    assert [p for p in bare if not p.endswith(("apps.py", "manage.py"))] == []


def test_no_leftovers() -> None:
    marks = ("TODO", "FIXME", "XXX")
    found = [
        f"{path}:{number}"
        for path in sources()
        for number, line in enumerate((ROOT / path).read_text().splitlines(), start=1)
        if any(mark in line for mark in marks)
    ]
    assert found == []


def test_no_path_of_one_machine_is_committed() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = [p for p in listed if p.endswith((".py", ".md", ".toml", ".yaml", ".txt", ".html", ".css", ".js", ".json"))]
    homes = ("/" + "work/", "/" + "root/", "/" + "home/")
    assert [p for p in texts if any(h in (ROOT / p).read_text() for h in homes)] == []
