#!/usr/bin/env python
"""Django's command line."""

import os
import sys

DEMO_IGNORES = ("PORT", "DATABASE_URL", "BROKER_URL")


def main() -> None:
    if not __debug__:
        sys.exit("agentsite refuses python -O: its assertions guard money.")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
    if sys.argv[1:2] == ["demo"]:
        from agentsite import env

        env.drop(*DEMO_IGNORES)  # before the settings read them: the demo brings its own store, broker and ports
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
