"""Tables through files: every format, odd text files, damaged ones, writing whole or not at all."""

import csv
import gzip
import os
import stat
import subprocess
import sys
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from full_disk import small_files
from hypothesis import given
from hypothesis import strategies as st

from refinecal.tabular.files import create_table, open_table

TEXT_ENDINGS = [".csv", ".tsv", ".txt", ".csv.gz", ".csv.zst", ".csv.bz2", ".tsv.gz", ".TSV.GZ"]
TYPED_ENDINGS = [".parquet", ".pq", ".feather", ".arrow", ".ipc"]
TABLE = pa.table({"a": [1.5, None, 0.1 + 0.2], "b": ["x", 'say "hi", twice', "line\nbreak"]})


def written(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def rows_of(path, **options):
    """Return the rows of a table as tuples."""
    table = open_table(path, **options).read()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


# ---- formats ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", TEXT_ENDINGS)
def test_text_comes_back_as_text(tmp_path, ending):
    path = tmp_path / f"table{ending}"
    with create_table(path) as out:
        out.write(TABLE.slice(0, 1))
        out.write(TABLE.slice(1))
    source = open_table(str(path))
    found = source.read()
    assert source.names == ["a", "b"]
    assert set(found.schema.types) == {pa.string()}
    assert [None if v is None else float(v) for v in found["a"].to_pylist()] == TABLE[
        "a"
    ].to_pylist()
    assert found["b"].to_pylist() == TABLE["b"].to_pylist()


@pytest.mark.parametrize("ending", TYPED_ENDINGS)
def test_types_come_back_as_they_are(tmp_path, ending):
    path = tmp_path / f"table{ending}"
    table = TABLE.append_column("c", pa.array(["x", "y", "x"]).dictionary_encode())
    table = table.append_column("d", pa.array([[1], [], None]))
    table = table.append_column("e", pa.array([Decimal("1.20"), None, Decimal("3.00")]))
    with create_table(path) as out:
        out.write(table)
    found = open_table(path).read()
    assert found.schema.names == table.schema.names
    assert found.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("compress", [gzip.compress, lambda data: data])
def test_bytes_tell_the_compression_not_the_name(tmp_path, compress):
    for name in ("a.csv", "a.csv.gz"):
        assert rows_of(written(tmp_path / name, compress(b"a,b\n1,2\n"))) == [("1", "2")]


def test_pandas_reads_what_is_written(tmp_path):
    for name in ("t.csv.gz", "t.tsv", "t.csv.zst"):
        path = tmp_path / name
        with create_table(path) as out:
            out.write(TABLE)
        if name.endswith("zst"):
            with pa.input_stream(path, compression="zstd") as file:
                found = pd.read_csv(file)
        else:
            found = pd.read_csv(path, sep="\t" if "tsv" in name else ",")
        assert found["b"].tolist() == TABLE["b"].to_pylist()
        np.testing.assert_array_equal(found["a"], [1.5, np.nan, 0.1 + 0.2])


def test_the_index_of_pandas_is_not_a_column(tmp_path):
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=[7, 5, 6])
    frame.to_parquet(tmp_path / "a.parquet")
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table := pa.Table.from_pandas(frame).schema) as out,
    ):
        out.write_table(pa.Table.from_pandas(frame))
    assert "__index_level_0__" in table.names
    for name in ("a.parquet", "a.arrow"):  # the second is a stream, not a file
        source = open_table(tmp_path / name)
        assert source.names == ["a"]
        assert source.read().to_pydict() == {"a": [1, 2, 3]}


def test_columns_come_in_the_order_asked_for(tmp_path):
    table = pa.table({"a": [1, 2], "a.b": [3, 4], "c": [5, 6]})
    for ending in (".csv", ".parquet", ".feather"):
        with create_table(tmp_path / f"t{ending}") as out:
            out.write(table)
        source = open_table(tmp_path / f"t{ending}")
        assert source.read(["c", "a"]).column_names == ["c", "a"]
        assert [int(v.as_py()) for v in source.read(["a"])["a"]] == [1, 2]
        with pytest.raises(ValueError, match=r"no such column\. Did you mean 'a.b'\?"):
            source.chunks(["a,b"])
        with pytest.raises(ValueError, match="columns is empty"):
            source.chunks([])


cells = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=6
)


