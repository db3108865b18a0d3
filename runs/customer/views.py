"""Door: the customer's page, its reply box and its thumb. Leaves rows through the store and nudges; keeps no session.

The link is the secret: whoever cannot name it cannot aim a request at it, so a cookie against forged requests would add
nothing but a cookie. What a browser says came from another site is refused all the same, and a form's one-time field is
signed for this run. Imports no inference, gate, dispatcher, executor or orchestrator.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agentsite import queues
from runs import store
from runs.api.bodies import FeedbackBody
from runs.attachments import MAX_FILES
from runs.customer import links, projection, taking, throttle
from runs.errors import RunEnded, TooManyFiles
from runs.models import Run

BY = "customer"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
ENDED = "Your request has ended, so this was not sent. Please contact us another way; your text is kept below."
REUSED = "This form had already sent another message. Yours is kept below: please send it again."
FULL = "No more files can be added to this request. Your text is kept below: please send it without them."
STALE = "This form could not be used any more. Your text is kept below: please send it again."
THANKS = {"message": "Thank you. Your message has been sent.", "feedback": "Thank you for telling us."}


@require_safe
def page(request: HttpRequest, token: str) -> HttpResponse:
    """The page; `?since=MARK` answers 204 while nothing changed."""
    run = _run(token)
    if run is None:
        return _gone()
    if (wait := throttle.wait_s(run.id, "read")) is not None:
        return _slow_down(wait)
    if request.GET.get("since") == projection.of(run).mark:
        return _headed(HttpResponse(status=204))
    return _page(run, token, thanks=THANKS.get(request.GET.get("sent", ""), ""))


@csrf_exempt
@require_POST
def message(request: HttpRequest, token: str) -> HttpResponse:
    """A message with its files. The same form sent twice is one message; what is refused comes back in its form."""
    run = _run(token)
    if run is None:
        return _gone()
    if (refused := _refused(request, run)) is not None:
        return refused
    sent = taking.form(request)
    message_id = links.read_form(run.id, sent["form"])
    text, fault = sent["text"], sent.fault or taking.message_fault(sent["text"])
    if fault or message_id is None:
        return _page(run, token, status=sent.status, fault=fault or STALE, text=text)
    left = _leave(run, message_id, text, sent)
    if left is not None:
        return _page(run, token, status=409, fault=left, text=text)
    return _back(token, "message")


def _leave(run: Run, message_id: str, text: str, sent: taking.Form) -> str | None:
    """Leave the message for its run; what to say where that cannot be."""
    run_id = str(run.id)
    try:
        left = store.append_input(run_id, kind="message", message_id=message_id, text=text, by=BY, files=sent.files)
    except RunEnded:
        return ENDED
    except TooManyFiles:
        return FULL
    if left.new:
        transaction.on_commit(lambda: queues.nudge(run_id, left.status))
        return None
    return None if store.same_message(run, message_id, text, sent.files) else REUSED


@csrf_exempt
@require_POST
def feedback(request: HttpRequest, token: str) -> HttpResponse:
    """The thumb and the word; the last one stands."""
    run = _run(token)
    if run is None:
        return _gone()
    if (refused := _refused(request, run)) is not None:
        return refused
    sent = taking.form(request)
    given: FeedbackBody | str = sent.fault or taking.feedback(sent)
    if isinstance(given, str):
        return _page(run, token, status=sent.status, thumb_fault=given, word=sent["text"])
    store.feedback(str(run.id), given.rating, given.text)
    return _back(token, "feedback")


@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
def nothing(request: HttpRequest, rest: str = "") -> HttpResponse:
    """What is no link looks like every other link that does not serve."""
    return _gone()


def _run(token: str) -> Run | None:
    """The run of a link that serves. One whose words were erased has nothing left to show."""
    link = links.read(token)
    if link is None:
        return None
    return Run.objects.select_related("feedback").filter(id=link.run_id, conversation_erased_at=None).first()


def _refused(request: HttpRequest, run: Run) -> HttpResponse | None:
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return _plain("This did not come from this page", "Please open your link again and send it from there.", 403)
    wait = throttle.wait_s(run.id, "write")
    return _slow_down(wait) if wait is not None else None


# --- what is answered ------------------------------------------------------------------------------------------


def _page(run: Run, token: str, *, status: int = 200, **more: Any) -> HttpResponse:
    run = Run.objects.select_related("feedback").get(id=run.id)  # as it is now, whatever was just left
    view = projection.of(run)
    urls = {name: reverse(f"customer-{name}", args=[token]) for name in ("message", "feedback")}
    context = {
        "view": view, "mark": view.mark, "form": links.form(run.id, uuid.uuid4().hex), "urls": urls,
        "here": reverse("customer", args=[token]), "max_files": MAX_FILES, "fault": "", "thumb_fault": "", "text": "",
        "word": view.thumb.text if view.thumb else "", "thanks": "", **more,
    }  # fmt: skip
    return _headed(HttpResponse(render_to_string("customer/page.html", context), status=status))


def _back(token: str, what: str) -> HttpResponse:
    response = HttpResponse(status=303)
    response["Location"] = f"{reverse('customer', args=[token])}?sent={what}#sent"
    return _headed(response)


def _gone() -> HttpResponse:
    """One answer to every link that does not serve: wrong, cut, over, erased."""
    words = "It may be incomplete, or too old. Links like this one work for a limited time."
    return _plain("This link does not work", words, 404)


def _slow_down(wait_s: int) -> HttpResponse:
    response = _plain("That was a lot at once", "Please wait a moment, then try again. Nothing was lost.", 429)
    response["Retry-After"] = str(wait_s)
    return response


def _plain(title: str, words: str, status: int) -> HttpResponse:
    body = render_to_string("customer/plain.html", {"title": title, "words": words})
    return _headed(HttpResponse(body, status=status))


def _headed(response: HttpResponse) -> HttpResponse:
    for name, value in HEADERS.items():
        response[name] = value
    return response
