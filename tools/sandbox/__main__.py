"""`python -m tools.sandbox --port 8090 --file PATH`: the sandbox as a process; alone here the environment is read."""

import argparse
import os
import sqlite3
import sys

from tools.sandbox.server import serve


def main() -> int:
    """Exit code 0 after a signal, 1 where port or file cannot be had, 2 for wrong usage."""
    options = _parser().parse_args()
    try:
        serve(options.bind, options.port, options.file, options.read_token, options.write_token)
    except (OSError, OverflowError, sqlite3.Error) as error:
        print(f"sandbox cannot start: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.sandbox", description="The sandbox business system.")
    parser.add_argument("--port", type=int, default=8090, help="0 takes a free port")
    parser.add_argument("--file", required=True, help="the SQLite file of its ledger, made where it is missing")
    parser.add_argument("--bind", default="127.0.0.1")
    read = os.environ.get("SANDBOX_READ_TOKEN") or "sandbox-read"
    write = os.environ.get("SANDBOX_WRITE_TOKEN") or "sandbox-write"
    parser.add_argument("--read-token", default=read, help="default: $SANDBOX_READ_TOKEN or sandbox-read")
    parser.add_argument("--write-token", default=write, help="default: $SANDBOX_WRITE_TOKEN or sandbox-write")
    return parser


if __name__ == "__main__":
    sys.exit(main())
