"""Run every example with nothing installed but refinecal and the extra that it names: `make examples`.

Names of examples run those only: `python3 examples/fresh.py xgboost_early_stopping`. Environments are made in
.venv-examples, one for each extra.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv-examples"


def extra_of(path: Path) -> str:
    """Return the extra that the example says it needs; none is an empty string."""
    named = re.search(r"Needs: pip install '?refinecal(\[\w+\])?", path.read_text(encoding="utf-8"))
    if named is None:
        raise SystemExit(f"{path.name} does not say what it needs")
    return named[1] or ""


def environment(extra: str) -> Path:
    """Return the interpreter of an environment that holds this extra alone."""
    folder = HOME / (extra.strip("[]") or "plain")
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pins = ["-c", ROOT / "constraints.txt", f"{ROOT}{extra}"]
    subprocess.run([*install, "--force-reinstall", "--no-deps", ROOT], check=True)
    subprocess.run([*install, *pins], check=True)
    return python


def main() -> None:
    """Run the examples asked for, or all, and say which fail."""
    paths = [p for p in sorted((ROOT / "examples").glob("*.py")) if p.stem != "fresh"]
    wanted = sys.argv[1:] or [path.stem for path in paths]
    failed = []
    for path in paths:
        if path.stem not in wanted:
            continue
        python = environment(extra_of(path))
        start = time.perf_counter()
        print(f"---- {path.stem} {extra_of(path)}", flush=True)
        done = subprocess.run([python, path], check=False)
        failed += [path.stem] if done.returncode else []
        print(f"     {time.perf_counter() - start:.0f} s\n", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
