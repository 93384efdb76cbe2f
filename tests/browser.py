"""Looking at a page in a real Chromium: which browser, how to open a page, and what is wrong with it."""

import os
import shutil
from pathlib import Path

from command_runs import HANGING

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = [
    "--no-sandbox",  # which needs rights that containers lack
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = (400, 1400)  # a phone, a desk


def find_chromium():
    """Return where Chromium is, or ``None``; the variable REFINECAL_CHROMIUM comes first."""
    given = os.environ.get("REFINECAL_CHROMIUM")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


def launch(playwright):
    return playwright.chromium.launch(
        executable_path=find_chromium(), headless=True, args=ARGUMENTS, timeout=1000 * HANGING
    )


def open_page(browser, path, width, **options):
    """Open a file in a window of its own; what goes wrong meanwhile is kept for :func:`problems`."""
    page = browser.new_page(viewport={"width": width, "height": 900}, **options)
    page.set_default_timeout(1000 * HANGING)
    url = Path(path).resolve().as_uri()
    page.noticed = []

    def note(what):
        return lambda event: page.noticed.append(f"{what}: {getattr(event, 'text', event)}")

    page.on("console", lambda m: m.type in ("error", "warning") and note("console")(m))
    page.on("pageerror", note("page error"))
    page.on("request", lambda r: r.url.split("#")[0] != url and note("request")(r.url))
    page.goto(url)
    return page


def problems(page):
    """Return all that is wrong with an open page, in words; an empty list is what is wanted."""
    return [*page.noticed, *page.evaluate(LOOK)]


LOOK = """() => {
  const found = [];
  const shown = (e) => e.checkVisibility();
  const name = (e) => `<${e.tagName.toLowerCase()} class="${e.getAttribute("class") ?? ""}"> `
    + JSON.stringify((e.textContent || e.getAttribute("aria-label") || "").trim().slice(0, 60));
  const root = document.scrollingElement;
  if (root.scrollWidth > innerWidth) found.push(`page is ${root.scrollWidth} wide, not ${innerWidth}`);

  // Text stays in its box, and in the window unless it can be scrolled to.
  for (const e of document.body.querySelectorAll("*")) {
    const text = [...e.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE && n.data.trim());
    if (!text.length || !shown(e) || e.closest("svg")) continue;
    if (!e.matches("[data-scroll]") && e.clientWidth && e.scrollWidth > e.clientWidth + 1)
      found.push(`text overflows by ${e.scrollWidth - e.clientWidth}: ${name(e)}`);
    for (const node of text) {
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = range.getBoundingClientRect();
      if (!box.width || !box.height) found.push(`text has no size: ${name(e)}`);
      if (!e.closest("[data-scroll]") && (box.right > innerWidth + 1 || box.left < -1))
        found.push(`text leaves the window: ${name(e)}`);
    }
  }

  // Of each figure's twins one is seen, whole; its letters are inside, apart, and large enough.
  for (const figure of document.querySelectorAll("figure")) {
    const twins = [...figure.querySelectorAll("svg[role=img]")];
    const seen = twins.filter((svg) => shown(svg));
    if (twins.length !== 2 || seen.length !== 1)
      found.push(`${seen.length} of ${twins.length} drawings are shown: ${name(figure)}`);
    for (const svg of seen) {
      const frame = svg.getBoundingClientRect();
      if (frame.width < 100 || frame.height < 50) found.push(`small drawing: ${name(svg)}`);
      if (frame.right > innerWidth + 1) found.push(`drawing leaves the window: ${name(svg)}`);
      if (!svg.getAttribute("aria-label")) found.push(`drawing without a description: ${name(figure)}`);
      const texts = [...svg.querySelectorAll("g.text")].map((g) => g.getBoundingClientRect());
      const boxes = texts.filter((box) => box.width && box.height);
      if (!boxes.length) found.push(`drawing without letters: ${name(svg)}`);
      for (const box of boxes)
        if (box.left < frame.left - 1 || box.right > frame.right + 1
            || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
          found.push(`letters are cut off in: ${name(svg)}`);
      boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 2 && high > 2)
          found.push(`letters overlap near ${Math.round(a.left - frame.left)}, `
            + `${Math.round(a.top - frame.top)} in: ${name(svg)}`);
      }));
    }
  }

  // An id that two elements share would clip one figure by the other's frame.
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  ids.forEach((id, i) => ids.indexOf(id) < i && found.push(`id is used twice: ${id}`));
  for (const e of document.querySelectorAll("use, [clip-path]")) {
    const target = (e.getAttribute("href") ?? e.getAttribute("clip-path")).match(/#([^)]+)/)?.[1];
    if (!document.getElementById(target)) found.push(`nothing has the id ${target}`);
  }
  return found;
}"""