@given(
    st.lists(st.tuples(cells, cells), min_size=1, max_size=8),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_whatever_the_csv_module_writes_is_read(tmp_path, rows, delimiter, newline, encoding):
    """The oracle is Python's own reader and writer of CSV."""
    path = tmp_path / "t.csv"
    with path.open("w", newline="", encoding=encoding) as file:
        out = csv.writer(file, delimiter=delimiter, lineterminator=newline, quoting=csv.QUOTE_ALL)
        out.writerow(["one", "two"])
        out.writerows(rows)
    found = [tuple(v or "" for v in row) for row in rows_of(path, delimiter=delimiter)]
    gone = {"", "?", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "NAN", "-NaN", "-nan"}
    gone |= {"null", "NULL", "Null"}
    assert found == [tuple("" if v in gone else v for v in row) for row in rows]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 50))
def test_chunks_have_the_rows_asked_for(tmp_path, batches, rows):
    if sum(batches) == 0:
        batches = [*batches, 1]
    table = pa.table({"a": np.arange(sum(batches)), "b": np.arange(sum(batches)) / 7})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as out:
        start = 0
        for n in batches:
            out.write_table(table.slice(start, n))
            start += n
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=13)
    pacsv.write_csv(table, tmp_path / "t.csv")
    for ending in ("arrow", "parquet", "csv"):
        chunks = list(open_table(tmp_path / f"t.{ending}").chunks(rows=rows))
        full, rest = divmod(table.num_rows, rows)
        assert [chunk.num_rows for chunk in chunks] == [rows] * full + [rest] * (rest > 0)
        values = [int(v) for chunk in chunks for v in chunk["a"].to_pylist()]
        assert values == list(range(table.num_rows))


