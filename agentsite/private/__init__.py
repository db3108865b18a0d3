"""Roof: private servers and the processes beside them, for `chaos` and for tests. Imports no room of ours."""
