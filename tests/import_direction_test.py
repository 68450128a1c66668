"""Imports go one way: graphs <- rewrite <- tfplace; and --help must not import TensorFlow."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = {"graphs": {"rewrite", "tfplace"}, "rewrite": {"tfplace"}, "tfplace": set()}


def imported_packages(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{path}: a relative import hides where it leads"
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_a_package_imports_only_what_lies_below_it(package):
    files = list((ROOT / package).rglob("*.py"))
    assert len(files) > 3
    for path in files:
        wrong = set(imported_packages(path)) & (FORBIDDEN[package] | {"tests"})
        assert not wrong, f"{path} imports {wrong}"


def test_help_imports_neither_tensorflow_nor_numba():
    code = (
        "import sys; from tfplace.cli import main; main(['--help']); main(['optimize', '--help']);"
        "heavy = {'tensorflow', 'numba', 'scipy', 'keras'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
