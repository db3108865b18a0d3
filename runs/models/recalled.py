"""The row that says which run was shown a case of the past in its customer's own words. Columns, no methods."""

from __future__ import annotations

from django.db import models

from runs.models.rows import Run


class Recalled(models.Model):
    """`run` holds a copy of what stood in `of`, an earlier run of the same customer: erasing that one finds it here.

    What a run is shown of other customers' cases names nobody and leaves no row.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+")
    of = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="+", db_index=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["of", "run"], name="recalled_once")]
        default_permissions = ()
