"""Explore: every property with random seeds and many examples, round after round until the time is up.

python tests/fuzz.py --minutes 30           rounds of random seeds
python tests/fuzz.py --seed 7               one round of a known seed
python tests/fuzz.py --minutes 5 tests/test_search.py

What fails is shown with the smallest example: add it to its test with @example(...), then fix the cause.
"""

import argparse
import secrets
import subprocess
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30, help="start no round after that time")
    parser.add_argument("--seed", type=int, help="one round with this seed")
    parser.add_argument("--workers", default="2")
    given, rest = parser.parse_known_args()
    end = time.monotonic() + 60 * given.minutes
    failed, rounds = [], 0
    while rounds == 0 or (given.seed is None and time.monotonic() < end):
        seed = secrets.randbits(32) if given.seed is None else given.seed
        rounds += 1
        print(f"\nround {rounds}: --seed {seed}", flush=True)
        if fuzz(seed, given.workers, rest):
            failed.append(seed)
    print(
        f"\n{rounds} rounds, {len(failed)} with failures" + (f": seeds {failed}" if failed else "")
    )
    return bool(failed)


def fuzz(seed, workers, rest):
    """Run every Hypothesis test once with a seed; return pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-m", "hypothesis", "--hypothesis-profile=fuzz"]
    command += [f"--hypothesis-seed={seed}", "-n", workers, "--dist", "loadfile", "-q", *rest]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
