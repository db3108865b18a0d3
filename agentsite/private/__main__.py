"""`python -m agentsite.private`: private PostgreSQL and Redis servers, for trying things by hand. Imports no Django.

It starts both, prints `export DATABASE_URL=…` and `export BROKER_URL=…`, and runs until it is told to stop.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading

from agentsite.private.servers import Postgres, Redis


def main() -> int:
    """The command line: both servers, their URLs on standard output, until SIGINT, SIGTERM or SIGHUP."""
    parser = argparse.ArgumentParser(
        prog="python -m agentsite.private", description="Private PostgreSQL and Redis until told to stop."
    )
    parser.add_argument(
        "--fast", action="store_true", help="PostgreSQL without fsync: the data does not survive a power cut"
    )
    options = parser.parse_args()
    told_to_stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: told_to_stop.set())
    with Postgres(durable=not options.fast) as postgres, Redis() as broker:
        database = postgres.create_database("agentsite")
        sys.stdout.write(f"export DATABASE_URL={shlex.quote(database)}\nexport BROKER_URL={shlex.quote(broker.url)}\n")
        sys.stdout.flush()
        while not told_to_stop.wait(timeout=1):
            if not (postgres.is_running() and broker.is_running()):
                sys.stderr.write("a server ended by itself\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
