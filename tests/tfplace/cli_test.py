"""The command line in process: help, usage errors, exit statuses, one line on stderr."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from graphs.errors import OutputError
from graphs.zoo import NAMES
from tfplace import cli
from tfplace.algorithms.table import names
from tfplace.algorithms.table import names as algorithms
from tfplace.cli import main
from tfplace.commands.command_table import COMMANDS
from tfplace.commands.outcome import EXIT_DEFECT
from tfplace.commands.parse import parse, verbosity_of


@pytest.mark.parametrize("words", [["--help"], ["help"], ["-h"]])
def test_help_lists_all_commands_and_ends_well(words, capsys):
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in COMMANDS)
    assert max(map(len, printed.splitlines())) <= 80


def test_help_of_a_command_whole(capsys):
    assert main(["devices", "--help"]) == 0
    assert (
        capsys.readouterr().out
        == """\
usage: tfplace devices [--flags]

List the named clusters and the devices visible here.

flags:
  --cluster=TEXT
        local, a named cluster such as k80x4 (`tfplace devices` lists
        them), a cluster file .json, workers:N, gpu_split:N, or
        tf_config (default: local)
  --format=text|json
        what is printed on stdout (default: text)
  --verbosity=N
        -1: only errors and the result; 1: tracebacks, log lines; 2:
        TensorFlow's too (default: 0)
  --flagfile=TEXT
        a file of flags, one on each line

examples:
  tfplace devices
  tfplace devices --cluster=k80x4 --format=json
