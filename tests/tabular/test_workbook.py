"""Spreadsheets: the same columns as in CSV, and clear errors for what only looks like a table."""

import datetime as dt
import zipfile
from functools import partial
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa
import pytest
from command_runs import invoke
from made_tables import mixed, write_csv

from refinecal.cli.app import app
from refinecal.tabular.files import create_table, open_table
from refinecal.tabular.schema import Schema
from refinecal.tabular.workbook import Workbook

pytest.importorskip("python_calamine")
run = partial(invoke, app)
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
LINKS = "http://schemas.openxmlformats.org/package/2006/relationships"
STYLES = (  # the second style is that of dates
    '<fonts count="1"><font/></fonts><fills count="1"><fill/></fills><borders count="1"><border/></borders>'
    '<cellStyleXfs count="1"><xf/></cellStyleXfs>'
    '<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="22" applyNumberFormat="1"/></cellXfs>'
)


def cell(value):
    """Return a cell as XML: by ECMA-376, independent of the reader and of any library."""
    if value is None:
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float):
        return f"<c><v>{value!r}</v></c>"
    if isinstance(value, dt.datetime):
        days = (value - dt.datetime(1899, 12, 30)) / dt.timedelta(days=1)
        return f'<c s="1"><v>{days!r}</v></c>'
    if value.startswith("#"):
        return f'<c t="e"><v>{value}</v></c>'
    return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'


def write_xlsx(path, *sheets, merged=()):
    """Write sheets, each a pair of a name and rows."""
    files = {"xl/styles.xml": f'<styleSheet xmlns="{MAIN}">{STYLES}</styleSheet>'}
    books, links, types = (
        "",
        f'<Relationship Id="s" Type="{OFFICE}/styles" Target="styles.xml"/>',
        "",
    )
    for i, (name, rows) in enumerate(sheets):
        body = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
        spans = "".join(f'<mergeCell ref="{each}"/>' for each in merged)
        spans = f"<mergeCells>{spans}</mergeCells>" if merged else ""
        files[f"xl/s{i}.xml"] = (
            f'<worksheet xmlns="{MAIN}"><sheetData>{body}</sheetData>{spans}</worksheet>'
        )
        books += f'<sheet name={quoteattr(name)} sheetId="{i + 1}" r:id="r{i}"/>'
        links += f'<Relationship Id="r{i}" Type="{OFFICE}/worksheet" Target="s{i}.xml"/>'
        kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
        types += f'<Override PartName="/xl/s{i}.xml" ContentType="{kind}.worksheet+xml"/>'
    files["xl/workbook.xml"] = (
        f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{books}</sheets></workbook>'
    )
    files["xl/_rels/workbook.xml.rels"] = f'<Relationships xmlns="{LINKS}">{links}</Relationships>'
    files["_rels/.rels"] = (
        f'<Relationships xmlns="{LINKS}"><Relationship Id="w" Type="{OFFICE}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>'
    )
    files["[Content_Types].xml"] = (
        f'<Types xmlns="{TYPES}"><Default Extension="xml" ContentType="application/xml"/>{types}</Types>'
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{content}')
    return path


def cells_of(table):
    return [table.column_names, *(list(row.values()) for row in table.to_pylist())]


NOON = dt.datetime(2024, 2, 29, 12)


def test_cells_become_columns_of_one_type(tmp_path):
    rows = [
        ["n", "x", "when", "flag", "mix", " name ", None, 2024],
        [1, 1.5, NOON, True, "a", "#N/A", "u", 1e300],
        [],
        [-2, None, None, False, 3, "é <&>", None, 2],
        [2**60, "#DIV/0!", NOON, None, True, "7", None, 0.5],
    ]
    source = open_table(write_xlsx(tmp_path / "t.xlsx", ("s", rows)))
    assert source.names == ["n", "x", "when", "flag", "mix", "name", "column 7", "2024"]
    table = source.read()
    assert table.to_pydict() == {
        "n": [1, -2, 2**60],
        "x": [1.5, None, None],
        "when": [NOON, None, NOON],
        "flag": [True, False, None],
        "mix": ["a", "3", "True"],
        "name": [None, "é <&>", "7"],
        "column 7": ["u", None, None],
        "2024": [1e300, 2, 0.5],
    }
    assert table.schema.field("when").type == pa.timestamp("us")
    parts = list(source.chunks(["x", "n"], 2))
    assert [part.num_rows for part in parts] == [2, 1]
    assert parts[0].column_names == ["x", "n"]


def test_whole_numbers_are_integers_and_codes_with_zeros_stay_text(tmp_path):
    rows = [["a", "code"], [3, "007"], [4, "12"], [None, "013"]]
    table = open_table(write_xlsx(tmp_path / "t.xlsx", ("s", rows))).read()
    assert table.schema.types == [pa.int64(), pa.string()]
    assert table["code"].to_pylist() == ["007", "12", "013"]


def test_a_sheet_means_what_a_text_file_does(tmp_path):
    data = mixed(300)
    sheet = write_xlsx(tmp_path / "t.xlsx", ("s", cells_of(data)))
    text = write_csv(data, tmp_path / "t.csv")
    first, second = (
        Schema.infer(open_table(path).read(), "kind", weight="weight") for path in (sheet, text)
    )
    kinds = [(c.name, c.kind, c.categories) for c in first.columns]
    assert kinds == [(c.name, c.kind, c.categories) for c in second.columns]
    assert first.classes == second.classes
    tables = (open_table(path).read() for path in (sheet, text))
    one, two = (first.encode(table) for table in tables)
    assert one.equals(two)


def test_sheets_by_name(tmp_path):
    sheets = [("First one", [["a"], [1]]), ("Data", [["b"], [2]])]
    path = write_xlsx(tmp_path / "t.xlsx", *sheets)
    with pytest.warns(RuntimeWarning, match="has 2 sheets, of which 'First one' is read"):
        assert open_table(path).names == ["a"]
    assert open_table(path, sheet="Data").names == ["b"]
    with pytest.raises(ValueError, match=r"sheet is 'Dat', but .* Did you mean 'Data'\?"):
        open_table(path, sheet="Dat")
    with pytest.raises(ValueError, match="is not a spreadsheet: leave it out"):
        open_table(write_csv(mixed(5), tmp_path / "t.csv"), sheet="Data")


@pytest.mark.parametrize(
    ("rows", "merged", "message"),
    [
        ([["a", "b", "c"], [1, None, 3]], ["A2:B2"], "the cells A2:B2 are merged: unmerge them"),
        ([["Report"], ["a", "b"]], ["A1:B1"], "the cells A1:B1 are merged"),
        ([["Report"], ["a", "b", "c"], [1, 2, 3]], [], "first line has values in 1 of 3 columns"),
        ([["a", "b"]], [], "has columns but no rows"),
        ([["a", "a"], [1, 2]], [], "more than one column called 'a'"),
        ([], [], "has no value in the sheet"),
    ],
)
def test_what_is_no_table_is_an_error(tmp_path, rows, merged, message):
    path = write_xlsx(tmp_path / "t.xlsx", ("s", rows), merged=merged)
    with pytest.raises(ValueError, match=message):
        open_table(path)


def test_merged_cells_without_a_value_and_columns_without_any_do_not_matter(tmp_path):
    rows = [["a", None, "b"], [1, None, 2], [None, None, None], [None, None, None]]
    path = write_xlsx(tmp_path / "t.xlsx", ("s", rows), merged=["A3:C4"])
    assert open_table(path).read().to_pydict() == {"a": [1], "b": [2]}


def test_a_file_of_another_format_and_writing(tmp_path):
    path = tmp_path / "t.xlsx"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="cannot be read as a spreadsheet"):
        Workbook(path)
    with pytest.raises(ValueError, match="read but not written"), create_table(path):
        raise AssertionError


