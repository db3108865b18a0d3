"""A change of a tenant's shadow mode is only ever added: the database itself refuses to change or delete its row.

A later migration that alters this table remakes it on SQLite, where its triggers go with the old one: such a migration
ends with `stand` again.
"""

from django.db import migrations

SAID = "a change of shadow mode stands as it was recorded"
SQLITE = (
    f"""CREATE TRIGGER tenants_shadowchange_unchanged BEFORE UPDATE ON tenants_shadowchange
    BEGIN SELECT RAISE(ABORT, '{SAID}'); END""",
    f"""CREATE TRIGGER tenants_shadowchange_kept BEFORE DELETE ON tenants_shadowchange
    BEGIN SELECT RAISE(ABORT, '{SAID}'); END""",
)
POSTGRES = (
    f"""CREATE FUNCTION tenants_shadowchange_stands() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION '{SAID}' USING ERRCODE = 'integrity_constraint_violation';
    END $$""",
    """CREATE TRIGGER tenants_shadowchange_stands BEFORE UPDATE OR DELETE ON tenants_shadowchange
    FOR EACH ROW EXECUTE FUNCTION tenants_shadowchange_stands()""",
)


def stand(apps, schema_editor):
    for statement in POSTGRES if schema_editor.connection.vendor == "postgresql" else SQLITE:
        schema_editor.execute(statement, params=None)


def let_go(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER tenants_shadowchange_stands ON tenants_shadowchange", params=None)
        schema_editor.execute("DROP FUNCTION tenants_shadowchange_stands()", params=None)
        return
    for name in ("unchanged", "kept"):
        schema_editor.execute(f"DROP TRIGGER tenants_shadowchange_{name}", params=None)


class Migration(migrations.Migration):

    dependencies = [('tenants', '0005_measured')]

    operations = [migrations.RunPython(stand, let_go)]
