"""A small real SMTP server on this host that keeps what it is given, or refuses, hangs or speaks TLS as a test says."""

from __future__ import annotations

import socketserver
import ssl
import threading
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Self


@dataclass
class Habits:
    """What the server answers to; a hung one says nothing after its greeting until it is let go."""

    recipient: str = "250 fine"
    data: str = "250 kept"
    login: str | None = None
    starttls: ssl.SSLContext | None = None
    hung: threading.Event | None = None


@dataclass
class Letter:
    sender: str
    to: list[str]
    secured: bool
    message: EmailMessage

    @property
    def text(self) -> str:
        body = self.message.get_body(("plain",))
        assert body is not None
        return str(body.get_content())


@dataclass
class _Talk:
    sender: str = ""
    to: list[str] = field(default_factory=list)
    secured: bool = False


class _Session(socketserver.StreamRequestHandler):
    """One connection, a command a line."""

    server: Postbox

    def handle(self) -> None:
        self.talk = _Talk()
        self.say("220 postbox")
        while line := self.rfile.readline():
            words = line.decode("ascii", "replace").strip()
            self.server.heard.append(words)
            if self.server.habits.hung is not None:
                self.server.habits.hung.wait(30)
                return
            if not self.obey(words.split(" ")[0].upper().split(":")[0], words):
                return

    def say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())

    def obey(self, verb: str, words: str) -> bool:
        habits = self.server.habits
        if verb == "EHLO":
            more = ["STARTTLS"] if habits.starttls and not self.talk.secured else []
            more += ["AUTH PLAIN"] if habits.login else []
            names = ["postbox", *more]
            self.say(*(f"250{'-' if n < len(names) - 1 else ' '}{name}" for n, name in enumerate(names)))
        elif verb == "STARTTLS" and habits.starttls:
            self.say("220 go on")
            self.connection = habits.starttls.wrap_socket(self.connection, server_side=True)
            self.setup()
            self.talk.secured = True
        elif verb == "AUTH":
            self.say("235 welcome" if words.split(" ")[-1] == habits.login else "535 who are you")
        elif verb == "MAIL":
            self.talk.sender = words
            self.say("250 fine")
        elif verb == "RCPT":
            self.talk.to.append(words)
            self.say(habits.recipient)
        elif verb == "DATA":
            self.take()
        else:
            self.say("221 bye" if verb == "QUIT" else "250 fine")
        return verb != "QUIT"

    def take(self) -> None:
        self.say("354 go on")
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b"."))
        if self.server.habits.data.startswith("2"):
            made = message_from_bytes(b"".join(lines), policy=policy.default)
            assert isinstance(made, EmailMessage)
            self.server.letters.append(Letter(self.talk.sender, self.talk.to, self.talk.secured, made))
        self.say(self.server.habits.data)


class Postbox(socketserver.ThreadingTCPServer):
    """Serves for as long as its block lasts."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.letters: list[Letter] = []
        self.heard: list[str] = []
        self.habits = Habits()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left is what these tests are about."""

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.server_address[1]}"
