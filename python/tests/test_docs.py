"""Docstrings and documents have examples, and they run. The stubs say what the module is."""

import doctest
import inspect
import os
import subprocess
import sys

import inbloom
import inbloom.exceptions
import inbloom.frames
import pytest
from conftest import ROOT, module


def documented():
    """All objects of the package that have a docstring with examples."""
    objects = {"inbloom": inbloom, "isin": inbloom.frames.isin}
    for name in inbloom.__all__:
        value = getattr(inbloom, name)
        objects[name] = value
        if inspect.isclass(value) and not issubclass(value, BaseException):
            objects |= {f"{name}.{key}": member for key, member in vars(value).items()}
    return {
        name: value
        for name, value in objects.items()
        if ">>>" in (getattr(value, "__doc__", None) or "")
    }


@pytest.mark.parametrize("name", documented())
def test_examples_of_docstrings_run(name):
    text = inspect.cleandoc(documented()[name].__doc__)
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 0 and result.failed == 0


def test_everything_public_is_documented():
    assert len(documented()) >= 18, sorted(documented())
    for name in inbloom.__all__:
        assert (getattr(inbloom, name).__doc__ or "").strip(), name
    for name, member in vars(inbloom.Filter).items():
        if not name.startswith("_"):
            assert (member.__doc__ or "").strip(), name


def test_the_exception_tree_is_as_documented():
    for name, exception in vars(inbloom.exceptions).items():
        if inspect.isclass(exception):
            assert issubclass(exception, inbloom.Error) and name in inbloom.exceptions.__doc__


def test_stubs_say_what_the_module_is():
    module("mypy")
    run = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "inbloom", "--ignore-missing-stub", "--concise"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=os.environ.get("TMPDIR", "/tmp"),
    )
    assert run.returncode == 0, run.stdout


def test_documents_run(tmp_path, monkeypatch):
    """The blocks of docs/python.md with prompts, in their order, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("numpy", "pyarrow", "polars", "pandas", "duckdb"):
        module(name)
    text = (ROOT / "docs" / "python.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```pycon\n")[1:]]
    assert len(blocks) >= 5
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "docs/python.md", None, 0)
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert result.attempted > 10 and result.failed == 0


def test_the_example_of_the_readmes_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("README.md", "README.zh-CN.md"):
        block = (ROOT / name).read_text().split("```python\n")[1].split("```")[0]
        names = {}
        exec(block, names)
        assert (
            "alice" in names["seen"] and "carol" in names["seen"] and names["new"] == [True, True]
        )
