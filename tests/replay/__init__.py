"""The golden corpus: recorded runs, one a path of the failure diagram, and the tests that replay them."""