"""
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_each_commands_help_lists_exactly_the_flags_that_it_takes_at_80_columns(name, capsys):
    assert main([name, "--help"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    listed = re.findall(r"^  --(?:\[no\])?(\w+)", printed, re.M)
    _, values = parse(name, ["x"] if COMMANDS[name].argument else [])
    assert sorted(listed) == sorted([*values, "flagfile"])
    for example in COMMANDS[name].examples:
        assert " ".join(example.split()) in " ".join(printed.replace("\\\n", " ").split())


def test_help_names_what_there_is(capsys):
    for command, known in (("optimize", algorithms()), ("solve", algorithms()), ("graph", NAMES)):
        assert main([command, "--help"]) == 0
        printed = re.findall(r"\w+", capsys.readouterr().out)
        assert [name for name in known if name not in printed] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_parse(name):
    for example in COMMANDS[name].examples:
        program, command, *words = example.split()
        assert (program, command) == ("tfplace", name)
        parse(name, words)


LINE = "reading the command line"
FLAGS = "reading the flags of `tfplace optimize`"
LISTED = "; `tfplace optimize --help` lists them"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["optimise", "x"],
            f"{LINE}: there is no command 'optimise'; did you mean 'optimize'? (commands: "
            f"{', '.join(COMMANDS)})",
        ),
        (
            ["--version2"],
            f"{LINE}: found '--version2' before the command; wanted `tfplace COMMAND [ARGS] "
            "[--flags]`; did you mean '--version'?",
        ),
        (
            ["optimize"],
            f"{LINE}: `tfplace optimize` takes MODEL, found 0 arguments; try `tfplace optimize "
            "model.pb`",
        ),
        (
            ["devices", "a"],
            f"{LINE}: `tfplace devices` takes no argument, found 1 argument: a; try `tfplace "
            "devices`",
        ),
        (
            ["devices", "a", "b"],
            f"{LINE}: `tfplace devices` takes no argument, found 2 arguments: a b; try `tfplace "
            "devices`",
        ),
        (
            ["optimize", "a", "--buget_seconds=3"],
            f"{FLAGS}: there is no flag --buget_seconds{LISTED}; did you mean '--budget_seconds'?",
        ),
        (
            ["optimize", "a", "--budget_seconds=much"],
            f"{FLAGS}: flag --budget_seconds=much: wanted a number{LISTED}",
        ),
        (
            ["optimize", "a", "--budget_seconds=nan"],
            f"{FLAGS}: flag --budget_seconds=nan: wanted a non-negative number{LISTED}",
        ),
        (
            ["optimize", "a", "--max_trials=0"],
            f"{FLAGS}: flag --max_trials=0: 0 is not a positive integer{LISTED}",
        ),
        (
            ["optimize", "a", "--seed=1.5"],
            f"{FLAGS}: flag --seed=1.5: wanted a whole number{LISTED}",
        ),
        (
            ["bench"],
            "writing the bench: --output is missing; wanted FILE.json, beside "
            "which FILE.csv, FILE.md and FILE.png are written",
        ),
        (
            ["optimize", "a", "--overwrite=maybe"],
            f"{FLAGS}: flag --overwrite=maybe: wanted true or false{LISTED}",
        ),
        (
            ["optimize", "a", "--evaluator=guess"],
            f"{FLAGS}: flag --evaluator=guess: wanted one of auto, simulate, measure{LISTED}",
        ),
        (
            ["optimize", "a", "--nokeep_devices=1.5"],
            f"{FLAGS}: --nokeep_devices=1.5 does not take an argument{LISTED}",
        ),
        (
            ["optimize", "a", "--budget_seconds"],
            f"{FLAGS}: Missing value for flag --budget_seconds{LISTED}",
        ),
        (
            ["optimize", "a", "--flagfile=/nowhere/flags"],
            f"{FLAGS}: the flagfile '/nowhere/flags' can't be opened (No such file or directory); "
            "give --flagfile another path",
        ),
        (
            ["optimize", "a", "--flagfile=/dev/zero"],
            "reading --flagfile=/dev/zero: it is a device; wanted a text file",
        ),
        (
            ["optimize", "a", "--flagfile=/proc/self/mem"],
            f"{FLAGS}: [Errno 5] Input/output error{LISTED}",
        ),
        (
            ["optimize", "a", "--algorithm=spotlite"],
            "reading --algorithm=spotlite: there is no such algorithm; did you mean 'spotlight'? "
            f"(algorithms: {', '.join(names())})",
        ),
    ],
)
def test_usage_errors_are_one_line_and_status_1(words, error, capsys):
    assert main(words) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"tfplace: error: {error}\n"


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--seed=4"], "seed", 4),
        (["--seed", "4"], "seed", 4),
        (["-seed=4"], "seed", 4),
        (["--seed=4", "--seed=5"], "seed", 5),
        (["--overwrite"], "overwrite", True),
        (["--overwrite=true"], "overwrite", True),
        (["--overwrite", "--nooverwrite"], "overwrite", False),
        (["--pin=a", "--pin=b"], "pin", ["a", "b"]),
        (["--pin", "-x=GPU:0"], "pin", ["-x=GPU:0"]),
        (["--verbosity", "-1"], "verbosity", -1),
        (["--undefok=later", "--later=3"], "seed", 0),
        ([], "budget_seconds", 60.0),
    ],
)
def test_flags_in_all_their_forms(words, name, value):
    for line in ([*words, "model.pb"], ["model.pb", *words], [*words, "--", "model.pb"]):
        arguments, values = parse("optimize", line)
        assert (arguments, values[name].value) == (["model.pb"], value)


def test_endless_names_are_shortened_and_what_to_do_still_stands_there(capsys):
    assert main(["optimize", "x" * 100_000, "b" * 50, "c"]) == 1
    line = capsys.readouterr().err
    assert len(line) < 600
    assert "xx...xx" in line and line.endswith("try `tfplace optimize model.pb`\n")
    assert main(["optimize", *["word"] * 5000]) == 1
    assert len(capsys.readouterr().err) < 2100


def test_a_flagfile_gives_flags(tmp_path):
    path = tmp_path / "flags"
    path.write_text("--cluster=k80x2\n# a comment\n--seed=3\n")
    arguments, values = parse("optimize", ["model.pb", f"--flagfile={path}", "--seed=4"])
    assert arguments == ["model.pb"]
    assert (values.cluster, values.seed) == ("k80x2", 4)


def test_no_command_prints_help_and_is_a_usage_error(capsys):
    assert main([]) == 1
    captured = capsys.readouterr()
    assert "usage: tfplace" in captured.out and "error: reading the command line" in captured.err


@pytest.mark.parametrize(
    ("words", "verbosity"),
    [
        (["optimize", "x"], 0),
        (["optimize", "x", "--verbosity=1"], 1),
        (["optimize", "x", "--verbosity", "2"], 2),
        (["optimize", "x", "-verbosity=-1"], -1),
        (["optimize", "x", "--flagfile=FILE"], 3),
        (["optimize", "x", "--flagfile", "FILE", "--verbosity=1"], 1),
        (["optimize", "x", "--flagfile=/nowhere", "--verbosity=1"], 1),
        (["optimize", "x", "--verbosity"], 0),
        (["optimize", "x", "--verbosity=much"], 0),
    ],
)
def test_verbosity_is_read_wherever_it_stands(words, verbosity, tmp_path):
    path = tmp_path / "flags"
    path.write_text("# talk\n--verbosity=3\n")
    assert verbosity_of([word.replace("FILE", str(path)) for word in words]) == verbosity


def test_a_verbose_flagfile_brings_the_traceback(tmp_path, capsys):
    path = tmp_path / "flags"
    path.write_text("--verbosity=1\n")
    assert main(["optimize", "/nowhere.pb", f"--flagfile={path}", "--algorithm=none"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["help", "optimise"], "optimize"),
        (["--versoin"], "--version"),
        (["measure", "m.pb", "--nomemry"], "--nomemory"),
        (["optimize", "m.pb", "--evaluator=simulat"], "simulate"),
        (["inspect", "m.pb", "--mode=trian"], "train"),
        (["devices", "--format=jsn"], "json"),
        (["graph", "rnnlm", "--size=tiney"], "tiny"),
        (["optimize", "m.pb", "--emit=savedmodel"], "saved_model"),
        (["devices", "--cluster=k8x4"], "k80x4"),
        (["devices", "--cluster=worker:2"], "workers:N"),
        (["devices", "--cluster=box.json"], "boxx.json"),
        (["simulate", "rnlm.pb", "--cluster=k80x2"], "rnnlm.pb"),
        (["simulate", "nmmt", "--cluster=k80x2"], "nmt"),
        (["train", "--family=rnlm", "--output=x.npz"], "rnnlm"),
        (["batch", "job.txt"], "jobs.txt"),
    ],
)
def test_misspelt_names_are_told_with_what_was_meant(words, meant, tmp_path, monkeypatch, capsys):
    for name in ("boxx.json", "rnnlm.pb", "jobs.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert main(words) in (1, 2)
    assert f"; did you mean '{meant}'?" in capsys.readouterr().err


def test_a_link_that_leads_nowhere_is_told_with_where_it_leads(tmp_path, capsys):
    link = tmp_path / "model.pb"
    link.symlink_to("gone.pb")
    assert main(["inspect", str(link)]) == 2
    assert "there is no such file; check the path; it is a link to 'gone.pb'" in (
        capsys.readouterr().err
    )


def test_a_file_that_can_not_be_read_is_not_what_was_meant_instead(tmp_path, capsys):
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (tmp_path / "jobs.bin").write_bytes(b"\xff\xfe")
    for path in (jobs, tmp_path / "jobs.bin"):
        assert main(["batch", str(path)]) == 2
        assert "did you mean" not in capsys.readouterr().err


def test_a_benchmark_graph_that_is_not_written_yet_is_told_with_how(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", "nmt", "--cluster=k80x2"]) == 2
    assert capsys.readouterr().err == (
        "tfplace: error: reading model 'nmt': there is no such file; the benchmark graph nmt is "
        "written by `tfplace graph nmt --output=nmt.pb`\n"
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_below_standard_output_is_one_line(unbuffered):
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "tfplace", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            text=True,
            check=False,
        )
    assert ran.returncode == OutputError.exit_status
    assert re.fullmatch(r"tfplace: error: writing .*: No space left on device; .*\n", ran.stderr)


def test_what_the_output_can_not_show_is_written_escaped():
    code = "from tfplace import cli; cli.main = lambda: print('5 µs') or 0; cli.run()"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "5 \\xb5s\n", "")


def test_closed_streams_take_nothing_and_are_no_error():
    command = f"exec {sys.executable} -m tfplace --version 0<&- 1>&-"
    ran = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    ran = subprocess.run(["bash", "-c", f"{command} 2>&-"], check=False)
    assert ran.returncode == 0


def test_a_command_that_is_over_waits_for_no_thread_and_loses_nothing():
    code = """
