"""Imports go one way: graphs <- rewrite <- tfplace; and --help must not import TensorFlow."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# The floors of the house, from the ground up: a room imports only from floors below its own.
FLOORS = (
    {"graphs", "tfplace.units_text", "tfplace.version", "tfplace.budget"},
    {"tfplace.interruption"},
    {"rewrite", "tfplace.grouping", "tfplace.measurement", "tfplace.output_paths"}
    | {"tfplace.simulation"},
    {"tfplace.bounds", "tfplace.search"},
    {"tfplace.preparing", "tfplace.progress"},
    {"tfplace.algorithms"},
    {"tfplace.choosing", "tfplace.proving"},
    {"tfplace.compilation"},
    {"tfplace.report", "tfplace.runs"},
    {"tfplace.fidelity", "tfplace.optimizing"},
    {"tfplace.commands"},
    {"tfplace.api", "tfplace.cli"},
    {"tfplace", "tfplace.__main__"},
    {"tfplace.docs"},  # the script that rewrites the documents
)

# The same within rooms that have rooms of their own. What is not named is a face, above them all.
INSIDE = {
    "rewrite.split": (
        {"states"},
        {"cut_variable"},
        {"effects", "split_step", "constant_folding", "float64", "node_writer"},
        {"functions", "list_facts"},
        {"shape_facts"},
        {"decision"},
        {"rules"},
        {"reading", "decide"},
        {"any_batch", "batch_norm"},
        {"pieces"},
        {"building", "write"},
        {"summary"},
        {"prove"},
        {"prove_split"},
        {"split_model"},
    ),
    "rewrite.split.prove": ({"parts"}, {"ops"}, {"structure", "written", "runs"}),
    "tfplace.choosing": (
        {"baselines", "budget", "forward_model", "kept_search"},
        {"memory_limit", "run_results"},
        {"ties"},
        {"data_parallel", "device_counts", "choose"},
        {"unsplit_baselines"},
        {"find_placement"},
        {"outcomes", "solve"},
        {"scheduling"},
        {"memory"},
        {"shards"},
        {"real_runs"},
    ),
}

# What must not import what, beside the floors. Names are modules or packages; "search.search"
# stands for one file.
NEVER = {
    "tfplace.simulation": ("tensorflow", "graphs.late_tensorflow", "tfplace"),  # but itself
    "tfplace.measurement": ("tfplace.simulation",),
    "tfplace.search.search": ("tfplace.algorithms", "tfplace.simulation", "tfplace.measurement",
                              "tfplace.output_paths", "tfplace.search.kept.folder", "pathlib"),
    "tfplace.algorithms": ("tfplace.measurement", "tfplace.choosing", "tfplace.report"),
    "tfplace.preparing": ("tfplace.choosing",),
    # A proof by the code that it judges would confirm that code's mistakes.
    "rewrite.split.prove": ("rewrite.split.building",),
    "tfplace.proving": ("tfplace.choosing",),
    "tfplace.choosing": ("tfplace.proving",),
}  # fmt: skip

# Only these know the command line's flags.
KNOW_FLAGS = {"tfplace.commands", "tfplace.cli", "tfplace.api"}


def sources():
    """(module, path) of every source file."""
    for package in ("graphs", "rewrite", "tfplace"):
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield module.removesuffix(".__init__"), path


def imports_of(path):
    """Modules that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{path}: a relative import hides where it leads"
            yield node.module


def room_of(module):
    """The folder or file below tfplace/ that a module lies in, or its package."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "tfplace" else parts[0]


def lies_in(module, package):
    return module == package or module.startswith(f"{package}.")


SOURCES = list(sources())
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def test_every_room_has_a_floor_and_every_floor_its_rooms():
    assert {room_of(module) for module, _ in SOURCES} == set(FLOOR_OF)


@pytest.mark.parametrize("room", sorted(FLOOR_OF))
def test_no_arrow_runs_back_up(room):
    wrong = [
        f"{module} imports {name}"
        for module, path in SOURCES
        if room_of(module) == room
        for name in imports_of(path)
        if (other := room_of(name)) in FLOOR_OF
        and other != room
        and FLOOR_OF[other] >= FLOOR_OF[room]
    ]
    assert not wrong


@pytest.mark.parametrize("package", INSIDE)
def test_no_arrow_runs_back_up_inside_a_room(package):
    depth = package.count(".") + 1
    floors = {name: floor for floor, names in enumerate(INSIDE[package]) for name in names}
    files = {m: path for m, path in SOURCES if m.startswith(f"{package}.")}
    assert {module.split(".")[depth] for module in files} == set(floors)
    wrong = [
        f"{module} imports {name}"
        for module, path in files.items()
        for name in imports_of(path)
        if name.startswith(f"{package}.")
        and (mine := module.split(".")[depth]) != (other := name.split(".")[depth])
        and floors[other] >= floors[mine]
    ]
    assert not wrong


@pytest.mark.parametrize("package", NEVER)
def test_what_must_never_be(package):
    files = [(module, path) for module, path in SOURCES if lies_in(module, package)]
    assert files
    wrong = [
        f"{module} imports {name}"
        for module, path in files
        for name in imports_of(path)
        if any(lies_in(name, banned) for banned in NEVER[package]) and not lies_in(name, package)
    ]
    assert not wrong


def test_only_the_face_knows_flags():
    wrong = [m for m, path in SOURCES if "absl" in str(list(imports_of(path)))]
    assert {room_of(module) for module in wrong} <= KNOW_FLAGS


def test_nobody_imports_the_command_line_but_the_face():
    users = {m for m, path in SOURCES if "tfplace.cli" in imports_of(path)}
    assert {room_of(module) for module in users} <= {"tfplace.__main__", "tfplace.api"}


def test_packages_import_no_tests():
    assert not [m for m, path in SOURCES if any(lies_in(n, "tests") for n in imports_of(path))]


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
