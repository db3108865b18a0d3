"""The never-arrows of the house that an import graph alone cannot show."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.walls import calls, imported, sources, strings

RUN_TABLES = re.compile(r"\b(UPDATE|INSERT INTO|DELETE FROM)\s+runs_(run|write|attempt|observation|turn|event|input)\b")
RUN_MODELS = (
    "Run", "Write", "Attempt", "Observation", "Turn", "Event", "Input", "OrderGuard", "Counter", "RunOrder", "Webhook",
    "Delivery", "Shadow", "Archive",
)  # fmt: skip
WRITES = ("create", "bulk_create", "update", "update_or_create", "get_or_create", "delete", "bulk_update", "save")
PAPERS = (
    "runs/contracts.py", "runs/attachments.py", "runs/states.py", "runs/prompt.py", "runs/compaction.py",
    "runs/shown.py", "runs/sizes.py", "runs/inert.py", "runs/loglines.py", "runs/numbering.py",
    "tools/digests.py", "tools/citations.py", "runs/clauses.py", "runs/courtesy.py", "runs/agreement.py",
    "runs/verifier.py", "runs/reply.py", "runs/story.py", "runs/wordlists.py", "runs/languages.py",
    "runs/budgets.py", "runs/loops.py", "runs/errors.py", "runs/inference/parse.py", "approvals/states.py",
    "approvals/changes.py", "approvals/reasons.py", "approvals/risk.py",
    "tools/arguments.py", "tools/contracts.py", "runs/precheck.py", "runs/prewords.py", "tools/placeholders.py",
    "tools/rules.py", "tools/errors.py",
    *(p for p in sources() if p.startswith("runs/inference/dialects/")),
    *(f"runs/measures/{name}.py" for name in ("numbers", "ends", "objectives", "caps", "columns", "figures", "tail",
                                              "stages")),
)  # fmt: skip


def offenders(pattern: str, *, allowed: tuple[str, ...]) -> list[str]:
    """`file:line` of every call whose dotted name matches, outside the allowed files."""
    found = []
    for path, tree in sources().items():
        if path.startswith(allowed):
            continue
        found += [f"{path}:{line}" for name, line in calls(tree) if re.fullmatch(pattern, name)]
    return found


def test_release_is_made_by_the_gate_alone() -> None:
    assert offenders(r"(.*\.)?Release", allowed=("tools/gate.py",)) == []
    assert [name for name, _ in calls(sources()["tools/gate.py"]) if name == "Release"] != []


def test_executor_is_called_by_the_dispatcher_alone() -> None:
    assert offenders(r"executor\.execute", allowed=("tools/dispatcher.py",)) == []


def test_write_credential_is_read_by_the_executor_alone() -> None:
    readers = offenders(r"(credentials\.)?write_token", allowed=("tools/executor.py", "tools/credentials.py"))
    assert [r for r in readers if not r.startswith(("agentsite/checks.py", "runs/management/"))] == []


def test_tasks_are_sent_by_queues_alone() -> None:
    assert offenders(r".*\.(delay|apply_async|send_task|delay_on_commit)", allowed=("agentsite/queues.py",)) == []


def test_no_wait_is_left_to_the_broker() -> None:
    for path, tree in sources().items():
        keywords = {k.arg for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords}
        assert not keywords & {"countdown", "eta"}, path
        assert not [name for name, _ in calls(tree) if name.endswith("self.retry")], path


def test_environment_is_read_in_one_place() -> None:
    allowed = ("agentsite/env.py", "tools/sandbox/__main__.py")
    assert offenders(r"os\.(getenv|environ\.get|environ\.setdefault|putenv)", allowed=(*allowed, "agentsite/celery.py",
                     "agentsite/asgi.py")) == []  # fmt: skip
    for path, tree in sources().items():
        if path in (*allowed, "agentsite/celery.py", "agentsite/asgi.py"):
            continue
        assert "os.environ" not in imported(tree), path
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "environ"], path


def test_now_is_asked_of_the_clock_alone() -> None:
    pattern = r"(.*\.)?(datetime|date)\.(now|utcnow|today)|timezone\.now|time\.time"
    assert offenders(pattern, allowed=("agentsite/clock.py", "tools/sandbox/moment.py")) == []


def test_no_signals_and_no_save_overrides() -> None:
    for path, tree in sources().items():
        assert not {m for m in imported(tree) if m.startswith(("django.dispatch", "django.db.models.signals"))}, path
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "save"], path


def test_run_rows_are_written_by_the_store_alone() -> None:
    pattern = rf"(models\.)?({'|'.join(RUN_MODELS)})\.objects(\..*)?\.({'|'.join(WRITES)})"
    assert offenders(pattern, allowed=("runs/store/",)) == []
    for path, tree in sources().items():
        if not path.startswith("runs/store/"):
            assert not [f"{path}:{line}" for text, line in strings(tree) if RUN_TABLES.search(text)], path


def test_approval_rows_are_written_by_the_queue_alone() -> None:
    pattern = rf"(Approval|Decision|Snooze)\.objects(\..*)?\.({'|'.join(WRITES)})"
    assert offenders(pattern, allowed=("approvals/queue.py", "approvals/holds.py", "approvals/erasing.py")) == []
    for path, tree in sources().items():
        texts = [t for t, _ in strings(tree) if re.search(r"(UPDATE|INSERT INTO|DELETE FROM)\s+approvals_", t)]
        assert path == "approvals/queue.py" or not texts, path


def test_notices_are_written_by_their_keeper_alone() -> None:
    assert offenders(rf"Notice\.objects(\..*)?\.({'|'.join(WRITES)})", allowed=("approvals/notices.py",)) == []


@pytest.mark.parametrize("path", PAPERS)
def test_paper_is_pure(path: str) -> None:
    roots = {name.split(".")[0] for name in imported(sources()[path])}
    assert not roots & {"django", "celery", "httpx", "random", "os", "time", "socket", "subprocess"}
    assert "agentsite.clock" not in imported(sources()[path])


def test_broad_excepts_stand_only_at_doors_and_threads() -> None:
    allowed = (
        "runs/tasks.py", "runs/advance.py", "runs/sweeper.py", "runs/leases.py", "runs/listening.py",
        "agentsite/queues.py",
        "agentsite/health.py", "agentsite/metrics/__init__.py", "agentsite/problems.py", "approvals/queue.py",
        "runs/management/",
        "tools/sandbox/",
    )  # fmt: skip
    for path, tree in sources().items():
        broad = [
            n.lineno
            for n in ast.walk(tree)
            if isinstance(n, ast.ExceptHandler) and isinstance(n.type, ast.Name)
            and n.type.id in ("Exception", "BaseException")
        ]  # fmt: skip
        assert not broad or path.startswith(allowed), f"{path}:{broad}"


def test_no_test_hook_in_production() -> None:
    for path, tree in sources().items():
        names = imported(tree)
        assert not [n for n in names if n.split(".")[0] in ("tests", "pytest", "unittest")], path
