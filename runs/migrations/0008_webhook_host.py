from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0007_outside'),
    ]

    operations = [
        migrations.AddField(
            model_name='webhook',
            name='host',
            field=models.CharField(db_default='', default='', max_length=270),
        ),
    ]
