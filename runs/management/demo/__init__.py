"""Door: what `demo` stands on: its store and login, its two children, and the people who act in it. Knows no zone."""
