"""The base class of all displays, panels of displays, and a check of their numbers."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.errors import needs_extra
from refinecal.plots.style import PALETTE, dress, sizes, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

TWO_COLUMNS = 5.5  # inches of a figure, from where panels are side by side


class Display:
    """The data of a figure, and how to draw them: subclasses define ``_draw``, and perhaps ``_size``.

    Attributes
    ----------
    figure_, ax_ : Figure, Axes
        Where the data were drawn.
    """

    figure_: Figure
    ax_: Axes

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the data.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        """
        if ax is None:
            with needs_extra("plot", package="matplotlib"):
                import matplotlib.pyplot as plt
            look: Any = {"layout": "constrained", "facecolor": PALETTE["paper"]}  # our text is dark
            _, ax = plt.subplots(figsize=self._size(), **look)
        self.ax_, self.figure_ = ax, dress(ax)
        self._draw(ax)
        return self

    def _size(self) -> tuple[float, float]:
        """Return the width and height of a new figure, in inches."""
        return 7, 4.2

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError


def draw_panels(figure: Figure, panels: Mapping[str, Display]) -> dict[str, Axes]:
    """Draw displays with their titles, side by side where the figure is wide; return their axes.

    Neighbours with the same row names, or the same axis label, show them once.
    """
    columns = 2 if figure.get_figwidth() >= TWO_COLUMNS and len(panels) > 1 else 1
    grid = figure.subplots(-(-len(panels) // columns), columns, squeeze=False)
    for place, (ax, title) in enumerate(zip(grid.flat, panels, strict=False)):
        panels[title].plot(ax)
        write_title(ax, title, sizes(ax)[0], loc="left")
        if place % columns:
            left = panels[list(panels)[place - 1]]
            names = getattr(panels[title], "names", None)
            if names is not None and list(names) == list(getattr(left, "names", ())):
                ax.tick_params(labelleft=False)
            elif left.ax_.get_ylabel() == ax.get_ylabel():
                ax.set_ylabel("")
    for ax in grid.flat[len(panels) :]:
        ax.set_visible(False)
    return dict(zip(panels, grid.flat, strict=False))


def check_floats(name: str, given: ArrayLike, shape: tuple[int | None, ...], wanted: str) -> Floats:
    """Return an array of a shape, in which ``None`` is any length; ``wanted`` ends the error message."""
    values = np.asarray(given, dtype=np.float64)
    fits = values.ndim == len(shape) and all(
        length in (None, found) for length, found in zip(shape, values.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{name} has shape {values.shape}{wanted}")
    return values
