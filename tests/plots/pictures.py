"""What every picture must be: readable at two widths, in our colours only."""

import io
import re
from itertools import combinations

from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from refinecal.plots.style import PALETTE

SIZES = {"page": (7.2, 4.0), "column": (3.6, 3.4)}


def blank(size="page"):
    """Return axes on a figure of their own, which pyplot does not know of."""
    return Figure(figsize=SIZES[size], layout="constrained").add_subplot()


def words(figure):
    """Return every piece of text that shows."""
    figure.draw_without_rendering()
    found = figure.findobj(lambda one: isinstance(one, Text) and one.get_text().strip())
    return [text for text in found if text.get_visible()]


def assert_readable(figure):
    """Check that all text is large enough, inside the figure, and apart."""
    boxes = []
    whole = figure.bbox
    for text in words(figure):
        assert text.get_fontsize() >= 7, text
        box = text.get_window_extent()
        assert whole.x0 <= box.x0, text
        assert box.x1 <= whole.x1 + 0.5, text
        assert whole.y0 <= box.y0, text
        assert box.y1 <= whole.y1 + 0.5, text
        boxes.append((text, box.padded(-0.6)))  # letters do not fill their box
    for (one, box), (other, its) in combinations(boxes, 2):
        assert not box.overlaps(its), (one, other)


def colours(figure):
    """Return the colours in the SVG of a figure, and those of its text, which an SVG leaves out if black."""
    with io.StringIO() as file:
        figure.savefig(file, format="svg", transparent=True)
        svg = file.getvalue()
    in_svg = set(re.findall(r"#[0-9a-fA-F]{6}\b|#[0-9a-fA-F]{3}\b", svg))
    return in_svg | {to_hex(text.get_color()) for text in words(figure)}


def assert_in_palette(figure):
    assert colours(figure) <= set(PALETTE.values())
