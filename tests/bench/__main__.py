"""Runs every benchmark in a process of its own, one after the other, and writes one JSON file.

python -m tests.bench [--only NAME ...] [--json FILE]
"""

import argparse
import json
import pkgutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tests.bench


def benchmarks() -> list[str]:
    """The modules beside this one, by name."""
    return sorted(
        found.name
        for found in pkgutil.iter_modules(tests.bench.__path__)
        if not found.ispkg and not found.name.startswith("_")
    )


def run(name: str, folder: Path) -> object:
    """The figures of one benchmark, or the reason why it has none."""
    print(f"== {name}", flush=True)
    figures = folder / f"{name}.json"
    command = [sys.executable, "-m", f"tests.bench.{name}", "--json", str(figures)]
    code = subprocess.run(command, check=False).returncode
    if code:
        return {"failed": f"exit code {code}"}
    return json.loads(figures.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=benchmarks(), default=benchmarks())
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = {name: run(name, Path(folder)) for name in arguments.only}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    print(f"figures: {arguments.json}")
    return int(any(isinstance(f, dict) and "failed" in f for f in figures.values()))


if __name__ == "__main__":
    sys.exit(main())