# In a process of its own, where tracing begins before Arrow's threads do and is never stopped.
MEASURE = """
import os, sys, tracemalloc
tracemalloc.start()
import pyarrow as pa
from refinecal.tabular.files import open_table
chunks = open_table(sys.argv[1]).chunks(rows=10_000)
before, most, rows = pa.total_allocated_bytes(), 0, 0
tracemalloc.reset_peak()
start = tracemalloc.get_traced_memory()[0]
for chunk in chunks:
    rows += chunk.num_rows
    most = max(most, pa.total_allocated_bytes() - before)
print(rows, most + tracemalloc.get_traced_memory()[1] - start, flush=True)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
def test_memory_is_that_of_some_chunks(tmp_path, ending):
    """A table of 64 MB, or 150 MB of text, is read in less than 56 MB.

    Most of it are 32 blocks of text; the other formats need less than 16 MB.
    """
    path = tmp_path / f"t{ending}"
    with create_table(path) as out:
        for seed in range(400):
            values = np.random.default_rng(seed).normal(size=(10_000, 2))
            out.write(pa.table({"a": values[:, 0], "b": values[:, 1]}))
    limit = (56 if ending == ".csv" else 16) << 20
    found = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True
    )
    rows, most = map(int, found.stdout.split())
    assert rows == 4_000_000
    assert most < limit


def test_a_reader_that_is_left_early_leaves_nothing_open(tmp_path):
    path = written(tmp_path / "t.csv", "a,b\n" + "1,2\n" * 3_000_000)
    chunks = open_table(path).chunks(rows=10)
    assert next(chunks).num_rows == 10
    chunks.close()
    os.remove(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "runs"),
    [
        (
            "from refinecal.cli import main; sys.argv[1:1] = ['evaluate', '--target', 'no']; main()",
            8,
        ),
        (
            "chunks = open_table(path).chunks(rows=10); next(chunks); cycle = [chunks]; cycle += [cycle]",
            4,
        ),
    ],
)
def test_python_may_end_whatever_is_being_read(tmp_path, code, runs):
    """A thread of pyarrow that still had our file would abort the process, in one of four runs or so."""
    path = written(tmp_path / "t.csv", "a,b\n" + "1.2345,2\n" * 3_000)
    code = f"import sys; from refinecal.tabular.files import open_table; path = sys.argv[1]; {code}"
    command = [sys.executable, "-c", code, str(path)]
    for _ in range(runs):
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode in (0, 1), found.stderr  # 1: of the error
        assert "terminate called" not in found.stderr


def test_a_table_with_very_long_rows(tmp_path):
    """A row of 3 MB: there are 200 000 columns."""
    n = 200_000
    line = ",".join(f"{i / 7:.12f}" for i in range(n))
    names = ",".join(f"c{i}" for i in range(n))
    source = open_table(written(tmp_path / "t.csv", f"{names}\n{line}\n{line}\n"))
    found = source.read(["c0", f"c{n - 1}"])
    assert found.num_rows == 2
    assert float(found[f"c{n - 1}"][1].as_py()) == pytest.approx((n - 1) / 7)


# ---- odd text files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a;b\n1,5;2\n3,5;4\n", [("1,5", "2"), ("3,5", "4")]),
        ("a|b\n1|2\n", [("1", "2")]),
        ("a\tb\nx, y\tz; z\n", [("x, y", "z; z")]),
        ("a,b\n1;2;3,4\n5;6,7\n", [("1;2;3", "4"), ("5;6", "7")]),
        ('a,b\n"1;1",2\n"3;3",4\n', [("1;1", "2"), ("3;3", "4")]),
        ('"a;x","b;y"\n"1;1","2;1"\n', [("1;1", "2;1")]),
        ("sep=;\r\na;b\r\n1,1;2,2\r\n", [("1,1", "2,2")]),
        ("a,b\r\n1,2\r\n", [("1", "2")]),
        ("a,b\r1,2\r3,4\r", [("1", "2"), ("3", "4")]),
        ("\n\na,b\n\n1,2\n\n\n", [("1", "2")]),
        ("a,b\n1,2", [("1", "2")]),
        ('a,"b\nc"\n1,"2\r\n3"\n', [("1", "2\r\n3")]),
        ('a,b\n1,"x ""y"" z"\n', [("1", 'x "y" z')]),
        ('a,b\n5" pipe,2\n', [('5" pipe', "2")]),
        ('a,b\nNA,"NA"\n?,""\n,None\n', [(None, None), (None, None), (None, "None")]),
        ("a\n1\n\n3\n", [("1",), (None,), ("3",)]),
        ('a,b\n1,"x\ny"\n\n\n\n\n\n\n\n\n\n\n', [("1", "x\ny")]),
    ],
)
def test_text_of_all_kinds(tmp_path, text, rows):
    assert rows_of(written(tmp_path / "t.csv", text)) == rows


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("a, b ,c", ["a", "b", "c"]),
        (",b,", ["column 1", "b", "column 3"]),
        ('"a, x","b ""q""","c\nd"', ["a, x", 'b "q"', "c\nd"]),
        ('a,b,"c"', ["a", "b", "c"]),
        ("größe,λ,名", ["größe", "λ", "名"]),
    ],
)
def test_names(tmp_path, header, names):
    source = open_table(written(tmp_path / "t.csv", f"{header}\n1,2,3\n"))
    assert source.names == names
    assert source.read().to_pydict() == dict(zip(names, (["1"], ["2"], ["3"]), strict=True))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_encodings_that_are_certain(tmp_path, encoding):
    bom = "\ufeff" if encoding == "utf-16-le" else ""
    path = written(tmp_path / "t.csv", f"{bom}größe,b\n€ä,😀\n".encode(encoding))
    assert open_table(path).read().to_pydict() == {"größe": ["€ä"], "b": ["😀"]}


@pytest.mark.parametrize("lines", [0, 500_000])
def test_western_text_is_read_with_a_warning(tmp_path, lines):
    """Also if the first letter that tells comes after many megabytes."""
    data = "a,b\n" + "1,2\n" * lines + "Café,“5 €”\n"
    path = written(tmp_path / "t.csv", data.encode("cp1252"))
    with pytest.warns(UserWarning, match=r"t\.csv is not UTF-8: it is read as Windows-1252"):
        table = open_table(path).read()
    assert table.slice(lines).to_pydict() == {"a": ["Café"], "b": ["“5 €”"]}


