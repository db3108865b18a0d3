from __future__ import annotations
import io, json, random, traceback
from pathlib import Path
import pytest
from django.core.management import CommandError, call_command
from tests import logs
from tests.world import World
from tests.integration.test_why_from_logs import refunded, log, printed, lines_of

HOSTILE = [None, True, -1, 0, 10**13, 1e308, float("inf"), "", "abc", "[/red]", "\x1b[2Jboo", "9999-99-99T00:00:00Z", [], [[]], {}, {"a": {}}, [1,2], "a"*100000, ["x"], {"amount": "1e999999", "currency": "INR"}, {"amount":"1","currency":"[/x]"}, "\ud800"]

def paths(o, at=()):
    yield at
    if isinstance(o, dict):
        for k, v in o.items(): yield from paths(v, (*at, k))
    elif isinstance(o, list):
        for n, v in enumerate(o[:3]): yield from paths(v, (*at, n))

def put(o, at, v):
    if not at: return v
    o = json.loads(json.dumps(o)); c = o
    for k in at[:-1]: c = c[k]
    c[at[-1]] = v
    return o

def test_fuzz(world: World, log: Path, tmp_path: Path) -> None:
    run = refunded(world)
    texts = [t for t in lines_of(log) if str(run.pk) in t]
    bad = {}
    rnd = random.Random(1)
    every = [(n, at) for n, t in enumerate(texts) for at in paths(json.loads(t)) if at]
    print(len(every))
    for _ in range(1500):
        n, at = rnd.choice(every); h = rnd.choice(HOSTILE)
        made = put(json.loads(texts[n]), at, h)
        f = tmp_path / "f.log"
        f.write_text("\n".join([*texts[:n], json.dumps(made), *texts[n+1:]]))
        for extra in ((), ("--json",)):
            try:
                out = printed("--from-logs", str(f), "req-8472", *extra)
                if "\x1b[2J" in out: bad.setdefault(("ESC", extra, tuple(x for x in at if isinstance(x,str))), h)
            except CommandError: pass
            except BaseException as e:
                tb = traceback.extract_tb(e.__traceback__)
                where = [f"{Path(x.filename).name}:{x.lineno}" for x in tb if "/work/main" in x.filename and ".venv" not in x.filename][-2:]
                bad.setdefault((type(e).__name__, tuple(where)), (str(e)[:80], json.loads(texts[n])["event"], at, str(h)[:30]))
    for k, v in bad.items(): print("BAD", k, v)
