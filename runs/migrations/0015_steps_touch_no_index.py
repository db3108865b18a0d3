from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Case, F, Q, When


def leave_room(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """A new version of a row stays on its page, where there is room, and no index hears of it."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE runs_run SET (fillfactor = 70)")


def fill_up(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE runs_run RESET (fillfactor)")


class Migration(migrations.Migration):
    """No index is over a run's status any more. The release before can go on beside: it writes no column it does not
    know, and its looks for due runs are right, but walk the table until it is gone."""

    dependencies = [("runs", "0014_narrow_rows")]

    operations = [
        migrations.RunPython(leave_room, fill_up),
        migrations.RemoveIndex(model_name="run", name="run_due"),
        migrations.RemoveIndex(model_name="run", name="run_ended"),
        migrations.RemoveIndex(model_name="run", name="run_ended_as"),
        migrations.AddField(
            model_name="run",
            name="ended_as",
            field=models.GeneratedField(
                db_persist=True,
                expression=Case(When(completed_at__isnull=False, then=F("status"))),
                output_field=models.CharField(max_length=20, null=True),
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["due_at"], name="run_due", condition=Q(completed_at__isnull=True)),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=Q(completed_at__isnull=False),
                fields=["completed_at", "tenant", "ended_as", "outcome", "reason"],
                name="run_ended",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=Q(completed_at__isnull=False),
                fields=["ended_as", "outcome", "reason", "tenant", "completed_at"],
                name="run_ended_as",
            ),
        ),
    ]
