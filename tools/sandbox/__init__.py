"""The sandbox business system: the outside world in a box, a process of its own with a ledger of its own.

It is reached only over HTTP. It imports the standard library and itself, nothing of the project; nothing of the
project's run time imports it.
"""

from tools.sandbox.server import SandboxServer, open_server, serve

__all__ = ["SandboxServer", "open_server", "serve"]
