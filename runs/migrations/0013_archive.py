import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0012_leave_shadow")]

    operations = [
        migrations.CreateModel(
            name="Archive",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name="archive",
                        serialize=False, to="runs.run",
                    ),
                ),
                ("file", models.CharField(max_length=80)),
                ("folder", models.CharField(max_length=1000)),
                ("sha256", models.CharField(max_length=64)),
                ("size", models.PositiveIntegerField()),
                ("last_seq", models.PositiveIntegerField()),
                ("at", models.DateTimeField()),
                ("conversation_key", models.CharField(blank=True, default="", max_length=64)),
                ("evidence_key", models.CharField(blank=True, default="", max_length=64)),
                ("key_id", models.CharField(max_length=32)),
                ("mac", models.CharField(max_length=64)),
            ],
            options={
                "default_permissions": (),
                "indexes": [models.Index(fields=["file"], name="archive_by_file")],
            },
        ),
    ]
