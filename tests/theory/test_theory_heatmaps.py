"""Heat maps: cells are what minimise finds, in the right places, however many processes there are."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from refinecal.theory.curves import minimise
from refinecal.theory.heatmaps import PIECE, RATIOS, HeatMap, heatmap, paper_spectra
from refinecal.theory.spectrum import BetaSpectrum, PointSpectrum

LAWS = (BetaSpectrum(1, 5), BetaSpectrum(5, 1))
SMALL = {"spectra": LAWS, "ratios": [0.2, 1.0, 5.0], "bayes_errors": [0.01, 0.2]}


@pytest.fixture(scope="module")
def small():
    return heatmap(**SMALL, processes=1)


def test_each_cell_is_the_problem_of_its_row_and_column(small):
    for place, law in enumerate(LAWS):
        for i, error in enumerate(SMALL["bayes_errors"]):
            for j, ratio in enumerate(SMALL["ratios"]):
                alone = minimise(ratio=ratio, bayes_error=error, spectrum=law)
                for name in ("lam_risk", "lam_calibration", "lam_refinement", "log10_gap", "gain"):
                    cell = small.grid(name)[place, i, j]
                    assert_allclose(cell, getattr(alone, name), rtol=1e-7)


def test_processes_change_nothing_but_the_time(small):
    other = heatmap(**SMALL, processes=2)
    assert list(other.columns) == list(small.columns)
    for name, column in other.columns.items():
        assert_array_equal(column, small.columns[name], strict=True)


def test_the_table_is_in_long_format(small):
    frame = small.to_frame()
    assert len(frame) == 12
    assert frame["spectrum"].tolist() == [law.label for law in LAWS for _ in range(6)]
    assert frame["ratio"].tolist() == SMALL["ratios"] * 4
    assert_allclose(frame["gain"], 1 - frame["refinement_min"] / frame["risk_min"])
    assert (frame["gain_uncalibrated"] <= 0).all()
    assert set(small.to_dict()) == set(frame)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_is_written_is_read_back(small, tmp_path, ending):
    path = tmp_path / f"map.{ending}"
    small.write(path)
    read = pd.read_csv(path) if ending == "csv" else pd.read_parquet(path)
    for name, column in small.columns.items():
        assert_array_equal(read[name].to_numpy(), column)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_progress_counts_cells(small):
    seen = []
    ratios = np.geomspace(0.1, 10, PIECE + 1)
    heatmap(LAWS, ratios, 0.1, processes=1, progress=lambda done, total: seen.append((done, total)))
    assert [total for _, total in seen] == [2 * (PIECE + 1)] * 4
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1][0] == 2 * (PIECE + 1)


def test_the_largest_gains_are_where_informative_features_are_few():
    """The paper's figure 8, a part of it: up to about 10 % with many of them, far more with few."""
    maps = heatmap(ratios=[0.25, 1.0], bayes_errors=[0.01, 0.2], processes=1)
    assert maps.spectra == paper_spectra()
    many, _, few = maps.grid("gain")
    assert 0.1 < many.max() < 0.14
    assert few.max() > 0.2
    gaps = maps.grid("log10_gap")
    assert (gaps[0, 1] > 0).all()
    assert (gaps[2] < 0).all()


def test_the_default_grid_is_the_papers():
    assert len(RATIOS) == 21
    assert_allclose(RATIOS[[0, 10, 20]], [0.1, 1, 10])


def test_other_methods_and_losses_are_mapped_too():
    found = heatmap(LAWS[0], [0.5], [0.1], method="lda", loss="brier", processes=1)
    alone = minimise(ratio=0.5, bayes_error=0.1, spectrum=LAWS[0], method="lda", loss="brier")
    assert_allclose(found.columns["gain"], alone.gain)
    assert (found.method, found.loss) == ("lda", "brier")


def test_a_map_says_what_it_is(small):
    assert isinstance(small, HeatMap)
    assert repr(small).startswith("HeatMap of 0.001 + Beta(1, 5), 0.001 + Beta(5, 1) at 2 Bayes")
    with pytest.raises(KeyError, match="no column 'gains': use one of spectrum, ratio"):
        small.grid("gains")


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"spectra": []}, ValueError, "spectra is empty"),
        ({"spectra": [LAWS[0], 3]}, TypeError, r"spectra\[1\] is a int"),
        ({"ratios": []}, ValueError, r"ratios has shape \(0,\)"),
        ({"ratios": [[1.0]]}, ValueError, r"ratios has shape \(1, 1\)"),
        ({"ratios": [1.0, -2.0]}, ValueError, r"ratios\[1\] is -2"),
        ({"bayes_errors": [0.1, 0.7]}, ValueError, r"bayes_error\[1\] is 0.7"),
        ({"bayes_errors": [np.nan]}, ValueError, r"bayes_errors\[0\] is nan"),
        ({"processes": 0}, ValueError, "processes is 0"),
        ({"processes": 1.5}, ValueError, "processes is 1.5"),
        ({"method": "svm", "processes": 1}, ValueError, "method is 'svm'"),
        ({"spectra": PointSpectrum([1.0]), "loss": "hinge", "processes": 1}, ValueError, "loss"),
    ],
)
def test_bad_questions_are_refused_with_the_reason(options, error, match):
    with pytest.raises(error, match=match):
        heatmap(**(SMALL | options))
