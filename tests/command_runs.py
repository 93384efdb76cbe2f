"""Commands run in this process: what they print, and with what code they end."""

from rich.cells import cell_len
from typer.testing import CliRunner


def run_command(app, *arguments, code=0, columns=80):
    """Run a command; return what it printed on stdout, and on stderr in one line.

    It must end with the code, without an error that Python shows, and fit into the columns.
    """
    result = CliRunner().invoke(
        app, [str(each) for each in arguments], env={"COLUMNS": str(columns), "NO_COLOR": "1"}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    assert all(cell_len(line) <= columns for line in result.stdout.splitlines() if line[:1] != "{")
    return result.stdout, " ".join(result.stderr.replace("│", " ").split())
