"""Whole private sites under test: real processes, real HTTP, people's own doors. Imports nothing of the site itself."""
