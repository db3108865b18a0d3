"""A process that admits runs and approves them while its engine is measured: phases go in as lines, figures come back.

Imports no zone and no keeper.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentsite import env
from agentsite.private.processes import die_with_parent
from runs.chaos.ground import SiteFailed

END_S = 30.0
Json = dict[str, Any]


class Driver:
    """One such process; what it says beside its answers is added to `log`. Use it from one thread."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as said:
            self.process = subprocess.Popen(  # noqa: S603 - a command of our own making
                list(command), cwd=env.ROOT, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=said, start_new_session=True, preexec_fn=die_with_parent(), text=True, bufsize=1,
            )  # fmt: skip
        self._answer()

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, **phase: Any) -> Json:
        """What the phase came to; it has a limit of its own. Raises SiteFailed where runs were lost or it died."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # then there is no answer either
            self.process.stdin.write(json.dumps(phase) + "\n")
        answer = self._answer()
        if "lost" in answer:
            raise SiteFailed(f"{phase['do']}: {answer['lost']}")
        return answer

    def close(self) -> None:
        """No more phases: it ends by itself, or is ended."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(END_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _answer(self) -> Json:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            said = self._log.read_text(errors="replace").splitlines()[-15:]
            raise SiteFailed("\n".join(["whoever admits and approves ended by itself", *said]))
        found: Json = json.loads(line)
        return found
