"""The keeper: create, load, claim, checkpoint. The only hand that writes a run; imports no door, and of the zones only
the ranking of texts (`cases`)."""

from runs.errors import Fenced, IntentLost
from runs.store.admit import AppendedInput, Created, append_input, create, feedback, same_message
from runs.store.anchored import behind, look
from runs.store.asks import DecidedMeanwhile
from runs.store.broken import fail_unloadable, leave_to_a_person, looks_due
from runs.store.by_hand import Resolution, Settlement, finish, hurry, look_now
from runs.store.by_hand import settle as settle_by_hand
from runs.store.checkpoint import UnreadInput, checkpoint
from runs.store.fencing import FenceDone, fence
from runs.store.hints import Due, due_unhinted, mark_hinted, unmark_hinted
from runs.store.lease import Claimed, claim, due_now, release, renew, rests
from runs.store.load import cancel_asked, load, observations, writes
from runs.store.money_rows import mark_sent, own_writes, read_epoch, used_so_far
from runs.store.settled import due_writes
from runs.store.tell import story
from runs.store.under_way import drop_drafts, keep_drafts, last_inputs
from runs.store.watched import due_watches

__all__ = [
    "AppendedInput",
    "Claimed",
    "Created",
    "DecidedMeanwhile",
    "Due",
    "FenceDone",
    "Fenced",
    "IntentLost",
    "Resolution",
    "Settlement",
    "UnreadInput",
    "append_input",
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
    "leave_to_a_person",
    "feedback",
    "fence",
    "finish",
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
    "own_writes",
    "read_epoch",
    "release",
    "renew",
    "rests",
    "same_message",
    "settle_by_hand",
    "story",
    "unmark_hinted",
    "used_so_far",
    "writes",
]
