"""One command against its rivals: ``python -m benchmarks.one_command --help``.

Every contestant gets the same training rows as a Parquet file and says what it thinks of the same new rows.
Each runs in a process of its own, the rivals in environments of their own.
"""
