from django.db import migrations, models


class Migration(migrations.Migration):
    """SQLite takes a partial index only where the query proves its condition, and a list of parameters proves none."""

    dependencies = [
        ('runs', '0002_watched_refunds'),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='write',
            name='write_to_look_up',
        ),
        migrations.AddIndex(
            model_name='write',
            index=models.Index(condition=models.Q(('look_at__isnull', False)), fields=['look_at'], name='write_to_look_up'),
        ),
    ]
