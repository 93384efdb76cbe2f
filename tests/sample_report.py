"""A page with a bit of everything: what a report of a fit may hold, and names as strangers write them."""

import numpy as np

from refinecal.plots import TrainingCurveDisplay
from refinecal.plots.style import PALETTE
from refinecal.report import Card, Column, Figure, Page, Section, Table

LETTERS = [chr(ord("A") + i) for i in range(26)]
HOSTILE = "<script>window.hacked = true</script>"
LONG = "household_income_after_taxes_and_transfers_in_thousands_of_euros_per_consumption_unit_2024"


def training_curve(canvas):
    steps = np.arange(1, 401)
    refinement = 0.31 + 0.38 * np.exp(-steps / 45) + 0.00003 * np.maximum(steps - 260, 0)
    calibration = 0.02 * np.exp(-steps / 30) + 1.2e-6 * np.maximum(steps - 70, 0) ** 2
    TrainingCurveDisplay(
        steps,
        risk=refinement + calibration,
        calibration=calibration,
        refinement=refinement,
        chosen=int(steps[refinement.argmin()]),
    ).plot(canvas.subplots())


def reliability(canvas):
    ax = canvas.subplots()
    p = np.linspace(0.03, 0.97, 12)
    ax.plot([0, 1], [0, 1], color=PALETTE["axis"], linewidth=0.8, linestyle="--")
    ax.plot(
        p, p + 0.5 * p * (1 - p) * (2 * p - 1), "o-", color=PALETTE["refinement"], label="before"
    )
    ax.plot(p, p, "o-", color=PALETTE["calibration"], label="after")
    ax.set(xlabel="predicted probability", ylabel="observed frequency", xlim=(0, 1), ylim=(0, 1))
    ax.grid(color=PALETTE["grid"], linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend()


def bars(canvas):
    """Bars, a hatch and an image: the parts of SVG that refer to each other by id."""
    left, right = canvas.subplots(1, 2, width_ratios=(3, 1))
    left.bar(["risk", "calibration", "refinement"], [0.42, 0.09, 0.33], color=PALETTE["risk"])
    left.bar(["risk"], [0.09], color="none", edgecolor=PALETTE["calibration"], hatch="///")
    left.set_ylabel("log loss")
    left.spines[["top", "right"]].set_visible(False)
    right.imshow(np.arange(12).reshape(4, 3), cmap="viridis")
    right.set(xticks=[], yticks=[], title="errors")


def letters_table():
    rows = [(letter, 700 + 13 * i % 97, 0.99 - 0.01 * i, 0.31 * 1.1**i / 10, 1 / (i + 3))
            for i, letter in enumerate(LETTERS)]  # fmt: skip
    columns = ["letter", "rows", Column("accuracy", percent=True), "log loss",
               Column("calibration", help="what recalibration alone would gain")]  # fmt: skip
    return Table("Every class", columns, rows, note="The hardest letters are H and K.")


def names_table():
    rows = [
        (LONG, "number", 0, 48_842, 0.1234, None),
        (HOSTILE, "category", 17, 9, float("nan"), "a & b"),
        ("größe \N{GREEK SMALL LETTER BETA}", "number", 2_799, 12_345_678, -0.00001, ""),
        ("x" * 200, "unused", None, 1, float("inf"), "constant, so it says nothing about the target"),
    ]  # fmt: skip
    columns = ["column", "kind", "missing", "distinct", Column("importance", digits=4), "remark"]
    return Table("Columns of the table", columns, rows)


def models_table():
    metrics = [
        "risk",
        "calibration",
        "refinement",
        "Brier score",
        "accuracy",
        "AUROC",
        "smooth ECE",
    ]
    rows = [
        (
            f"model {i}",
            *(round(0.1 + 0.07 * ((i * 7 + j * 5) % 11), 4) for j in range(len(metrics))),
        )
        for i in range(1, 7)
    ]
    return Table("Models side by side", ["model", *metrics], rows)


def sample_page():
    sections = (
        Section(
            "Training",
            (
                "The loss on held-out rows is lowest at step 164, because from there on the model grows too "
                "sure of itself. What it knows keeps growing until step 260: that excess of confidence can "
                "be taken away afterwards, knowledge cannot be added.",
            ),
            (Figure(training_curve, "Loss on held-out rows while training",
                    "The gap between risk and refinement is the calibration error.",
                    "Risk is lowest at step 164, refinement at step 260."),),
        ),
        Section("Can the probabilities be trusted?", ("On the diagonal, 70 % means 70 %.",),
                (Figure(reliability, "Reliability", "Before and after temperature scaling.",
                        "Before: an S around the diagonal; after: on the diagonal.", wide=(5.4, 4.0)),)),
        Section("Where the loss comes from", (),
                (Figure(bars, "Terms", "", f"Bars for {HOSTILE}."), letters_table())),
        Section("Models", ("All on the same rows.",), (models_table(),)),
        Section("Columns", (f"The column {LONG} was kept; {HOSTILE} was not.",), (names_table(),)),
    )  # fmt: skip
    return Page(
        "letter.csv, target “letter”",
        "Stopping on refinement and calibrating afterwards lowers the log loss by 7.3 %.",
        (
            Card("log loss on test rows", 0.2163, "0.2334 when stopped on loss"),
            Card("gain", "7.3 %", "95 % interval: 5.9 % to 8.7 %"),
            Card("accuracy", "94.1 %", "5 000 rows, 26 classes"),
            Card("temperature", 1.412, "the model was too sure of itself"),
        ),
        (
            "How sure: over 5 000 test rows the gain is 0.0171 ± 0.0017 (one standard error), so chance does "
            "not explain it.",
            "What to do: use the saved model as it is. Its probabilities can be compared with costs.",
            f"Have a look at the column {HOSTILE}.",
        ),
        sections,
        {
            "version": "refinecal 0.1.0",
            "command": "refinecal fit letter.csv --target letter --tune 20 --seed 0 -o runs/letter",
            "data": "letter.csv, 20 000 rows, 17 columns, sha256 " + "0123456789abcdef" * 4,
            "seed": "0",
            "date": "2025-02-01 12:00",
        },
    )