def test_commands_read_sheets_and_pipes_of_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = mixed(200).drop_columns(["weight", "family"])
    rows = cells_of(data)
    write_csv(data, tmp_path / "table.csv")
    write_xlsx(tmp_path / "table.xlsx", ("notes", [["x"], [1]]), ("rows", rows))
    write_xlsx(tmp_path / "one.xlsx", ("rows", rows))
    fast = ["--model", "logistic", "--folds", "1", "--max-steps", "4", "--threads", "1", "-q"]
    run("fit", "table.xlsx", "--sheet", "rows", "-t", "kind", *fast)
    run("predict", "table-run", "table.csv", "-o", "expected.csv")
    run("predict", "table-run", "table.xlsx", "--sheet", "rows", "-o", "found.csv")
    expected = (tmp_path / "expected.csv").read_text()
    assert (tmp_path / "found.csv").read_text() == expected
    content = (tmp_path / "one.xlsx").read_bytes()
    assert run("predict", "table-run", "-", "-o", "-", input=content)[0] == expected
    _, err = run("predict", "table-run", "table.xlsx", "--sheet", "rwos", "-o", "x.csv", code=1)
    assert "--sheet is 'rwos', but table.xlsx has 'notes', 'rows'. Did you mean 'rows'?" in err
    predicted = cells_of(open_table("expected.csv").read())
    write_xlsx(tmp_path / "p.xlsx", ("p", predicted))
    shown, _ = run("evaluate", "p.xlsx", "-t", "kind", "--sheet", "p")
    assert shown.startswith("p.xlsx: 200 rows")
