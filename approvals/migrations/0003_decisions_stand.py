"""A decision's row is only ever added: the database itself refuses to change or delete one.

The one change it lets pass is an erasure: the free text becomes empty. A later migration that alters this table remakes
it on SQLite, where its triggers go with the old one: such a migration ends with `stand` again.
"""

from django.db import migrations

SAID = "a decision stands as it was recorded"
COLUMNS = (
    "id", "approval_id", "user_id", "by", "decision", "counted", "refusal", "reason_code", "attested", "action_hash",
    "screen_hash", "address", "at",
)
CHANGED = " OR ".join(f'NEW."{name}" IS NOT OLD."{name}"' for name in COLUMNS)
SQLITE = (
    f"""CREATE TRIGGER approvals_decision_unchanged BEFORE UPDATE ON approvals_decision
    WHEN {CHANGED} OR NEW.reason NOT IN ('', OLD.reason)
    BEGIN SELECT RAISE(ABORT, '{SAID}'); END""",
    f"""CREATE TRIGGER approvals_decision_kept BEFORE DELETE ON approvals_decision
    BEGIN SELECT RAISE(ABORT, '{SAID}'); END""",
)
POSTGRES = (
    f"""CREATE FUNCTION approvals_decision_stands() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - 'reason' = to_jsonb(OLD) - 'reason'
            AND NEW.reason IN ('', OLD.reason) THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION '{SAID}' USING ERRCODE = 'integrity_constraint_violation';
    END $$""",
    """CREATE TRIGGER approvals_decision_stands BEFORE UPDATE OR DELETE ON approvals_decision
    FOR EACH ROW EXECUTE FUNCTION approvals_decision_stands()""",
)


def stand(apps, schema_editor):
    for statement in POSTGRES if schema_editor.connection.vendor == "postgresql" else SQLITE:
        schema_editor.execute(statement, params=None)


def let_go(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER approvals_decision_stands ON approvals_decision", params=None)
        schema_editor.execute("DROP FUNCTION approvals_decision_stands()", params=None)
        return
    for name in ("unchanged", "kept"):
        schema_editor.execute(f"DROP TRIGGER approvals_decision_{name}", params=None)


class Migration(migrations.Migration):

    dependencies = [('approvals', '0002_outside')]

    operations = [migrations.RunPython(stand, let_go)]
