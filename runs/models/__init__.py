"""Door: the rows of the runs app, where Django looks for them. `runs.store` is the only hand that writes them."""

from runs.models.archive import Archive
from runs.models.measured import Evaluation, Shadow
from runs.models.outside import Attachment, Delivery, Feedback, Webhook
from runs.models.recalled import Recalled
from runs.models.rows import (
    LIVE_VALUES,
    OPEN_WRITES,
    WAITS,
    WRITE_STATES,
    Attempt,
    Counter,
    Draft,
    Event,
    Input,
    Observation,
    OrderGuard,
    Process,
    Qualification,
    Run,
    RunOrder,
    Sweeper,
    Turn,
    Write,
    new_id,
)

__all__ = [
    "Archive",
    "Attachment",
    "Attempt",
    "Counter",
    "Delivery",
    "Draft",
    "Evaluation",
    "Event",
    "Feedback",
    "Input",
    "LIVE_VALUES",
    "OPEN_WRITES",
    "Observation",
    "OrderGuard",
    "Process",
    "Qualification",
    "Recalled",
    "Run",
    "RunOrder",
    "Shadow",
    "Sweeper",
    "Turn",
    "WAITS",
    "WRITE_STATES",
    "Webhook",
    "Write",
    "new_id",
]
