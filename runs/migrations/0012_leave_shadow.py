from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0011_measured'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='shadow',
            options={'default_permissions': ('view',), 'ordering': ['-at'], 'permissions': [('leave_shadow', "Can end a tenant's shadow mode, so that its agent writes")], 'verbose_name': 'proposal in shadow mode', 'verbose_name_plural': 'proposals in shadow mode'},
        ),
    ]
