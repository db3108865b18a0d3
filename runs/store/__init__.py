"""The keeper: create, load, claim, checkpoint. The only hand that writes a run; imports no door, and of the zones only
the ranking of texts (`cases`)."""

from runs.errors import Fenced, IntentLost
from runs.store.admit import AppendedInput, Before, Created, append_input, before, create, feedback, same_message
from runs.store.anchored import behind, look
from runs.store.asks import DecidedMeanwhile
from runs.store.broken import fail_unloadable, leave_to_a_person, looks_due
from runs.store.by_hand import Resolution, Settlement, finish, hurry, look_now
from runs.store.by_hand import settle as settle_by_hand
from runs.store.carrying import holdable
from runs.store.checkpoint import Held, Moved, UnreadInput, checkpoint, goes_on, leads_to
from runs.store.claiming import Claimed, claim
from runs.store.fencing import FenceDone, fence
from runs.store.hints import Due, due_unhinted, mark_hinted, unmark_hinted
from runs.store.lease import due_now, release, renew
from runs.store.ledger import OrderStanding, order_standing, own_writes, used_so_far
from runs.store.load import cancel_asked, load, observations, writes
from runs.store.marking import mark_sent
from runs.store.prefixes import Read
from runs.store.settled import due_writes
from runs.store.tell import first_story, story
from runs.store.under_way import drop_drafts, keep_drafts, last_inputs
from runs.store.watched import due_watches

__all__ = [
    "AppendedInput",
    "Before",
    "Claimed",
    "Created",
    "DecidedMeanwhile",
    "Due",
    "FenceDone",
    "Fenced",
    "Held",
    "IntentLost",
    "Moved",
    "OrderStanding",
    "Read",
    "Resolution",
    "Settlement",
    "UnreadInput",
    "append_input",
    "before",
    "behind",
    "cancel_asked",
    "checkpoint",
    "claim",
    "create",
    "due_now",
    "due_unhinted",
    "due_watches",
    "due_writes",
    "drop_drafts",
    "fail_unloadable",
    "leads_to",
    "leave_to_a_person",
    "feedback",
    "first_story",
    "fence",
    "finish",
    "goes_on",
    "holdable",
    "hurry",
    "keep_drafts",
    "last_inputs",
    "load",
    "look",
    "look_now",
    "looks_due",
    "mark_hinted",
    "mark_sent",
    "observations",
    "order_standing",
    "own_writes",
    "release",
    "renew",
    "same_message",
    "settle_by_hand",
    "story",
    "unmark_hinted",
    "used_so_far",
    "writes",
]