@pytest.mark.parametrize("data", [b"a,b\n\xc3\xa9,1\n\xe9,2\n", b"a,b\n\xe9\x81,1\n"])
def test_text_of_mixed_encodings_is_refused(tmp_path, data):
    path = written(tmp_path / "t.csv", data)
    with pytest.raises(ValueError, match=r"t\.csv is neither UTF-8 nor Windows-1252 throughout"):
        open_table(path).read()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_long_text_is_not_cut_within_a_letter(tmp_path, encoding):
    text = "aé€😀" * 700_000
    rows = [text[i : i + 1000] for i in range(0, len(text), 1000)]
    data = "a,b\n" + "".join(f"{row},1\n" for row in rows)
    path = written(tmp_path / "t.csv", data.encode(encoding))
    assert open_table(path).read()["a"].to_pylist() == rows


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("a;b\n1,5;2\n", {"a": ","}),
        ("a\tb\n1,5\t2.5\n", {"a": ",", "b": "."}),
        ('a,b\n"1,5",2\n', {"a": ","}),
        ("a,b\n1.5,x\n", {"a": "."}),
        ("a;b\n1;2\n", {}),
    ],
)
def test_decimal_marks_are_found(tmp_path, text, marks):
    path = written(tmp_path / "a.csv", text)
    assert open_table(path).format.decimals.marks == marks
    assert [open_table(path, decimal=given).format.decimals.given for given in ",."] == [",", "."]
    with pytest.raises(ValueError, match=r"decimal is 'x': it must be '\.' or ','"):
        open_table(path, decimal="x")


def test_a_very_long_cell_hides_nothing(tmp_path):
    text = 'x;t\n1,5;"' + "word " * 40_000 + '"\n2,5;b\n'
    before = csv.field_size_limit()
    source = open_table(written(tmp_path / "a.csv", text))
    assert (source.format.delimiter, source.format.decimals.marks) == (";", {"x": ","})
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("text", ['"sep=;"\na;b\n1;2\n', "BZhello;b\n1;2\n"])
def test_odd_beginnings(tmp_path, text):
    assert rows_of(written(tmp_path / "a.csv", text)) == [("1", "2")]


def test_bytes_of_0_are_found_wherever_they_are(tmp_path):
    with pytest.raises(ValueError, match="is not a text file"):
        open_table(written(tmp_path / "a.csv", b"a,b\n" + b"1,2\n" * 1_500_000 + b"\0,1\n"))


def test_tsv_has_tabs_whatever_else_there_is(tmp_path):
    assert rows_of(written(tmp_path / "t.tsv", "a,b\n1,2\n")) == [("1,2",)]
    assert rows_of(written(tmp_path / "u.tsv", "a,b\n1,2\n"), delimiter=",") == [("1", "2")]
    for given_name in ("tab", "\\t", "\t"):
        assert rows_of(written(tmp_path / "u.csv", "a,x\tb\n1\t2\n"), delimiter=given_name) == [
            ("1", "2")
        ]


# ---- bad files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.csv", b"", r"t\.csv is empty \(0 bytes\)"),
        ("t.csv", b"\n \n", r"t\.csv is empty: it needs a line of column names"),
        ("t.csv", b"\xef\xbb\xbf", r"t\.csv is empty"),
        ("t.csv.gz", gzip.compress(b"", mtime=0), r"t\.csv\.gz is empty"),
        ("t.csv", b"a,b\n", r"t\.csv has columns but no rows"),
        ("t.csv", b"a,b", r"t\.csv has columns but no rows"),
        ("t.csv", b"a,b\n\n\n", r"t\.csv has columns but no rows"),
        (
            "t.csv",
            b"a,b,a,b,c\n1,2,3,4,5\n",
            r"more than one column called 'a', 'b': rename all but one",
        ),
        ("t.csv", b"1,1,2\n1,2,3\n", r"called '1'.*If the first line holds data and not names"),
        ("t.csv", b"a,b\n1,2\n3,4\n5\n", r"t\.csv, row 3: 1 value, but 2 names.*the row is '5'"),
        ("t.csv", b"a,b\n1,2\n3,4,5\n", r"row 2: 3 values, but 2 names.*Put values that contain"),
        ("t.csv", b"a,b\nr1,1,2\nr2,3,4\n", r"row 1: 3 values.*If the rows begin with their names"),
        ("t.csv", b'a,b\n1,"2\n3,4\n5,6\n', r"ends within quotes, which begin with '2\\n3,4"),
        ("t.csv", b'a,b\n1,"2\n' + b"3,4\n" * 4_000_000, r"more than 1 MB: most likely a quote"),
        ("t.csv", b'"a,b\n' + b"3,4\n" * 2_000_000, r"no line of column names"),
        ("t.csv", b"PAR1\0\0\0", r"t\.csv is not a text file"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16-le"), r"is not a text file.*in UTF-8"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16")[:-1], r"begins as UTF-16 but is not"),
        (
            "t.csv.gz",
            gzip.compress(b"a,b\n1,2\n" * 100, mtime=0)[:-9],
            r"cannot be decompressed: it is cut off",
        ),
        (
            "t.csv.gz",
            gzip.compress(os.urandom(1 << 16).hex().encode())[:9999],
            "cannot be decompressed",
        ),
        (
            "t.parquet",
            b"PAR1 and nothing more",
            r"t\.parquet cannot be read as Parquet: it is cut off",
        ),
        ("t.parquet", b"a,b\n1,2\n", r"cannot be read as Parquet.*another format than its ending"),
        ("t.feather", b"ARROW1\0\0 nothing", r"t\.feather cannot be read as Arrow or Feather"),
        ("t.feather", b"FEA1 old", r"Feather file of the old version 1.*write it again"),
        ("t.arrow", b"a,b\n1,2\n", r"cannot be read as Arrow"),
        (
            "t.xlsx",
            b"PK",
            r"ends in '\.xlsx', which is not known: tables end in \.csv.*Save the sheet",
        ),
        ("t.zip", b"PK", r"ends in '\.zip'.*Unpack it"),
        ("t.gz", b"x", r"ends in '\.gz'.*Give it the ending"),
        ("t.pkl", b"x", r"Pickles may run code"),
        ("t", b"x", r"ends in 'nothing'"),
        ("t.parquet.gz", b"x", r"\.parquet files are compressed inside"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path, name, data, message):
    path = written(tmp_path / name, data)
    with pytest.raises(ValueError, match=f"(?s){message}") as error:
        open_table(path).read()
    assert str(path) in str(error.value)


