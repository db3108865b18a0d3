from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "agentsite.tenants"
    label = "tenants"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Tenants"
