"""The seams of a run: a process is killed at each of them while the world outside is held still."""
