"""Flower's settings (`celery … flower --conf=deploy/flowerconfig.py`): a view for whoever may see it, and no control.

It changes nothing, keeps nothing and starts for nobody without a password. What it shows of a task is its id and the
ids that the task was given: our tasks are given nothing else.
"""

import os

if not os.environ.get("FLOWER_BASIC_AUTH"):
    raise SystemExit("flower: FLOWER_BASIC_AUTH must be USER:PASSWORD")
if os.environ.get("FLOWER_UNAUTHENTICATED_API"):
    raise SystemExit("flower: FLOWER_UNAUTHENTICATED_API opens its API to everybody; unset it")

read_only = True
debug = False
persistent = False
max_tasks = 10_000
purge_offline_workers = 600
tasks_columns = "name,uuid,state,args,received,runtime,worker"
