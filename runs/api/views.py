"""Door: REST under `/api/v1/runs`. Thin: checks who asks and what, leaves a row, nudges, shows what is there.

Imports no inference, gate, dispatcher, executor or orchestrator. Another tenant's object answers as if unknown.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.http import parse_etags
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agentsite import canonical, queues
from agentsite.refusals import Refusal
from runs import admission, store
from runs.api import auth, bodies, pages, parameters, serial, waiting
from runs.attachments import MAX_RUN_FILES, NewAttachment, taken
from runs.contracts import RunRequest
from runs.errors import RunEnded, TooManyFiles
from runs.models import Event, Observation, Run
from runs.store import AppendedInput
from tools.contracts import Json

RETRY_AFTER_S = 1
EVENTS_LIMIT, OBSERVATIONS_LIMIT = 200, 50
MAX_WAIT_S = 20
HEADERS = {"Cache-Control": "private, no-cache"}
CANCEL_ID = "cancel"


class ApiView(APIView):
    """What every view of this API has in common."""

    content_negotiation_class = auth.AlwaysJson

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        if not request.META.get("CONTENT_LENGTH") and "HTTP_TRANSFER_ENCODING" in request.META:
            # A chunked body names no length, and the framework would read it as absent.
            request.META["CONTENT_LENGTH"] = str(len(request.body))
        return super().initialize_request(request, *args, **kwargs)

    def found(self, caller: auth.Caller, run_id: str) -> Run:
        """The run, if the caller may see it. Raises Refusal 404, the same for unknown and foreign."""
        try:
            known = uuid.UUID(run_id)
        except ValueError:
            known = None
        row = pages.visible(caller.tenants).filter(id=known).first() if known and str(known) == run_id else None
        if row is None:
            raise Refusal(404, "not-found", "There is no such thing.", "No run of yours has this id.")
        return row


def _shown(row: Run, caller: auth.Caller, *, status: int = 200, **headers: str) -> Response:
    return _told(serial.run(row, link=caller.writes), status, **headers)


def _told(body: Json, status: int, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(body, status=status, headers={**HEADERS, "ETag": _etag(body), **named})


def _etag(body: Json) -> str:
    return f'"{canonical.sha256(body).removeprefix("sha256:")[:32]}"'


def _location(run_id: str) -> str:
    return f"/api/v1/runs/{run_id}"


def _trace_id(request: Request) -> str | None:
    return getattr(request._request, "trace_id", None)


class RunsView(ApiView):
    """Admit a run; list runs."""

    @extend_schema(
        operation_id="runs_create", request=RunRequest, responses={202: serial.RunView, 200: serial.RunView},
        parameters=[parameters.header("Idempotency-Key", "Where sent, it must equal `request_id`.")],
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Admit a run: 202 for a new one, 200 with the run as it is now for the same request again."""
        caller = auth.client(request)
        raw: Any = request.data
        wanted = bodies.parse(RunRequest, raw)
        bodies.check_idempotency_key(request.headers.get("Idempotency-Key"), wanted.request_id)
        created = admission.admit(
            tenant_id=caller.tenant_id, created_by=caller.by, request=wanted, raw_body=raw,
            trace_id=_trace_id(request),
        )  # fmt: skip
        place = _location(created.run_id)
        if created.row is None:
            row = Run.objects.get(id=created.run_id)
            return _shown(row, caller, Location=place, Idempotency_Replayed="true")
        body = serial.run(created.row) if wanted.attachments else serial.first(created.row)
        return _told(body, 202, Location=place, Retry_After=str(RETRY_AFTER_S))

    @extend_schema(
        operation_id="runs_list", responses=serial.RunPage,
        parameters=parameters.FILTERS,
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Runs, newest first, in cursor pages; `status` takes several, separated by commas."""
        caller = auth.reader(request)
        query = request.query_params
        bodies.only(query, pages.FILTERS)
        page = pages.page(pages.filtered(pages.visible(caller.tenants), query), query)
        return Response(
            {
                "results": serial.runs(page.rows, link=caller.writes),
                "next": _link(request, "cursor", page.next),
                "previous": _link(request, "cursor", page.previous),
            },
            headers=HEADERS,
        )


def _link(request: Request, name: str, value: str | int | None) -> str | None:
    if value is None:
        return None
    query = request.query_params.copy()
    query[name] = str(value)
    return str(request.build_absolute_uri(f"{request.path}?{query.urlencode()}"))


class RunView(ApiView):
    @extend_schema(
        operation_id="runs_retrieve",
        responses={200: serial.RunView, 304: None},
        parameters=[
            parameters.number("wait", 0, MAX_WAIT_S, "Seconds to wait for a change of what is known."),
            parameters.header("If-None-Match", "The ETag of the state the client knows: 304 while nothing changed."),
        ],
    )
    def get(self, request: Request, run_id: str) -> Response:
        """The run as it is now. `If-None-Match` with its ETag answers 304 while nothing changed."""
        caller = auth.reader(request)
        bodies.only(request.query_params, frozenset({"wait"}))
        seconds = bodies.integer(request.query_params, "wait", default=0, least=0, most=MAX_WAIT_S)
        run = self.found(caller, run_id)
        poll = waiting.LongPoll(request, caller, run, seconds)
        response = _shown(run, caller)
        unchanged = _unchanged(request, response["ETag"])
        poll.wait(response["ETag"], known=unchanged if "If-None-Match" in request.headers else None)
        if unchanged:
            return Response(status=304, headers={**HEADERS, "ETag": response["ETag"]})
        return response


def _unchanged(request: Request, etag: str) -> bool:
    known = [tag.removeprefix("W/") for tag in parse_etags(request.headers.get("If-None-Match", ""))]
    return "*" in known or etag in known


class EventsView(ApiView):
    @extend_schema(
        operation_id="runs_events",
        responses={
            (200, "application/json"): serial.EventPage, (200, "text/event-stream"): OpenApiTypes.STR,
            204: OpenApiResponse(description="A stream of a run that has ended and is known whole."),
        },
        parameters=[
            parameters.AFTER, parameters.number("limit", 1, EVENTS_LIMIT, "Of a page; a stream has no limit."),
            parameters.header("Last-Event-ID", "Of a stream: the last `id` that was seen.", pattern="^[0-9]{1,10}$"),
        ],
    )  # fmt: skip
    def get(self, request: Request, run_id: str) -> HttpResponseBase:
        """What happened, in order, after the sequence number `after`: a page, or a stream that goes on."""
        caller = auth.reader(request)
        run = self.found(caller, run_id)
        after, limit = _window(request, EVENTS_LIMIT)
        if waiting.wants_stream(request):
            return waiting.stream(request, run, caller.by, after)
        found = list(Event.objects.filter(run=run, seq__gt=after).order_by("seq")[: limit + 1])
        more = found[limit - 1].seq if len(found) > limit else None
        response = _results(request, serial.events(found[:limit]), more)
        response["Vary"] = "Accept"
        return response


class ObservationsView(ApiView):
    @extend_schema(
        operation_id="runs_observations", responses=serial.ObservationPage,
        parameters=[parameters.AFTER, parameters.number("limit", 1, OBSERVATIONS_LIMIT)],
    )  # fmt: skip
    def get(self, request: Request, run_id: str) -> Response:
        """What the run was told, in order, after the position `after`."""
        run = self.found(auth.reader(request), run_id)
        after, limit = _window(request, OBSERVATIONS_LIMIT, default=-1)
        found = list(Observation.objects.filter(run=run, position__gt=after).order_by("position")[: limit + 1])
        more = found[limit - 1].position if len(found) > limit else None
        return _results(request, serial.observations(found[:limit]), more)


def _window(request: Request, most: int, *, default: int = 0) -> tuple[int, int]:
    query = request.query_params
    bodies.only(query, frozenset({"after", "limit"}))
    after = bodies.integer(query, "after", default=default, least=0, most=bodies.MAX_SEQ)
    return after, bodies.integer(query, "limit", default=most, least=1, most=most)


def _results(request: Request, results: list[Json], more: int | None) -> Response:
    return Response({"results": results, "next": _link(request, "after", more)}, headers=HEADERS)


class MessagesView(ApiView):
    @extend_schema(operation_id="runs_message", request=bodies.MessageBody, responses={202: serial.MessageView})
    def post(self, request: Request, run_id: str) -> Response:
        """The customer's answer, or an interjection that enters the next turn. The same `message_id` is one message."""
        caller = auth.client(request)
        body = bodies.parse(bodies.MessageBody, request.data)
        run = self.found(caller, run_id)
        message_id, files = body.message_id or uuid.uuid4().hex, taken(body.attachments)
        try:
            left = store.append_input(
                run_id, kind="message", message_id=message_id, text=body.text, by=caller.by, files=files
            )
        except RunEnded:
            raise Refusal(409, "run-ended", "The run has ended.", "It takes no more messages.") from None
        except TooManyFiles:
            detail = f"At most {MAX_RUN_FILES} come with one run and its messages."
            raise Refusal(409, "too-many-files", "The run has no room for these files.", detail) from None
        if left.new:
            _hint(run_id, left)
        else:
            _same_words(run, message_id, body.text, files)
        shown = {"run_id": run_id, "message_id": message_id, "seq": left.seq, "status": left.status}
        return Response(shown, status=202, headers={**HEADERS, "Location": _location(run_id)})


def _same_words(run: Run, message_id: str, text: str, files: tuple[NewAttachment, ...]) -> None:
    if not store.same_message(run, message_id, text, files):
        raise Refusal(
            422, "message-id-reused", "This message_id belongs to another message.", "",
            [{"pointer": "/message_id", "code": "reused", "detail": "choose a new message_id for a new message"}],
        )  # fmt: skip


def _hint(run_id: str, left: AppendedInput) -> None:
    transaction.on_commit(lambda: _nudge(run_id, left.status))


def _nudge(run_id: str, status: str) -> None:
    queues.nudge(run_id, status)


class FeedbackView(ApiView):
    @extend_schema(operation_id="runs_feedback", request=bodies.FeedbackBody, responses=serial.FeedbackView)
    def post(self, request: Request, run_id: str) -> Response:
        """The customer's thumb and word; the last one stands."""
        caller = auth.client(request)
        body = bodies.parse(bodies.FeedbackBody, request.data)
        self.found(caller, run_id)
        store.feedback(run_id, body.rating, body.text)
        return Response({"run_id": run_id, "rating": body.rating, "text": body.text}, headers=HEADERS)


class CancelView(ApiView):
    @extend_schema(operation_id="runs_cancel", request=bodies.CancelBody, responses={202: serial.RunView})
    def post(self, request: Request, run_id: str) -> Response:
        """Ask the run to stop. Idempotent; never undoes and never hides a write that is under way."""
        caller = auth.canceller(request)
        body = bodies.parse(bodies.CancelBody, request.data)
        run = self.found(caller, run_id)
        try:
            left = store.append_input(run_id, kind="cancel", message_id=CANCEL_ID, text=body.reason, by=caller.by)
        except RunEnded:
            left = None  # nothing left to stop: the answer shows how it ended
        if left is not None and left.new:
            _hint(run_id, left)
        run.refresh_from_db()
        return _shown(run, caller, status=202, Location=_location(run_id))
