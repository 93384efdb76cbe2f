"""The tracer of calls counts right, and the most used calls stay within few files."""

import sys
from importlib import import_module

import pytest
from call_trace import Trace, make_core_calls, trace, trace_warm

import refinecal as rc

# Files of the package that a warm call passes through. These numbers may only fall.
MOST_FILES = {
    "decompose(y, logits=z)": 8,
    "RefinementMonitor.update": 8,
}

SOURCES = {
    "first.py": """
from second import leaf, words

def root():
    return [leaf(x) for x in range(3)]

def fail():
    leaf("a")

def pull():
    return list(words())
""",
    "second.py": """
def leaf(x):
    return down(x) + 1

def down(x):
    return (lambda y: y + 1)(x)

def words():
    yield "a"
""",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder of two modules that call one another."""
    for name, source in SOURCES.items():
        (tmp_path / name).write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in SOURCES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_counts_files_functions_calls_and_depth(folder):
    root = import_module("first").root
    # root, and three times leaf, down and the lambda; the list comprehension belongs to root
    assert trace(root, folder) == Trace(["first.py", "second.py"], 4, 1 + 3 * 3, 4)


def test_code_elsewhere_does_not_count(folder):
    assert trace(lambda: import_module("json").dumps({}), folder) == Trace([], 0, 0, 0)


def test_importing_is_not_a_call(folder):
    assert trace(lambda: import_module("first"), folder) == Trace([], 0, 0, 0)


def test_generators_return_to_the_level_they_came_from(folder):
    first = import_module("first")
    found = trace(lambda: [first.pull(), first.root()], folder)
    assert (found.n_functions, found.depth) == (6, 4)


def test_errors_leave_the_tracer_as_it_was(folder):
    fail, before = import_module("first").fail, sys.getprofile()

    def fail_then_call():
        with pytest.raises(TypeError):
            fail()
        import_module("first").root()

    assert trace(fail_then_call, folder).depth == 4  # the error has unwound every level
    with pytest.raises(TypeError):
        trace(fail, folder)
    assert sys.getprofile() is before


def test_one_function_of_the_package():
    get_loss = rc.losses.get_loss
    assert trace(lambda: get_loss("brier")) == Trace(["losses.py"], 1, 1, 1)


@pytest.mark.parametrize("name", MOST_FILES)
def test_most_used_calls_pass_through_few_files(name):
    found = trace_warm(make_core_calls()[name])
    assert len(found.files) <= MOST_FILES[name], found.files
