"""What waited for a decision before there were reminders is reminded of, too."""

from django.db import migrations


def remind(apps, schema_editor):
    Approval = apps.get_model("approvals", "Approval")
    waiting = Approval.objects.filter(status="pending", notices_until=None).only("requested_at", "expires_at")
    for row in waiting.iterator(500):
        half = row.requested_at + (row.expires_at - row.requested_at) / 2
        Approval.objects.filter(pk=row.pk).update(notices_until=half)


class Migration(migrations.Migration):
    dependencies = [("approvals", "0005_asked_when")]

    operations = [migrations.RunPython(remind, migrations.RunPython.noop)]
