"""Reports: one self-contained HTML file, with the figures of :mod:`refinecal.plots`.

A report is data, a :class:`Page`, until :func:`render` makes it HTML or :func:`write` a file. The file needs
no network, no other file and no JavaScript to be read.
"""

from refinecal.report.figures import save_figures
from refinecal.report.page import Card, Column, Figure, Page, Section, Table, Written
from refinecal.report.render import render, write

__all__ = [
    "Card",
    "Column",
    "Figure",
    "Page",
    "Section",
    "Table",
    "Written",
    "render",
    "save_figures",
    "write",
]
