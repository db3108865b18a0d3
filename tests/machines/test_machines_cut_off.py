"""A host of workers is cut off from what it needs in the middle of refunds, silently, and healed half a minute later.

Nothing is lost, nothing is made twice, the other host finishes meanwhile what the cut one had begun, and the healed one
works again by itself. Silence is the hard kind of a cut: no connection is refused or reset, packets only never arrive.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

import psycopg
import pytest

from agentsite.private.processes import wait_until
from runs.chaos import verdict
from tests.conftest import Say
from tests.machines import network
from tests.machines.doors import Doors, names, nothing_lost_nothing_doubled, of_small_refunds, opened, some
from tests.machines.fleet import BROKER, BUSINESS, DATABASE, SERVICES, Fleet, Host, started
from tests.system.site import QUEUES

pytestmark = [pytest.mark.own_services, pytest.mark.long, pytest.mark.timeout(1200)]

CUT_S, LOCKED_S, STUCK_S = 30.0, 45.0, 240.0
"""How long a host is cut off at least; less than the minute that a database keeps whoever is idle in a transaction."""
AT_FIRST, MEANWHILE, AFTERWARDS = 12, 12, 6
POST_S, THINKS_S, LONG_S = 3.0, 0.8, 6.0
"""What a refund takes while the cut is aimed; what a run's first model call takes; what it takes to outlast a lease."""
LEASES = "SELECT lease_token, lease_until FROM runs_run WHERE lease_token IS NOT NULL"
LIVE = f"SELECT id, request_id FROM runs_run WHERE status NOT IN {verdict.ENDED}"
BLOCKED = "SELECT DISTINCT host(client_addr) FROM pg_stat_activity WHERE {} = ANY(pg_blocking_pids(pid))"
IDLE = "idle in transaction"
SESSIONS = "SELECT state FROM pg_stat_activity WHERE host(client_addr) = '{}'"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if reason := network.unavailable():
        pytest.skip(reason)
    with started(tmp_path_factory.mktemp("machines"), "far1", "far2") as made:
        for host in made.hosts:
            host.start()
        yield made


@pytest.fixture(autouse=True)
def _all_is_well_afterwards(fleet: Fleet) -> Iterator[None]:
    yield
    for host in fleet.hosts:
        host.machine.heal()


def in_the_middle(fleet: Fleet, host: Host) -> set[str]:
    """Returns when a refund that this host asked for hangs in its POST: the requests it has begun and not ended."""
    fleet.business.fault("POST /v1/refunds", f"delay_after:{POST_S}", times=8)

    def hangs() -> bool:
        posts, mine = fleet.business.open_calls("POST", "/v1/refunds"), host.sent()
        return any(post["body"]["metadata"]["run_id"] in mine for post in posts if post["body"])

    assert wait_until(hangs, STUCK_S), fleet.told(f"no refund of {host.name} was under way")
    others = {run: seq for one in fleet.hosts if one is not host for run, seq in one.heads().items()}
    mine = {run for run, seq in host.heads().items() if seq > others.get(run, 0)}
    return {str(request) for run, request in fleet.site.rows(LIVE) if str(run) in mine}


@pytest.mark.parametrize("services", [SERVICES, (BROKER,), (DATABASE,), (BUSINESS,)], ids="-".join)
def test_host_cut_off_amid_refunds_and_healed(fleet: Fleet, say: Say, services: tuple[str, ...]) -> None:
    far, near = fleet.hosts
    fleet.thinks(THINKS_S)
    with opened(fleet) as doors:
        doors.admit(some(fleet, AT_FIRST))
        begun, cut_at = in_the_middle(fleet, far), time.monotonic()
        far.machine.cut(services)
        assert begun, f"{far.name} has nothing under way"
        finished_s = meanwhile(fleet, doors, begun, cut_at)
        time.sleep(max(0.0, CUT_S - (time.monotonic() - cut_at)))
        knows_of_the_cut(fleet, far, services)
        words = f"cut off from {', '.join(services)} for {time.monotonic() - cut_at:.0f} s with {len(begun)} runs begun"
        first_s, done_s = works_alone(fleet, doors, far, near)
    say(f"{words}, all ended {finished_s:.1f} s after; healed, {first_s:.1f} s to a commit, {done_s:.1f} s to six runs")
    nothing_lost_nothing_doubled(fleet, doors.faults)


