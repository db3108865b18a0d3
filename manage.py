#!/usr/bin/env python
"""Django's command line."""

import os
import sys


def main() -> None:
    if not __debug__:
        sys.exit("agentsite refuses python -O: its assertions guard money.")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
