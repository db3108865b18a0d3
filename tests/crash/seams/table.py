"""Every seam of a run, in its order, and how the world is held still there. `right` says what each came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.crash.seams.holds import Answer, Courier, Hold, Lock, Model, Wire, commit, hint

ADMIT, DECIDE, EXPIRE = "admit", "decide", "expire"


@dataclass(frozen=True, kw_only=True)
class Seam:
    """`kills`: what dies: `web`, the worker child of a queue, or the whole `worker`. `write`: the intent stands.

    `brief`: part of every test run, the others of the long one. `hits`: how many of the four are held.
    """

    name: str
    when: str
    kills: str
    hold: Callable[[], Hold]
    write: bool = False
    brief: bool = True
    hits: int = 4
    only_on: str = "PS"


def _twice(
    name: str, mark: str, when: str, kills: str, *, brief: str, write: bool = False, hits: int = 4
) -> list[Seam]:
    """The transaction that records `mark`, before its commit reached the server and after, unknown to its process.

    `brief`: which of the two is part of every test run; "": neither.
    """
    return [
        Seam(
            name=f"{name}, {'after' if after else 'before'} its commit", when=when, kills=kills, write=write, hits=hits,
            hold=lambda after=after: commit(mark, after=after), only_on="P",  # type: ignore[misc]
            brief=brief == ("after" if after else "before"),
        )
        for after in (False, True)
    ]  # fmt: skip


SEAMS = [
    *_twice("admission", "run.accepted", ADMIT, "web", brief="after"),
    Seam(name="hint of an admission", when=ADMIT, kills="web", brief=False, hold=lambda: hint("passes")),
    Seam(
        name="claim, after its commit", when=ADMIT, kills="passes", only_on="P", brief=False,
        hold=lambda: Wire(to="database", at=b"SET lease_token = $1, ", after=True),
    ),
    *_twice("evidence of the goal", "evidence.found", ADMIT, "passes", brief=""),
    Seam(name="model call", when=ADMIT, kills="passes", hold=Model),
    *_twice("model turn", "model.replied", ADMIT, "passes", brief=""),
    Seam(name="read", when=ADMIT, kills="passes", brief=False,
         hold=lambda: Answer(method="GET", path="/v1/payments")),
    *_twice("observations", "tool.observed", ADMIT, "passes", brief=""),
    Seam(name="observations, at the lock", when=ADMIT, kills="passes", only_on="S",
         hold=lambda: Lock(method="GET", path="/v1/payments")),
    Seam(name="hint of the next pass", when=ADMIT, kills="passes", brief=False,
         hold=lambda: hint("passes", after=True, skip=4)),
    Seam(name="gate's facts", when=ADMIT, kills="passes", brief=False,
         hold=lambda: Answer(method="GET", path="/v1/orders", skip=1)),
    *_twice("gate's answer", "gate.decided", ADMIT, "passes", brief=""),
    *_twice("approve click", "approvals_decision", DECIDE, "web", brief="before"),
    Seam(name="hint of a decision", when=DECIDE, kills="web", brief=False, hold=lambda: hint("writes")),
    *_twice("decision folded", "approval.decided", DECIDE, "writes", brief=""),
    Seam(name="release's facts", when=DECIDE, kills="writes", hold=lambda: Answer(method="GET", path="/v1/orders")),
    *_twice("intent", "write.intent", DECIDE, "writes", brief="before"),
    Seam(name="look-up before the POST", when=DECIDE, kills="writes", write=True,
         hold=lambda: Answer(method="GET", path="/v1/refunds", skip=1)),
    *_twice("mark of the sending", "write.sent", DECIDE, "writes", brief="after", write=True),
    Seam(name="POST, arriving 5 s after its sender died", when=DECIDE, kills="writes", write=True,
         hold=lambda: Courier(late_s=5)),
    Seam(name="POST, never arriving", when=DECIDE, kills="writes", write=True, brief=False,
         hold=lambda: Courier(late_s=None)),
    Seam(name="answer of the POST", when=DECIDE, kills="writes", write=True,
         hold=lambda: Answer(method="POST", path="/v1/refunds", mode="delay_after")),
    *_twice("result", "write.result", DECIDE, "writes", brief="before", write=True),
    Seam(name="result, at the lock", when=DECIDE, kills="writes", write=True, only_on="S",
         hold=lambda: Lock(method="POST", path="/v1/refunds")),
    Seam(name="verification read", when=DECIDE, kills="writes", write=True,
         hold=lambda: Answer(method="GET", path="/v1/orders", skip=1)),
    *_twice("verdict", "write.verified", DECIDE, "writes", brief="after", write=True),
    Seam(name="hint of the reply", when=DECIDE, kills="writes", write=True, brief=False, hold=lambda: hint("passes")),
    *_twice("reply", "reply.sent", DECIDE, "passes", brief="before", write=True),
    *_twice("expiry", "approval.expired", EXPIRE, "passes", brief="before", hits=1),
    Seam(name="sweep", when=DECIDE, kills="worker", hits=1, only_on="P",
         hold=lambda: Wire(to="database", at=b"UPDATE runs_sweeper SET token", after=True, most=1)),
]  # fmt: skip

NOT_THERE = {
    "P": "PostgreSQL has no one lock; its wire is held instead",
    "S": "no wire leads to a file; its lock is held",
}
