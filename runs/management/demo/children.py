"""The demo's two children, the sandbox business system and the embedded site, on ports of their own. Part of `demo`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError

from agentsite import env, supervisor
from runs.management.demo import ground, visits

SITE_PORT = 8080
SANDBOX_PORT = 8090
START_S = 45.0
TRIES = 5
STOP_S = 15.0
LAST_WORDS = 3
# What a developer may have set for a site of his own and what would keep this one from being reached.
NOT_INHERITED = ("PORT", "DATABASE_URL", "BROKER_URL", "BIND", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "WORKER_QUEUES")


class Children:
    """Starts them, watches them, stops them; they die with this process, however it dies."""

    def __init__(self, folder: Path) -> None:
        self.log = ground.open_log(folder)
        self.sandbox_url = ""
        self.site_url = ""
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start_sandbox(self) -> None:
        """The business system answers at `sandbox_url`. Raises CommandError."""
        file, begins_at = str(self._folder / ground.LEDGER), self._log_size()

        def listens(url: str) -> bool:
            # What it says once it has the port: another sandbox there would answer just as well.
            return f"sandbox listening on {url}" in self._logged(begins_at)

        self.sandbox_url = self._start("sandbox", SANDBOX_PORT, ["sandbox", "--file", file], listens)

    def start_site(self, wanted: int | None, token: str) -> None:
        """Web, worker and sweeper are up at `site_url`, on our own store: it knows our token. Raises CommandError."""
        self.site_url = self._start("site", wanted or SITE_PORT, ["up"], partial(visits.site_answers, token=token))

    def _start(self, name: str, wanted: int, command: list[str], ready: Callable[[str], bool]) -> str:
        """The URL it is ready at; where somebody takes its port meanwhile, the next one is tried."""
        for _ in range(TRIES):
            port = _free(wanted)
            url = f"http://127.0.0.1:{port}"
            with self.log.open("ab") as log:
                child = supervisor.start(supervisor.manage(*command, "--port", str(port)), self._environment(), log=log)
            self._running[name] = child
            if supervisor.wait_for(partial(ready, url), seconds=START_S, children=[child]):
                return url
            if child.poll() is None or _free(port) == port:
                break  # not for want of the port
        raise CommandError(f"the {name} did not start: {self._last_words()}")

    def _log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def _logged(self, begins_at: int) -> str:
        """What was logged since then."""
        with self.log.open("rb") as log:
            log.seek(begins_at)
            return log.read().decode(errors="replace")

    def _environment(self) -> dict[str, str]:
        changes: dict[str, str | None] = dict.fromkeys(NOT_INHERITED)
        changes |= {"VAR_DIR": str(settings.VAR_DIR), "COMMERCE_HONOURS_KEYS": "1", "WORKER_NAME": "demo"}
        changes |= {"COMMERCE_URL": self.sandbox_url or None}
        known = env.child_environment(**changes)
        return {"LOG_FORMAT": "json", **known}  # `why --from-logs` tells the run's story from it

    def check(self) -> None:
        """Raises CommandError where a child has ended by itself."""
        for name, child in self._running.items():
            if child.poll() is not None:
                raise CommandError(f"the {name} ended by itself (exit code {child.returncode}): {self._last_words()}")

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return " | ".join([*(line.strip()[:200] for line in lines[-LAST_WORDS:]), f"see {self.log}"])

    def stop(self) -> None:
        """End both and wait for them; nothing is left behind."""
        supervisor.stop(list(reversed(self._running.values())), patience_s=STOP_S)
        self._running.clear()


def _free(port: int) -> int:
    try:
        return supervisor.free_port(port)
    except OSError as error:
        raise CommandError(str(error)) from None