@pytest.mark.parametrize("ending", [".parquet", ".feather"])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_files_cut_off_are_refused(tmp_path, ending, part):
    path = tmp_path / f"t{ending}"
    with create_table(path) as out:
        out.write(pa.table({"a": np.random.default_rng(0).normal(size=10_000)}))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(ValueError, match="cut off, damaged"):
        open_table(path).read()


def test_a_cut_off_in_the_middle_shows_when_it_is_reached(tmp_path):
    rows = "".join(f"{v},1\n" for v in np.random.default_rng(0).normal(size=200_000))
    data = gzip.compress(f"a,b\n{rows}".encode(), mtime=0)
    path = written(tmp_path / "t.csv.gz", data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"t\.csv\.gz cannot be decompressed"):
        open_table(path).read()


def test_parquet_without_rows_or_with_names_twice(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="has columns but no rows"):
        open_table(tmp_path / "a.parquet")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    for ending, write in (("parquet", pq.write_table), ("feather", feather.write_feather)):
        path = tmp_path / f"b.{ending}"
        if ending == "feather":
            with pa.ipc.new_file(path, twice.schema) as out:
                out.write_table(twice)
        else:
            write(twice, path)
        with pytest.raises(ValueError, match="more than one column called 'x'"):
            open_table(path)


def test_missing_files_suggest_a_near_name(tmp_path):
    written(tmp_path / "customers.csv", "a\n1\n")
    with pytest.raises(
        FileNotFoundError, match=r"costumers\.csv does not exist\. Did you mean 'customers\.csv'\?"
    ):
        open_table(tmp_path / "costumers.csv")
    with pytest.raises(FileNotFoundError, match=r"nor does the folder .*nowhere"):
        open_table(tmp_path / "nowhere" / "a.csv")
    with pytest.raises(
        ValueError, match=r"is a folder: name a file in it, such as 'customers\.csv'"
    ):
        open_table(tmp_path)


def test_bad_arguments(tmp_path):
    path = written(tmp_path / "t.csv", "a,b\n1,2\n")
    for bad in ("", ",,", '"', "\n", "é"):
        with pytest.raises(ValueError, match="delimiter is .*: it must be one character"):
            open_table(path, delimiter=bad)
    pq.write_table(TABLE, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="not a text file: leave it out"):
        open_table(tmp_path / "t.parquet", delimiter=",")
    with pytest.raises(ValueError, match="rows is 0"):
        open_table(path).chunks(rows=0)


# ---- writing ---------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(allow_nan=False), min_size=1),
    st.sampled_from([".csv", ".tsv.zst", ".feather"]),
)
def test_numbers_lose_nothing(tmp_path, values, ending):
    path = tmp_path / f"t{ending}"
    with create_table(path) as out:
        out.write(pa.table({"a": values, "b": values}))
    assert [float(v) for v in open_table(path).read()["b"].to_pylist()] == values


