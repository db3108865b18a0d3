"""Real processes die by SIGKILL; nothing in production code helps."""
