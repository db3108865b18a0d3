"""The sandbox's server: opened on a port and a file, run until it is told to stop."""

import contextlib
import signal
import socketserver
import sys
import threading
from http.server import ThreadingHTTPServer

from tools.sandbox.exchange import Tokens
from tools.sandbox.handler import Handler
from tools.sandbox.interface import Interface
from tools.sandbox.store import Store


class SandboxServer(ThreadingHTTPServer):
    """A thread a connection; all state stands in the store."""

    # A fault may hold a thread for an hour; the end of the process does not wait for it.
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], store: Store, tokens: Tokens) -> None:
        self.store = store
        self.tokens = tokens
        self.interface = Interface(store, tokens)
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """Without the standard library's look-up of the host's full name, which may wait for DNS."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """A defect of the sandbox: one line, and the client sees its connection closed."""
        print(f"sandbox error: {sys.exc_info()[1]!r}", file=sys.stderr, flush=True)

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://{self.server_name}:{self.server_port}"


def open_server(bind: str, port: int, file: str, read_token: str, write_token: str) -> SandboxServer:
    """A server that listens and does not serve yet; port 0 takes a free one. Raises `OSError`, `sqlite3.Error`."""
    store = Store(file)
    try:
        return SandboxServer((bind, port), store, Tokens(read=read_token, write=write_token))
    except BaseException:
        store.close()
        raise


def serve(bind: str, port: int, file: str, read_token: str, write_token: str) -> None:
    """Serves until SIGTERM or SIGINT, from the main thread of the process; raises as `open_server`."""
    server = open_server(bind, port, file, read_token, write_token)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _stop(server))
    print(f"sandbox listening on {server.url}", flush=True)
    with contextlib.closing(server.store), server:
        server.serve_forever(poll_interval=0.1)


def _stop(server: SandboxServer) -> None:
    # shutdown() waits for the loop to end, and the handler runs inside the loop's own thread.
    threading.Thread(target=server.shutdown, daemon=True).start()
