"""An HTML page to explore the theory, with sliders and live curves.

The file needs neither a server nor a network: it solves the equations of :mod:`refinecal.theory.fixed_point`
itself, with ``templates/solver.js``.
"""

import json
import os
import re
from pathlib import Path

from refinecal import __version__
from refinecal._core.files import atomic_write

RANGES = {  # of the sliders: the problems that the solver is tested on
    "ratio": (0.05, 20.0),
    "bayes_error": (0.001, 0.45),
    "shape_a": (0.3, 10.0),
    "shape_b": (0.3, 10.0),
    "shift": (1e-4, 1.0),
}
LOSSES = ("log", "brier")


def explorer_page(
    *,
    ratio: float = 0.5,
    bayes_error: float = 0.1,
    shape_a: float = 1.0,
    shape_b: float = 1.0,
    shift: float = 1e-3,
    loss: str = "log",
) -> str:
    """Return a self-contained HTML page that plots risk, calibration and refinement, with sliders.

    The arguments are the initial positions of the sliders, by default the example of the paper's section 7.

    Parameters
    ----------
    ratio : float, default 0.5
        Features per training row, 0.05 to 20.
    bayes_error : float, default 0.1
        Error rate of the best classifier, 0.001 to 0.45.
    shape_a, shape_b : float, default 1.0
        Shape parameters of the Beta law of the eigenvalues, 0.3 to 10.
    shift : float, default 1e-3
        Smallest eigenvalue, 0.0001 to 1.
    loss : {"log", "brier"}, default "log"
        Loss shown initially.

    Examples
    --------
    >>> page = explorer_page(ratio=2.0)
    >>> page.startswith("<!DOCTYPE html>"), '"ratio": 2.0' in page
    (True, True)
    """
    given = zip(RANGES, (ratio, bayes_error, shape_a, shape_b, shift), strict=True)
    start = {name: _check_range(name, value) for name, value in given}
    if loss not in LOSSES:
        raise ValueError(f"loss is {loss!r}: it must be 'log' or 'brier'.")
    from refinecal.plots.style import PALETTE
    from refinecal.report.render import STYLESHEET, policy, read_template, variables

    settings = {"ranges": RANGES, "start": {**start, "loss": loss}}
    scripts = {
        "theme": read_template("report", "theme.js"),
        "solver": read_template("theory", "solver.js"),
        "explorer": read_template("theory", "explorer.js"),
    }
    colors = f":root {{ {variables(PALETTE, 'plot-')} }}\n"  # those of the page come after
    style = read_template("report", "style.css") + read_template("theory", "explorer.css")
    parts = {
        **scripts,
        "policy": policy(scripts.values()),
        "style": colors + STYLESHEET + style,
        "settings": json.dumps(settings),
        "version": __version__,
    }
    template = read_template("theory", "explorer.html")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def write_explorer(
    path: str | os.PathLike[str],
    *,
    ratio: float = 0.5,
    bayes_error: float = 0.1,
    shape_a: float = 1.0,
    shape_b: float = 1.0,
    shift: float = 1e-3,
    loss: str = "log",
) -> Path:
    """Write :func:`explorer_page`, which has the same arguments, to a file; return its path."""
    problem = {"ratio": ratio, "bayes_error": bayes_error}
    law = {"shape_a": shape_a, "shape_b": shape_b, "shift": shift}
    page = explorer_page(**problem, **law, loss=loss)
    with atomic_write(Path(path)) as part:
        part.write_text(page, encoding="utf-8", newline="\n")
    return Path(path)


def _check_range(name: str, value: float) -> float:
    """Return a number within the range of its slider."""
    low, high = RANGES[name]
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}, but must be a number.") from None
    if not low <= number <= high:  # NaN is not, either
        cure = ""
        if name == "bayes_error" and low <= number / 100 <= high:
            cure = f" It is a rate: for {number:g}% pass {number / 100:g}."
        raise ValueError(
            f"{name} is {number:g}, but must lie in the range of its slider, from {low:g} to {high:g}.{cure}"
        )
    return number
