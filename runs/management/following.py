"""Door: prints a run while it happens, one line per thing, and knows when it rests. Reads rows, writes none."""

from __future__ import annotations

from django.core.management.base import OutputWrapper
from rich.text import Text

from agentsite import dbtime
from agentsite.text import visible
from approvals import labels
from runs.management import output
from runs.management.timeline import Follower, Line
from runs.models import Run
from runs.states import TERMINAL

ENDED = frozenset(status.value for status in TERMINAL)
FOR_PEOPLE = frozenset({"approval", "reply", "staff"})
PATIENCE_S = 20.0
"""How long a wait for a system, a provider or another refund is watched before it counts as rest."""

TONES = {"plain": "", "good": "green", "bad": "red", "wait": "yellow"}
STATUS_TONES = {"wait": "bold yellow", "good": "bold green", "bad": "bold red", "plain": "bold"}


class Progress:
    """Prints what is new in a run since the last look; silent where a program reads the output."""

    def __init__(self, stdout: OutputWrapper, run_id: str, *, silent: bool = False) -> None:
        self._stdout = stdout
        self._follower = Follower(run_id)
        self._silent = silent

    def look(self) -> Run:
        """Print the news; the run as it is now."""
        news = self._follower.news()
        if not self._silent:
            for line in news.lines:
                _print(self._stdout, line)
            if news.message is not None and news.run.status not in ENDED:
                _print(
                    self._stdout, Line(offset="", span="", who="→ customer", what=f"“{visible(news.message)}”"), "dim"
                )
        return news.run


def rests(run: Run) -> bool:
    """Whether nothing more will happen by itself, or not soon: ended, waiting for a person, or for something away."""
    if run.status in ENDED or run.waiting_for in FOR_PEOPLE or run.status == "approval_expired":
        return True
    waited_s = (dbtime.now() - run.status_since).total_seconds()
    return run.waiting_for is not None and waited_s > PATIENCE_S


def _to_customer(message: str) -> Line:
    return Line(offset="", span="", who="→ customer", what=f"“{visible(message)}”")


def _print(stdout: OutputWrapper, line: Line, style: str = "") -> None:
    what = Text(line.what, style=style or TONES[line.tone])
    if line.status:
        what.append(f"{'  ' if line.what else ''}→ {line.status}", STATUS_TONES[labels.tone(line.status)])
    grid = output.grid(7, 3, 10, None)
    grid.columns[0].justify = "right"
    grid.add_row(Text(line.offset, style="dim"), Text(line.span, style="cyan"), Text(line.who, style="bold"), what)
    output.show(stdout, grid)


def show_reply(stdout: OutputWrapper, run: Run, message: str) -> None:
    """The last word to the customer, framed; the recorded reply, or what may be told where there is none."""
    words = "\n".join(visible(line) for line in (run.reply or message).split("\n"))
    title = "The reply to the customer" if run.reply else "What the customer may be told now"
    tone = {"good": "green", "bad": "red", "wait": "yellow"}.get(labels.tone(run.status), "")
    output.framed(stdout, words, title=title, style=tone)
