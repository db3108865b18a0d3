"""Django's settings: one file, works with no environment set. Values come from `agentsite.env` alone."""

from __future__ import annotations

import secrets
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dj_database_url
from csp.constants import NONE, SELF

import agentsite
from agentsite import env, mail, telemetry

ENV = env.read()
BASE_DIR = env.ROOT
VAR_DIR = ENV.VAR_DIR if ENV.VAR_DIR.is_absolute() else Path.cwd() / ENV.VAR_DIR


def _kept_secret(name: str) -> str:
    """A secret made once under VAR_DIR, for the embedded default only."""
    path = VAR_DIR / name
    if not path.exists():
        VAR_DIR.mkdir(parents=True, exist_ok=True)
        made = VAR_DIR / f".{name}.{secrets.token_hex(4)}"
        made.touch(mode=0o600)
        made.write_text(secrets.token_urlsafe(50))
        try:
            path.hardlink_to(made)  # the first of two starting processes wins, both read the same
        except FileExistsError:
            pass
        finally:
            made.unlink()
    return path.read_text().strip()


def _required(name: str, given: Any) -> str:
    if given is not None:
        return str(given.get_secret_value())
    if ENV.embedded:
        return _kept_secret(name.lower())
    raise env.BadEnvironment(f"configuration refused: {name}: required outside the embedded default")


SECRET_KEY = _required("SECRET_KEY", ENV.SECRET_KEY)
AUDIT_KEY = _required("AUDIT_KEY", ENV.AUDIT_KEY)
if ":" not in AUDIT_KEY:
    if ENV.AUDIT_KEY is not None:
        raise env.BadEnvironment("configuration refused: AUDIT_KEY: expected KEYID:SECRET[,KEYID:SECRET…]")
    AUDIT_KEY = f"k1:{AUDIT_KEY}"
DEBUG = ENV.DEBUG
ALLOWED_HOSTS = ENV.ALLOWED_HOSTS
CSRF_TRUSTED_ORIGINS = ENV.CSRF_TRUSTED_ORIGINS
RELEASE = ENV.RELEASE or agentsite.__version__
SILENCED_SYSTEM_CHECKS = ["security.W009", "security.W004", "security.W008", "security.W018"]

INSTALLED_APPS = [
    "django.contrib.admin.apps.SimpleAdminConfig",  # the console is loaded with the paths: a worker has none
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "csp",
    "agentsite",
    "agentsite.tenants",
    "tools",
    "approvals",
    "runs",
]
MIDDLEWARE = [
    # What every answer carries comes first: files and refusals are answers too.
    "django.middleware.security.SecurityMiddleware",
    "agentsite.headers.HeadersMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "agentsite.health.TraceMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
ROOT_URLCONF = "agentsite.urls"
ASGI_APPLICATION = "agentsite.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "agentsite" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


def _database() -> dict[str, Any]:
    if ENV.sqlite:
        url = ENV.DATABASE_URL
        name = url.removeprefix("sqlite:///") if url else str(VAR_DIR / "agentsite.sqlite3")
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        # IMMEDIATE is mandatory: a deferred transaction that turns into a write fails at once under load.
        # FULL: a committed intent must survive a power cut, not only a killed process.
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": name,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA busy_timeout=20000",
            },
            "TEST": {"NAME": str(VAR_DIR / f"test_{secrets.token_hex(4)}.sqlite3")},
        }
    parsed = dj_database_url.parse(str(ENV.DATABASE_URL), engine="agentsite.postgres", conn_max_age=0)
    config: dict[str, Any] = dict(parsed)
    options = "-c lock_timeout=15000 -c statement_timeout=30000 -c idle_in_transaction_session_timeout=60000"
    # Who prepares a statement says so himself (`agentsite.statements`), and its plan is made once, not the sixth time.
    options += " -c plan_cache_mode=force_generic_plan"
    only_where_asked = 1_000_000_000
    # A host that is cut off hears no reset and sends none. Both sides give such a connection up within eleven seconds,
    # before a lock_timeout: the host, or its threads stay deaf after the cut for as long as it lasted; and the server,
    # or whoever was cut off inside a transaction holds every other host up by its locks.
    silence = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
    deaf_ms = 10_000
    options += "".join(f" -c tcp_{name}={value}" for name, value in silence.items()) + f" -c tcp_user_timeout={deaf_ms}"
    # Few connections: one interpreter keeps no more of them busy, and hundreds of threads that come back from their
    # calls at once get on faster when they queue here than when all contend. They wait long: each holds a paid answer.
    # The pool's pause between two tries to connect doubles until it gives up; the next who asks begins anew at once.
    config["OPTIONS"] = {
        "pool": {"min_size": 0, "max_size": 10, "timeout": 60, "max_idle": 60, "reconnect_timeout": 10},
        "options": options,
        "connect_timeout": 5,
        "prepare_threshold": only_where_asked,
        **silence,
        "tcp_user_timeout": deaf_ms,
    }
    return config


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# Holds the counts of throttles, a process each: more entries than callers, or some would be forgotten.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 20_000}}}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True
STATIC_URL = "/static/"
# Files are served where they lie: nothing to collect, and no folder to miss.
STATIC_ROOT = None
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
LOGIN_URL, LOGIN_REDIRECT_URL = "/admin/login/", "/admin/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
]

AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
if ENV.oidc:
    if find_spec("mozilla_django_oidc") is None:
        raise env.BadEnvironment("configuration refused: OIDC_ISSUER: needs the extra: pip install 'agentsite[oidc]'")
    AUTHENTICATION_BACKENDS.append("agentsite.oidc.CompanyBackend")
    assert ENV.OIDC_CLIENT_SECRET is not None, "the environment has all three or none"
    OIDC_RP_CLIENT_ID, OIDC_RP_CLIENT_SECRET = ENV.OIDC_CLIENT_ID, ENV.OIDC_CLIENT_SECRET.get_secret_value()
    OIDC_RP_SCOPES, OIDC_USE_PKCE = ENV.OIDC_SCOPES, True

_HTTPS = not (DEBUG or ENV.INSECURE_HTTP or ENV.embedded)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 365 * 86_400 if _HTTPS else 0
DATA_UPLOAD_MAX_MEMORY_SIZE = 40 * 1024 * 1024
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

KNOX_TOKEN_MODEL = "tenants.ServiceToken"
REST_KNOX = {"TOKEN_TTL": None, "AUTH_HEADER_PREFIX": "Bearer", "TOKEN_MODEL": KNOX_TOKEN_MODEL}
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["runs.api.auth.BearerAuthentication", "runs.api.auth.StaffSession"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["runs.api.auth.StrictJsonParser"],
    "DEFAULT_THROTTLE_CLASSES": ["runs.api.auth.CallerThrottle"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "agentsite.problems.handler",
    "DEFAULT_THROTTLE_RATES": {"runs": ENV.THROTTLE_RUNS, "reads": ENV.THROTTLE_READS},
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "agentsite",
    "DESCRIPTION": (
        "Durable agent runs: admit, follow, approve. Money is a decimal string in major units and an ISO 4217 code; "
        "times are RFC 3339 UTC; errors are RFC 9457. Requests are throttled per token or person and server process: "
        "429 with Retry-After. A browser follows a run with EventSource on `/runs/{run_id}/events`."
    ),
    "VERSION": agentsite.__version__,
    "OAS_VERSION": "3.1.1",
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    "POSTPROCESSING_HOOKS": ["runs.api.openapi.complete"],
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}
MAIL = mail.server()
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if MAIL else 'dummy'}.EmailBackend"
if MAIL is not None:
    EMAIL_HOST, EMAIL_PORT, EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = MAIL.host, MAIL.port, MAIL.user, MAIL.password
    EMAIL_USE_TLS, EMAIL_USE_SSL, EMAIL_TIMEOUT = MAIL.starttls, MAIL.tls, 10
DEFAULT_FROM_EMAIL = SERVER_EMAIL = ENV.EMAIL_FROM
LOGGING = telemetry.configure(ENV.LOG_FORMAT)
LOGGING_CONFIG = "logging.config.dictConfig"
TESTING = "pytest" in sys.modules
