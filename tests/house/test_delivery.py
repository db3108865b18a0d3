"""What ships and how it is checked: containers, processes, locks and the CI script agree with the project."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentsite.env import Environment

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SITE = {name: service for name, service in SERVICES.items() if "build" in service}
SECRETS = re.compile(r"PASSWORD|SECRET|_KEY$|TOKEN|BASIC_AUTH")


def holders(variable: str) -> set[str]:
    return {name for name, service in SERVICES.items() if variable in service.get("environment", {})}


def seconds(duration: str) -> int:
    assert duration.endswith("s")
    return int(duration[:-1])


def test_compose_has_the_services_of_the_contract() -> None:
    workers = {"worker-passes", "worker-writes", "worker-maintenance"}
    metrics = {"prometheus", "grafana"}
    assert set(SERVICES) == {"postgres", "redis", "migrate", "web", "beat", "flower", *workers, *metrics}
    assert {name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service} == {
        "flower": ["ops"], **{name: ["metrics"] for name in metrics},
    }  # fmt: skip
    assert {SERVICES[name]["environment"]["WORKER_QUEUES"] for name in workers} == {"passes", "writes", "maintenance"}


def test_only_writers_hold_the_write_token_and_only_passes_the_model_keys() -> None:
    assert holders("COMMERCE_WRITE_TOKEN") == {"worker-writes"}
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "EMBEDDINGS_API_KEY"):
        assert holders(variable) == {"worker-passes"}
    assert holders("COMMERCE_READ_TOKEN") == {"worker-passes", "worker-writes", "worker-maintenance"}


def test_every_secret_comes_from_the_environment() -> None:
    pairs = {
        (name, str(value)) for service in SERVICES.values() for name, value in service.get("environment", {}).items()
    }
    literal = {name for name, value in pairs if SECRETS.search(name) and not value.startswith("${")}
    assert literal == set()


def test_compose_names_only_variables_that_are_read() -> None:
    given = {name for service in SITE.values() for name in service["environment"]}
    assert given - set(Environment.model_fields) == {"FLOWER_BASIC_AUTH"}


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_metrics_are_pinned_and_kept_inside(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", service["image"])
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert [re.match(r"\$\{PUBLISH_[A-Z]+:-127\.0\.0\.1:", port) is not None for port in service["ports"]] == [True]
    for mount in service["volumes"]:
        place, _, rest = mount.partition(":")
        assert (
            rest.endswith(":ro") and (ROOT / "deploy" / place).is_dir() if "/" in place else place in COMPOSE["volumes"]
        )


@pytest.mark.parametrize(("name", "variable", "code"), [
    ("grafana", "GF_SECURITY_ADMIN_PASSWORD", "entrypoint"), ("flower", "FLOWER_BASIC_AUTH", "command"),
])  # fmt: skip
@pytest.mark.parametrize("given", ["", "one of ours"])
def test_what_has_a_password_starts_with_none_but_ours(name: str, variable: str, code: str, given: str) -> None:
    """Compose checks the variables of inactive profiles too, so the refusal stands in the command."""
    shell, flag, line = SERVICES[name][code]
    check = line.replace("$$", "$").partition("&&")[0]
    environment = {variable: given} if given else {variable: ""}
    done = subprocess.run([shell, flag, check], env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True)
    assert (done.returncode == 0) == bool(given)
    assert SERVICES[name]["environment"][variable].endswith(":-}")


def test_flower_is_given_its_settings_wherever_it_starts() -> None:
    given = "flower --conf=deploy/flowerconfig.py"
    assert given in (ROOT / "Procfile").read_text() and given in SERVICES["flower"]["command"][2]
    assert "COPY deploy/flowerconfig.py deploy/flowerconfig.py" in (ROOT / "deploy/Dockerfile").read_text()
    assert "!deploy/flowerconfig.py" in (ROOT / "deploy/Dockerfile.dockerignore").read_text().splitlines()
    ours = [ROOT / "Procfile", *(path for path in (ROOT / "deploy").rglob("*.yaml"))]
    assert [path for path in ours if "UNAUTHENTICATED_API" in path.read_text()] == []


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_services_come_back_and_have_time_to_stop(name: str) -> None:
    assert SERVICES[name]["restart"] == ("no" if name == "migrate" else "always")
    assert seconds(SERVICES[name]["stop_grace_period"]) > 30


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_services_wait_for_what_they_need(name: str) -> None:
    for needed, wait in SERVICES[name].get("depends_on", {}).items():
        one_shot = wait["condition"] == "service_completed_successfully"
        assert one_shot == (SERVICES[needed]["restart"] == "no")
        assert one_shot or "healthcheck" in SERVICES[needed]


@pytest.mark.parametrize("name", sorted(name for name, service in SITE.items() if "healthcheck" in service))
def test_python_healthchecks_are_python(name: str) -> None:
    *command, code = SERVICES[name]["healthcheck"]["test"]
    assert command == ["CMD", "python", "-c"]
    compile(code, name, "exec")


def test_dockerfile_brings_every_package() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    copied = re.findall(r"^COPY (\w+) \1$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    let_in = re.findall(r"^!(\w+)$", (ROOT / "deploy/Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert set(copied) == packages
    assert set(let_in) >= packages


def test_procfile_names_the_processes_of_the_contract() -> None:
    names = re.findall(r"^(\w+):", (ROOT / "Procfile").read_text(), re.MULTILINE)
    assert names == ["web", "worker", "beat", "flower", "sandbox"]


@pytest.mark.parametrize("lock", ["runtime", "ops", "dev"])
def test_locks_are_hashed_and_name_no_registry(lock: str) -> None:
    text = (ROOT / f"requirements/{lock}.txt").read_text()
    pinned = re.findall(r"^\S+==\S+(?: ; .+)? \\\n    --hash=sha256:", text, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^[a-z]", text, re.MULTILINE)) > 0
    assert "://" not in text


def test_the_locks_agree() -> None:
    pins = [
        set(re.findall(r"^\S+==\S+", (ROOT / f"requirements/{lock}.txt").read_text(), re.MULTILINE))
        for lock in ("runtime", "ops", "dev")
    ]
    assert pins[0] < pins[1] < pins[2]


@pytest.mark.parametrize(("failing", "code"), [("none", 0), ("lint", 2), ("test", 2)])
def test_ci_runs_every_step_and_hides_no_failure(tmp_path: Path, failing: str, code: int) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / "Makefile").write_text("%:\n\t@echo ran $@; test $@ != " + failing + "\n")
    done = subprocess.run(["bash", tmp_path / ".ci/run"], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert re.findall(r"^ran (.+)$", done.stdout, re.MULTILINE) == ["venv-dev", "lint", "test"]
