"""``python -m refinecal`` is the command ``refinecal``."""

from refinecal.cli import main

if __name__ == "__main__":
    main()
