"""Starts the very workers a site has, with refund-8472's instant world in place of the real one.

    python -m tests.bench.entry REFUNDS worker --name w1      `manage.py worker`, its children started by this file too
    python -m tests.bench.entry REFUNDS celery -A …           one such child
    python -m tests.bench.entry REFUNDS up --port 8080        `manage.py up`, which also reads phases from its stdin
    python -m tests.bench.entry REFUNDS drive                 admits and approves beside workers
    python -m tests.bench.entry REFUNDS loop                  no broker, no worker: each run from end to end by calls

REFUNDS is the folder where refunds are made. The environment is a site's.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TextIO

from tests.bench import driving, instant


def main() -> None:
    folder, what, *arguments = sys.argv[1:]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
    instant.install(Path(folder))
    if what == "celery":
        _celery(arguments)
    elif what in ("drive", "loop"):
        _with_django()
        _drive(Path(folder), driving.own_stdout(), in_process=what == "loop")
    else:
        _with_django()
        _command(folder, what, arguments)


def _with_django() -> None:
    import django

    django.setup()


def _command(folder: str, what: str, arguments: list[str]) -> None:
    from django.core.management import call_command

    if what == "worker":
        _children_by_this_file(folder)
    if what == "up":
        threading.Thread(target=_drive_then_end, args=(Path(folder), driving.own_stdout()), daemon=True).start()
    call_command(what, *arguments)


def _celery(arguments: list[str]) -> None:
    from celery.__main__ import main as celery

    sys.argv = ["celery", *arguments]
    celery()


def _children_by_this_file(folder: str) -> None:
    from runs.management.commands import worker

    command = worker._command

    def ours(queue: str, worker_name: str) -> list[str]:
        python, flag, module, *arguments = command(queue, worker_name)
        assert (flag, module) == ("-m", "celery")
        return [python, "-m", "tests.bench.entry", folder, "celery", *arguments]

    worker._command = ours


def _drive(refunds: Path, answers: TextIO, *, in_process: bool) -> None:
    from agentsite import env
    from tests.bench import looped, ours

    rows = driving.rows(str(env.read().DATABASE_URL))
    engine = ours.Ours(rows, refunds, ours.prepare())
    driving.serve(looped.Looped(engine) if in_process else engine, answers)


def _drive_then_end(refunds: Path, answers: TextIO) -> None:
    try:
        _drive(refunds, answers, in_process=False)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