def interrupt(path):
    with create_table(path) as out:
        out.write(TABLE)
        raise KeyboardInterrupt


def write_all(path, *tables):
    with create_table(path) as out:
        for table in tables:
            out.write(table)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".feather"])
def test_an_error_leaves_nothing_behind_and_the_old_file_alone(tmp_path, ending):
    path = written(tmp_path / f"t{ending}", "old")
    with pytest.raises(KeyboardInterrupt):
        interrupt(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".feather"])
def test_a_full_disk_leaves_nothing_behind_and_names_the_file(tmp_path, ending):
    path = written(tmp_path / f"t{ending}", "old")
    numbers = pa.table({"a": np.random.default_rng(0).random(10_000)})
    with pytest.raises(OSError, match="File too large") as caught, small_files(1000):
        write_all(path, numbers, numbers)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".feather"])
def test_the_file_appears_at_the_end_with_the_usual_permissions(tmp_path, ending):
    path = tmp_path / f"t{ending}"
    usual = written(tmp_path / "usual", b"")
    with create_table(path) as out:
        out.write(TABLE)
        assert not path.exists()
        assert len(os.listdir(tmp_path)) == 2  # the part and the usual
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, "usual"])
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)


def test_a_link_leads_to_the_file_that_is_replaced(tmp_path):
    real = written(tmp_path / "real.csv", "old")
    (tmp_path / "link.csv").symlink_to(real)
    with create_table(tmp_path / "link.csv") as out:
        out.write(TABLE)
    assert (tmp_path / "link.csv").is_symlink()
    assert open_table(real).names == ["a", "b"]


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="the folder .*nowhere does not exist: make it first"
    ):
        write_all(tmp_path / "nowhere" / "a.csv", TABLE)
    with pytest.raises(ValueError, match=r"ends in '\.doc'"):
        write_all(tmp_path / "a.doc", TABLE)
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(ValueError, match=r"d\.csv is a folder"):
        write_all(tmp_path / "d.csv", TABLE)
    with pytest.raises(ValueError, match="'l' holds list<.*>, which CSV cannot: write Parquet"):
        write_all(tmp_path / "a.csv", pa.table({"l": [[1]]}))
    with pytest.raises(ValueError, match=r"columns \['b'\], but .* began with \['a'\]"):
        write_all(tmp_path / "a.csv", pa.table({"a": [1]}), pa.table({"b": [1]}))
    with pytest.raises(ValueError, match="nothing was written"):
        write_all(tmp_path / "a.csv")
    assert os.listdir(tmp_path) == ["d.csv"]


def test_dictionaries_and_large_strings_are_written_as_text(tmp_path):
    table = pa.table(
        {
            "a": pa.array(["x", None, "x"]).dictionary_encode(),
            "b": pa.array(["1", "2", "3"], pa.large_string()),
        }
    )
    with create_table(tmp_path / "t.csv") as out:
        out.write(table)
    assert open_table(tmp_path / "t.csv").read().to_pydict() == {
        "a": ["x", None, "x"],
        "b": ["1", "2", "3"],
    }


def test_reading_warns_of_nothing_else(tmp_path):
    path = written(tmp_path / "t.csv", "a,b\n1,ü\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows_of(path) == [("1", "ü")]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_text_file_is_read_once_to_look_at_it_and_once_to_load_it(tmp_path, monkeypatch, name):
    path = tmp_path / name
    text = "x;y\n" + "1,5;a\n2,5;b\n" * 200_000
    opened = gzip.open if name.endswith(".gz") else open
    with opened(path, "wt") as file:
        file.write(text)
    reads = []

    class Counted:
        def __init__(self, *args, **options):
            self.file = open_stream(*args, **options)
            reads.append(0)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def read(self, size):
            block = self.file.read(size)
            reads[-1] += len(block)
            return block

    open_stream = pa.input_stream
    monkeypatch.setattr(pa, "input_stream", Counted)
    source = open_table(path)
    monkeypatch.setattr(pa, "input_stream", open_stream)
    assert max(reads) == len(text)
    assert (
        sum(reads) - len(text) <= 1 << 20
    )  # the first block of a compressed file tells its encoding
    calls = []
    monkeypatch.setattr(pa, "input_stream", lambda *a, **o: calls.append(a) or open_stream(*a, **o))
    assert source.read().num_rows == 400_000
    assert len(calls) == 1
