from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0008_webhook_host")]

    operations = [
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("completed_at__isnull", False)),
                fields=["completed_at", "tenant", "status", "outcome", "reason"],
                name="run_ended",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("completed_at__isnull", False)),
                fields=["status", "outcome", "reason", "tenant", "completed_at"],
                name="run_ended_as",
            ),
        ),
    ]
