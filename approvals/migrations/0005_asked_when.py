from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0004_queue_at_speed")]

    operations = [
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(
                fields=["requested_at", "tenant_id", "status", "decided_at"], name="approval_asked"
            ),
        ),
    ]
