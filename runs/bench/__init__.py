"""Door: scenarios that `manage.py bench` measures, on private servers. Imports no zone and no keeper."""
