"""Whole private sites under test: real processes, real HTTP, real people's doors. Imports nothing of the site itself."""
