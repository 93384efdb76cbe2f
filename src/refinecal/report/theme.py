"""The colors of a report, light and dark; those of figures replace the colors of ``refinecal.plots``."""

from collections.abc import Mapping

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
# Figures, by the names of the colors in refinecal.plots. In light mode only the paper differs.
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
    """Return colors as CSS custom properties.

    >>> variables({"text": "#222222"}, "plot-")
    '--plot-text: #222222;'
    """
    return " ".join(f"--{prefix}{name}: {tone};" for name, tone in tones.items())


def stylesheet() -> str:
    """Return the rules that set the colors: by the reader's system or a click; prints are always light."""
    light = f"{variables(LIGHT)} {variables(LIGHT_PLOT, 'plot-')}"
    dark = f"color-scheme: dark; {variables(DARK)} {variables(DARK_PLOT, 'plot-')}"
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media screen {{ :root[data-theme=dark] {{ {dark} }} }}\n"
        "@media screen and (prefers-color-scheme: dark) "
        f"{{ :root:not([data-theme=light]) {{ {dark} }} }}\n"
    )
