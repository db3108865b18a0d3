"""Control: how well the service serves, from ended runs alone: success, caps, cost, time, objectives, tails.

Reads rows and writes none but a tenant's objective. Imports no door, no orchestrator and no zone.
"""
