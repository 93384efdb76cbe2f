"""The tones of a report, by day and by night.

A figure is drawn in the colours of ``refinecal.plots``; the page may show each of them in another tone.
"""

from collections.abc import Mapping

# The page: text on background and on the surface of cards, muted text, lines, links and marks.
LIGHT = {
    "background": "#fbfbfa",
    "surface": "#ffffff",
    "stripe": "#f3f5f6",
    "text": "#1c2227",
    "muted": "#59636c",
    "line": "#dce1e5",
    "accent": "#00618f",
}
DARK = {
    "background": "#13171b",
    "surface": "#1a1f25",
    "stripe": "#20262d",
    "text": "#e7eaed",
    "muted": "#a4aeb8",
    "line": "#333c45",
    "accent": "#6cbcea",
}
# The figures, by the names that refinecal.plots gives to its colours. By day only the paper is the page's.
LIGHT_PLOT = {"paper": LIGHT["background"]}
DARK_PLOT = {
    "risk": "#2fc79b",
    "refinement": "#ff8a3d",
    "calibration": "#5aa9f0",
    "uncertainty": "#9ad7f7",
    "sharpness": "#f5c04a",
    "after": "#ee9fc8",
    "before": "#9aa4ae",
    "text": DARK["text"],
    "axis": "#8a95a0",
    "grid": DARK["line"],
    "paper": DARK["background"],
}


def variables(tones: Mapping[str, str], prefix: str = "") -> str:
    """Return tones as CSS custom properties.

    >>> variables({"text": "#222222"}, "plot-")
    '--plot-text: #222222;'
    """
    return " ".join(f"--{prefix}{name}: {tone};" for name, tone in tones.items())


def stylesheet() -> str:
    """Return the rules that set the tones: the reader's system decides, a click on the page overrules it.

    Paper is always white.
    """
    light = f"{variables(LIGHT)} {variables(LIGHT_PLOT, 'plot-')}"
    dark = f"color-scheme: dark; {variables(DARK)} {variables(DARK_PLOT, 'plot-')}"
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media screen {{ :root[data-theme=dark] {{ {dark} }} }}\n"
        "@media screen and (prefers-color-scheme: dark) "
        f"{{ :root:not([data-theme=light]) {{ {dark} }} }}\n"
    )
