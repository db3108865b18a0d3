"""agentsite: a durable single-agent runtime for work with real side effects."""

__version__ = "0.1.0"
