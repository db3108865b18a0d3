from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0002_who_paused'),
    ]

    operations = [
        migrations.AddField(
            model_name='site',
            name='fence_demanded_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
