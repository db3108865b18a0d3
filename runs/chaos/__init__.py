"""Door: a private site under fire, for `manage.py chaos` and for tests. Reaches the site by its doors and its rows.

It may never import a zone, a keeper or the orchestrator: it judges them from outside.
"""
