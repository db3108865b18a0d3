"""Evaluation: suites read, outcomes scored, figures with their intervals, qualifications that come of them."""
