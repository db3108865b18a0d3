"""What the scenarios of growth, parking, admission and endings stand on: private servers, a business system, a site.

All of it ends with the block that made it. Imports no zone and no keeper.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from agentsite.private.binaries import postgres_bindir, redis_binary
from runs.bench.stage import AS_SHIPPED
from runs.chaos.business import KINDS, BusinessSystem
from runs.chaos.ground import POSTGRES_REDIS, TENANT, Ground
from runs.chaos.site import Site
from runs.chaos.workload import PROFILE

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Premises:
    """A folder, prepared stores and a business system; sites are made on them."""

    folder: Path
    ground: Ground
    business: BusinessSystem
    _stack: ExitStack

    def site(self, name: str, **environment: str) -> Site:
        """A site on a store of its own, with periods as shipped, not yet started."""
        site = Site(POSTGRES_REDIS, self.ground, self.folder / name, self.business.url)
        site.environment |= {**AS_SHIPPED, "PASSES_THREADS": "16", **environment}
        self._stack.callback(site.close)
        return site

    def copy(self, other: Site, name: str) -> Site:
        """A site as the other one, on a copy of its store as it is now; nobody may be connected to that."""
        site, copied = self.site(name), f"{name}_copy"
        with psycopg.connect(self.ground.cluster.url, autocommit=True) as postgres:
            making = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            postgres.execute(making.format(*map(sql.Identifier, (copied, other.database.rpartition("/")[2]))))
        site.database = site.environment["DATABASE_URL"] = self.ground.cluster.url.rpartition("/")[0] + "/" + copied
        return site


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that goes with the block. Raises MissingServer where nothing can be measured."""
    redis_binary(), postgres_bindir()
    with tempfile.TemporaryDirectory(prefix="agentsite-bench-") as name:
        yield Path(name)


@contextmanager
def premises() -> Iterator[Premises]:
    """Raises SiteFailed, ServiceError or MissingServer."""
    with folder() as place, ExitStack() as stack:
        ground = stack.enter_context(Ground())
        business = BusinessSystem(place, KINDS["honours"])
        stack.callback(business.close)
        yield Premises(folder=place, ground=ground, business=business, _stack=stack)


def grant(site: Site, **limits: int) -> None:
    """The default tenant's profile without totals; `limits` instead of its own."""
    site.create_tenant(TENANT, {**PROFILE, "limits": limits} if limits else PROFILE)


def one(site: Site, query: str) -> Any:
    """The first value that a query of the site's rows yields."""
    return site.rows(query)[0][0]


def settle(database: str) -> None:
    """What autovacuum and the checkpointer come to by themselves, now: statistics, dead rows gone, all on disk."""
    with psycopg.connect(database, autocommit=True) as postgres:
        postgres.execute("VACUUM (ANALYZE)")
    checkpoint(database)


def checkpoint(database: str) -> None:
    """All that was changed is in the files."""
    with psycopg.connect(database, autocommit=True) as postgres:
        postgres.execute("CHECKPOINT")


def load() -> float:
    """Of the machine, averaged over a minute: what else ran."""
    return round(os.getloadavg()[0], 1)
