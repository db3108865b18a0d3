"""Enough of PromQL to say whether an alert fires: instant vectors, comparisons, aggregations. Parsed by a real parser.

A vector is {labels: value}, labels a frozenset of pairs. What is not here raises, so that no expression is half judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import promql_parser as parser

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Series = Mapping[str, Vector]
NONE: Labels = frozenset()
COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip
REDUCE: dict[str, Callable[[Iterable[float]], float]] = {"sum": sum, "max": max, "min": min}


def read(text: str) -> Series:
    """What a scrape said, by metric."""
    found: dict[str, Vector] = {}
    for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.M):
        pairs = frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
        found.setdefault(name, {})[pairs] = float(value)
    return found


def value(expression: str, now: Series, before: Series | None = None) -> Vector:
    """The expression's vector; `before` is what a range began with. Empty: an alert with it does not fire."""
    found = _of(parser.parse(expression), now, before if before is not None else now)
    assert isinstance(found, dict)
    return found


def selectors(expression: str) -> Iterator[tuple[str, set[str], set[str]]]:
    """(metric, labels matched, labels grouped by anywhere in the expression) of every selector."""
    tree = parser.parse(expression)
    grouped: set[str] = set()
    named: list[tuple[str, set[str]]] = []

    def visit(node: Any) -> None:
        if isinstance(node, parser.AggregateExpr) and node.modifier is not None:
            grouped.update(node.modifier.labels)
        if isinstance(node, parser.VectorSelector):
            named.append((str(node.name), {m.name for m in node.matchers.matchers}))

    parser.walk(tree, visit)
    for name, matched in named:
        yield name, matched, grouped


def _of(node: Any, now: Series, before: Series) -> Vector | float:
    if isinstance(node, parser.NumberLiteral):
        return float(node.val)
    if isinstance(node, parser.ParenExpr):
        return _of(node.expr, now, before)
    if isinstance(node, parser.VectorSelector):
        return _selected(node, now)
    if isinstance(node, parser.AggregateExpr):
        return _aggregated(node, now, before)
    if isinstance(node, parser.Call):
        return _called(node, now, before)
    if isinstance(node, parser.BinaryExpr):
        return _joined(node, now, before)
    raise NotImplementedError(type(node).__name__)


def _selected(node: Any, series: Series) -> Vector:
    return {labels: v for labels, v in series.get(node.name, {}).items() if _matches(node, dict(labels))}


def _matches(node: Any, labels: Mapping[str, str]) -> bool:
    for one in node.matchers.matchers:
        have, how = labels.get(one.name, ""), str(one.op).rpartition(".")[2]
        same = re.fullmatch(one.value, have) is not None if how in ("Re", "NotRe") else have == one.value
        if same == how.startswith("Not"):
            return False
    return True


def _aggregated(node: Any, now: Series, before: Series) -> Vector:
    inner = _of(node.expr, now, before)
    assert isinstance(inner, dict)
    by = set(node.modifier.labels) if node.modifier is not None else set()
    groups: dict[Labels, list[float]] = {}
    for labels, v in inner.items():
        groups.setdefault(frozenset(p for p in labels if p[0] in by), []).append(v)
    return {labels: REDUCE[str(node.op)](values) for labels, values in groups.items()}


def _called(node: Any, now: Series, before: Series) -> Vector:
    name = node.func.name
    if name in ("delta", "increase"):
        selector = node.args[0].vector_selector if hasattr(node.args[0], "vector_selector") else node.args[0].vs
        first = _selected(selector, before)
        return {labels: v - first.get(labels, v) for labels, v in _selected(selector, now).items()}
    found = _of(node.args[0], now, before)
    assert isinstance(found, dict)
    if name == "absent":
        return {} if found else {NONE: 1.0}
    if name == "clamp_min":
        least = _of(node.args[1], now, before)
        assert isinstance(least, float)
        return {labels: max(v, least) for labels, v in found.items()}
    raise NotImplementedError(name)


def _joined(node: Any, now: Series, before: Series) -> Vector | float:
    left, right, op = _of(node.lhs, now, before), _of(node.rhs, now, before), str(node.op)
    if op in ("and", "or", "unless"):
        assert isinstance(left, dict) and isinstance(right, dict)
        on = _matching(node)
        if op == "or":
            return left | {labels: v for labels, v in right.items() if labels not in left}
        there = {_key(labels, on) for labels in right}
        return {labels: v for labels, v in left.items() if (_key(labels, on) in there) == (op == "and")}
    if isinstance(left, float) and isinstance(right, float):
        return _number(op, left, right)
    pairs = _pairs(left, right)
    if op in COMPARE:
        assert isinstance(left, dict)
        return {labels: a for labels, a, b in pairs if COMPARE[op](a, b)}
    return {labels: _number(op, a, b) for labels, a, b in pairs}


def _matching(node: Any) -> set[str] | None:
    """Labels of `on (…)`; None: all of them."""
    found = getattr(node.modifier, "matching", None) if node.modifier is not None else None
    return set(found.labels) if found is not None else None


def _key(labels: Labels, on: set[str] | None) -> Labels:
    return labels if on is None else frozenset(p for p in labels if p[0] in on)


def _pairs(left: Vector | float, right: Vector | float) -> list[tuple[Labels, float, float]]:
    if isinstance(left, float):
        assert isinstance(right, dict)
        return [(labels, left, v) for labels, v in right.items()]
    if isinstance(right, float):
        return [(labels, v, right) for labels, v in left.items()]
    return [(labels, v, right[labels]) for labels, v in left.items() if labels in right]


def _number(op: str, a: float, b: float) -> float:
    if op == "/":
        return a / b if b else float("nan") if a == 0 else float("inf")
    return {"+": a + b, "-": a - b, "*": a * b}[op]
