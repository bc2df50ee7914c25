"""A router after a blind period: 1,000 engines, of which 100 do not answer.

python -m tests.bench.routers [--json FILE]
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

import uvloop

from tests.apiserver import EmbeddedCluster
from tests.routers.measure import measure


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.routers", description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with EmbeddedCluster() as server:
        # The controller's own loop.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures = runner.run(measure(server, engines=1000, dead=100, timeout_s=3.0))
    print(json.dumps(figures, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return int(figures["full_reconcile_s"] > figures["limit_s"])


if __name__ == "__main__":
    sys.exit(main())
