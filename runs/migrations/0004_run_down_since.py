from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0003_writes_to_look_up")]

    operations = [migrations.AddField(model_name="run", name="down_since", field=models.DateTimeField(null=True))]
