"""A process of its own: passes of the sweeper one after another on the store of its environment, each timed.

    DJANGO_SETTINGS_MODULE=agentsite.settings python -m runs.bench.sweeping --passes 40

Prints one line of JSON: milliseconds of each pass, commits included, and how many runs all of them found due.
Imports no zone.
"""

from __future__ import annotations

import argparse
import json

import django

from agentsite import clock

WARM_UP = 3


def measured(passes: int) -> dict[str, object]:
    """The times of so many passes, after a few that warm."""
    from runs import sweeper

    took_ms, found = list[float](), 0
    for number in range(WARM_UP + passes):
        began = clock.monotonic()
        done = sweeper.sweep()
        assert done is not None, "somebody else sweeps this store"
        found += done.found
        if number >= WARM_UP:
            took_ms.append((clock.monotonic() - began) * 1000)
    return {"took_ms": took_ms, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", type=int, required=True)
    given = parser.parse_args()
    django.setup()
    print(json.dumps(measured(given.passes)))  # noqa: T201 - what whoever started it reads


if __name__ == "__main__":
    main()