import atexit, threading, time
from tfplace import cli
atexit.register(lambda: print("cleaned up"))
threading.Thread(target=time.sleep, args=[600]).start()
cli.main = lambda: print("result") or 3
cli.run()
"""
    words = [sys.executable, "-c", code]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "result\ncleaned up\n", "")


@pytest.mark.parametrize(
    ("streams", "status"),
    [
        ("| true", 0),
        ("2>&1 | true", 0),
        ("2>/dev/full", 0),
        (">/dev/full", OutputError.exit_status),
        ("--cluster=nowhere.json 2>/dev/full", 2),
        ("--cluster=nowhere.json 2>&1 | true", 2),
    ],
)
def test_who_reads_what_is_printed_does_not_change_how_a_command_ends(streams, status):
    command = f"{sys.executable} -m tfplace devices --cluster=k80x4 {streams}; exit $PIPESTATUS"
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert said.returncode == status
    assert said.stderr.count("\n") == (streams == ">/dev/full")


def test_stderr_that_takes_nothing_loses_no_result():
    code = """
import sys
from tfplace import cli
from tfplace.commands.quiet import NativeStderr
native = NativeStderr()
def main():
    print("before", file=sys.stderr)
    native.divert()
    print("after", file=sys.stderr)
    print("result")
    return 3
cli.main = main
cli.run()
"""
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-c", code]
        ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=full, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (3, "result\n")


def test_a_broken_pipe_within_a_command_is_no_success(monkeypatch, capsys):
    def worker_is_gone(words):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(cli, "_dispatch", worker_is_gone)
    assert main(["devices"]) == EXIT_DEFECT
    assert "a defect of tfplace: BrokenPipeError" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("/tmp/a: No space left on device [Op:SaveV2]"),  # as TensorFlow's are
    ],
)
def test_a_full_disk_is_no_defect(error, monkeypatch, capsys):
    def full(words):
        raise error

    monkeypatch.setattr(cli, "_dispatch", full)
    assert main(["devices"]) == 2
    wanted = "tfplace: error: writing what was made: No space left on device; wanted more room"
    assert capsys.readouterr().err.startswith(wanted)
