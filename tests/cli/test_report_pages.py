"""The reports that commands write, looked at in a real browser."""

from functools import partial

import pandas as pd
import pyarrow.parquet as pq
import pytest
from browser import WIDTHS, launch, open_page, problems
from command_runs import invoke
from made_tables import mixed
from playwright.sync_api import sync_playwright

from refinecal.cli.app import app

pytestmark = pytest.mark.browser

FAST = ["--max-steps", "12", "--patience", "12", "--threads", "1", "--quiet"]


run = partial(invoke, app)


def renamed(table, k):
    """Return the table with labels that are hard on a page."""
    strange = ["<b>bold & co</b>", "50 $ to 100 $", "Ärger über Straßenlärm " + "sehr " * 12]
    labels = [
        strange[int(label[6:]) % 3] if k == 3 else label for label in table["kind"].to_pylist()
    ]
    return table.drop_columns(["weight", "family", "kind"]).append_column("kind", [labels])


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Return the reports of all commands, by name, for two, three and many classes."""
    folder = tmp_path_factory.mktemp("reports")
    found = {}
    for k, model in ((2, "xgboost"), (3, "logistic"), (26, "lightgbm")):
        table = folder / f"{k}.parquet"
        pq.write_table(renamed(mixed(60 * k + 700, k), k), table)
        out = folder / f"run-{k}"
        run("fit", table, "-t", "kind", "-o", out, "-m", model, *FAST)
        predictions = folder / f"predictions-{k}.parquet"
        run("predict", out, table, "-o", predictions, "--keep", "size", "-q")
        page = folder / f"evaluation-{k}.html"
        run("evaluate", predictions, "-t", "kind", "--by", "size", "--report", page, "-q")
        found |= {f"fit {k}": out / "report.html", f"evaluate {k}": page}
        other = pd.read_parquet(predictions)
        names = [name for name in other if name.startswith("p_")]
        other[names] = 0.9 * other[names] + 0.1 / len(names)
        other.to_csv(folder / f"smoother-{k}.csv", index=False)
        found[f"compare {k}"] = folder / f"comparison-{k}.html"
        files = [predictions, folder / f"smoother-{k}.csv"]
        run("compare", *files, "-t", "kind", "--report", found[f"compare {k}"], "-q")
        found[f"ensemble {k}"] = folder / f"ensemble-{k}.html"
        run("ensemble", *files, "-t", "kind", "--report", found[f"ensemble {k}"], "-q")
    return found


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("k", [2, 3, 26])
@pytest.mark.parametrize("command", ["fit", "evaluate", "compare", "ensemble"])
def test_nothing_is_wrong_with_a_report(reports, browser, command, k, width):
    page = open_page(browser, reports[f"{command} {k}"], width)
    assert problems(page) == []
    assert page.locator("svg[role=img]:visible").count() >= (1 if command == "ensemble" else 2)
    if command in ("evaluate", "compare"):
        assert page.get_by_text("smooth ECE").count() >= 1
    if k == 3 and command in ("fit", "evaluate"):
        assert page.get_by_text("<b>bold & co</b>").count() >= 1
    page.close()
