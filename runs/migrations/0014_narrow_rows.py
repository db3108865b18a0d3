import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0013_archive"),
        ("tenants", "0006_shadow_changes_stand"),
    ]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="run",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="events", to="runs.run"
            ),
        ),
        migrations.AlterField(
            model_name="input",
            name="run",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="inputs", to="runs.run"
            ),
        ),
        migrations.AlterField(
            model_name="observation",
            name="run",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="observations", to="runs.run"
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="tenant",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="trace_id",
            field=models.CharField(max_length=32),
        ),
        migrations.AlterField(
            model_name="runorder",
            name="run",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="orders", to="runs.run"
            ),
        ),
        migrations.AlterField(
            model_name="turn",
            name="run",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="turns", to="runs.run"
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["trace_id"], name="run_by_trace"),
        ),
    ]
