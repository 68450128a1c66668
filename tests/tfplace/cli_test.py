"""The command line in process: help, usage errors, exit statuses, one line on stderr."""

import pytest

from tfplace.cli import main
from tfplace.commands.command_table import COMMANDS
from tfplace.commands.parse import parse, verbosity_of


@pytest.mark.parametrize("words", [["--help"], ["help"], ["-h"]])
def test_help_lists_all_commands_and_ends_well(words, capsys):
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in COMMANDS)
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_each_commands_help_lists_its_flags_at_80_columns(name, capsys):
    assert main([name, "--help"]) == 0
    printed = capsys.readouterr().out
    assert f"usage: tfplace {name}" in printed and "examples:" in printed
    for flag in COMMANDS[name].flags:
        assert f"{flag.name}" in printed
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_parse(name):
    for example in COMMANDS[name].examples:
        program, command, *words = example.split()
        assert (program, command) == ("tfplace", name)
        parse(name, words)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["optimise", "x"], "did you mean 'optimize'"),
        (["optimize"], "takes MODEL, found 0 arguments"),
        (["optimize", "a", "b"], "found 2 arguments"),
        (["optimize", "a", "--buget_seconds=3"], "budget_seconds"),
        (["optimize", "a", "--budget_seconds=much"], "budget_seconds"),
        (
            ["optimize", "a", "--budget_seconds=nan"],
            "budget_seconds=nan: wanted a non-negative number",
        ),
        (["optimize", "a", "--max_trials=0"], "max_trials"),
        (["optimize", "a", "--evaluator=guess"], "evaluator"),
        (["optimize", "a", "--flagfile=/nowhere/flags"], "flags"),
        (["optimize", "a", "--algorithm=spotlite"], "did you mean 'spotlight'"),
        (["optimize", "a", "--nokeep_devices=1.5"], "does not take an argument"),
        (["optimize", "a", "--flagfile=/dev/zero"], "it is a device"),
        (["optimize", "a", "--flagfile=/proc/self/mem"], "--help` lists them"),
        (["optimize", "a", f"--flagfile={__file__}c"], "can't be opened"),
    ],
)
def test_usage_errors_are_one_line_and_status_1(words, found, capsys):
    assert main(words) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tfplace: error: ") and captured.err.count("\n") == 1
    assert found in captured.err


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
    assert "usage: tfplace" in capsys.readouterr().out


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


def test_a_missing_flagfile_is_told_in_our_words(capsys):
    assert main(["optimize", "a", "--flagfile=/nowhere/flags"]) == 1
    assert capsys.readouterr().err == (
        "tfplace: error: reading the flags of `tfplace optimize`: the flagfile '/nowhere/flags' "
        "can't be opened (No such file or directory); give --flagfile another path\n"
    )


def test_an_unknown_flag_is_told_with_the_nearest(capsys):
    assert main(["optimize", "a", "--buget_seconds=3"]) == 1
    assert capsys.readouterr().err == (
        "tfplace: error: reading the flags of `tfplace optimize`: there is no flag "
        "--buget_seconds; `tfplace optimize --help` lists them; did you mean '--budget_seconds'?\n"
    )


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


def test_a_benchmark_graph_that_is_not_written_yet_is_told_with_how(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", "nmt", "--cluster=k80x2"]) == 2
    assert capsys.readouterr().err == (
        "tfplace: error: reading model 'nmt': there is no such file; the benchmark graph nmt is "
        "written by `tfplace graph nmt --output=nmt.pb`\n"
    )