def meanwhile(fleet: Fleet, doors: Doors, begun: Collection[str], cut_at: float) -> float:
    """Work goes on during the cut: what was begun ends, and what is asked for meanwhile too; seconds it took."""
    doors.admit(some(fleet, MEANWHILE))
    wanted = names(fleet.cases)
    assert set(begun) < wanted
    assert wait_until(lambda: fleet.ended() == wanted, STUCK_S), fleet.told("not ended during the cut")
    return time.monotonic() - cut_at


def knows_of_the_cut(fleet: Fleet, host: Host, services: Collection[str]) -> None:
    """Neither side takes a connection for whole that nothing passes through any more; no process gave up."""
    if DATABASE in services:
        assert host.linked(DATABASE) == 0
        assert fleet.site.rows(SESSIONS.format(host.machine.address(DATABASE))) == []
    assert fleet.site.ended() == [process for one in fleet.hosts for process in one.ended()] == []


def works_alone(fleet: Fleet, doors: Doors, far: Host, near: Host) -> tuple[float, float]:
    """The healed host does what there is while the other is cut off: its seconds to the first commit, and to all."""
    ((now,),) = fleet.site.rows("SELECT clock_timestamp()")
    fleet.thinks(LONG_S)
    far.machine.heal()
    healed_at, known = time.monotonic(), far.heads()
    near.machine.cut(SERVICES)
    last, renewed = some(fleet, AFTERWARDS), Renewed(fleet)
    doors.admit(last)
    assert wait_until(lambda: far.heads() != known, STUCK_S), fleet.told(f"{far.name} does nothing")
    first_s = time.monotonic() - healed_at
    assert wait_until(renewed.seen, STUCK_S), fleet.told("no lease is renewed")
    assert wait_until(lambda: fleet.ended() >= names(last), STUCK_S), fleet.told(f"{far.name} did not finish")
    done_s = time.monotonic() - healed_at
    assert wait_until(lambda: far.consumers(now) == dict.fromkeys(QUEUES, 0), STUCK_S), fleet.told("deaf or hung")
    return first_s, done_s


class Renewed:
    """Whether some lease that was seen earlier lives longer by now."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._until = fleet, dict[str, object]()

    def seen(self) -> bool:
        now = dict(self._fleet.site.rows(LEASES))
        return any(self._until.setdefault(token, until) != until for token, until in now.items())


def test_locks_of_a_host_that_is_cut_off_hold_up_nobody_for_long(fleet: Fleet, say: Say) -> None:
    """Cut off inside a transaction that has the run's row: the server must find out that nobody is there any more."""
    fleet.thinks(POST_S)
    with opened(fleet) as doors:
        (case,) = of_small_refunds(fleet, 1)
        doors.admit([case])
        victim, cut_at = cut_inside_a_transaction(fleet), time.monotonic()
        idle = fleet.site.rows(SESSIONS.format(victim.machine.address(DATABASE)))
        assert wait_until(lambda: case.request_id in fleet.ended(), LOCKED_S), fleet.told("held up")
        say(f"ended {time.monotonic() - cut_at:.1f} s after the cut; transactions left open: {idle.count((IDLE,))}")
    nothing_lost_nothing_doubled(fleet, doors.faults)


def cut_inside_a_transaction(fleet: Fleet) -> Host:
    """The host that had the run, cut off while it waited for a lock of ours in the middle of its checkpoint."""
    assert wait_until(fleet.site.is_held, STUCK_S)
    with psycopg.connect(fleet.site.database) as bystander:
        bystander.execute("LOCK TABLE runs_event IN EXCLUSIVE MODE")
        waiting = BLOCKED.format(bystander.info.backend_pid)
        assert wait_until(lambda: bool(fleet.site.rows(waiting)), STUCK_S), fleet.told("no checkpoint waits")
        addresses = {str(address) for (address,) in fleet.site.rows(waiting)}
        (victim,) = [host for host in fleet.hosts if host.machine.address(DATABASE) in addresses]
        victim.machine.cut(SERVICES)
    return victim
