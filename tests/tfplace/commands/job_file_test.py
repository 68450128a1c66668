"""Tests of commands.job_file: comments, defaults, includes, templates, names, bad lines."""

import pytest

from graphs.errors import JobsError, UsageError
from tfplace.commands.job_file import JobFile, job_limits
from tfplace.commands.parse import parse
from tfplace.runs.executors.program import ProcessLimits

NO_LIMITS = ProcessLimits()


def limits_of(seconds, memory_bytes, num_gpus):
    return ProcessLimits(
        time_limit_seconds=seconds, memory_limit_bytes=memory_bytes, num_gpus=num_gpus
    )


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Reads lines as the jobs of a batch whose output goes to `out`."""
    monkeypatch.chdir(tmp_path)

    def read(text, limits=NO_LIMITS):
        (tmp_path / "jobs.txt").write_text(text)
        return JobFile("jobs.txt", "out", limits).read()

    return read


def test_a_line_is_a_model_with_flags_or_a_command_with_its_own(read):
    jobs = read("a/rnnlm.pb --shards=1\n\nsimulate m.pb --placement=p.json\noptimize m.keras\n")
    assert [(job.name, job.line_number, job.command, job.words) for job in jobs] == [
        ("rnnlm-1", 1, "optimize", ("a/rnnlm.pb", "--shards=1")),
        ("simulate-m-p", 3, "simulate", ("m.pb", "--placement=p.json")),
        ("optimize-m", 4, "optimize", ("m.keras",)),
    ]
    assert [job.added_flags for job in jobs[:2]] == [
        ("--output_dir=out/jobs/rnnlm-1/placed", "--checkpoint_dir=out/jobs/rnnlm-1/checkpoint"),
        (),
    ]
    assert [job.outputs for job in jobs] == [
        ("out/jobs/rnnlm-1/placed",),
        (),
        ("out/jobs/optimize-m/placed",),
    ]
    assert [job.has_overwrite for job in jobs] == [True, False, True]
    assert all(job.error == "" for job in jobs)


def test_a_search_for_the_number_of_shards_is_not_kept(read):
    (job,) = read("a/rnnlm.pb --shards=auto\n")
    assert job.added_flags == ("--output_dir=out/jobs/rnnlm-auto/placed",)
    (job,) = read("a/rnnlm.pb --seed=2\n")  # auto is the default
    assert job.added_flags == ("--output_dir=out/jobs/rnnlm-2/placed",)
    (job,) = read("a/rnnlm.pb --algorithm=post\n")
    assert [flag.split("=")[0] for flag in job.added_flags] == ["--output_dir", "--checkpoint_dir"]


def test_a_device_is_no_file_of_jobs(tmp_path):
    with pytest.raises(JobsError, match="it is a device"):
        JobFile("/dev/zero", str(tmp_path), ProcessLimits()).read()


def test_a_batch_in_a_batch_is_refused_and_a_model_of_that_name_is_not(read):
    job, model = read("batch jobs.txt\n./batch --seed=1\n")
    assert "a batch can't be a job" in job.error
    assert (model.command, model.words) == ("optimize", ("./batch", "--seed=1"))


def test_comments_quotes_and_lines_of_flags_alone(read, tmp_path):
    (tmp_path / "common.flags").write_text("# of all\n--cluster=k80x4\n--seed=1\n")
    jobs = read(
        "# a comment\n// another\n--flagfile=common.flags --pin='a b=/device:GPU:0'\n"
        "one.pb # --seed=9\n--seed=3\ntwo.pb '--pin=#1=/device:GPU:1'\n"
    )
    assert [job.name for job in jobs] == ["one", "two-device_GPU_1"]
    pinned = "--pin=a b=/device:GPU:0"
    for job, more in zip(jobs, [["--seed=1"], ["--seed=3"]], strict=True):
        assert "--cluster=k80x4" in job.words and pinned in job.words
        assert set(more) <= set(job.words)
    assert "--pin=#1=/device:GPU:1" in jobs[1].words


def test_shared_flags_that_a_command_lacks_are_left_out_and_said(read, tmp_path):
    (tmp_path / "common.flags").write_text("--cluster=k80x4\n--nooverwrite\n--budget_seconds=5\n")
    jobs = read(
        "simulate a.pb --flagfile=common.flags\n--algorithm=etf --seed=1 --pin=x=GPU:0\n"
        "b.pb --flagfile common.flags\ncheck c.pb --flagfile=common.flags\n"
        "inspect d.pb --seed=3\n--buget_seconds=3\ne.pb\n"
    )
    assert [job.words for job in jobs[:3]] == [
        ("a.pb", "--cluster=k80x4"),
        ("b.pb", "--nooverwrite", "--cluster=k80x4", "--algorithm=etf", "--budget_seconds=5.0",
         "--seed=1", "--pin=x=GPU:0"),
        ("c.pb", "--cluster=k80x4"),
    ]  # fmt: skip
    assert jobs[0].notes == [
        "line 1: left out --overwrite, --budget_seconds of the shared flags, which `tfplace "
        "simulate` doesn't have"
    ]
    assert (jobs[1].notes, jobs[2].left_out) == (
        [], ("algorithm", "seed", "pin", "overwrite", "budget_seconds"))  # fmt: skip
    assert "there is no flag --seed" in jobs[3].error
    assert "did you mean '--budget_seconds'?" in jobs[4].error


def test_templates(read):
    (job,) = read(
        "m/nmt.pb --cluster=box/k80.json --seed=7 --name={model}_{cluster}-{seed} "
        "--output_dir=placed/{name} --dump_problem=dump/{name}.npz --no_split=x{3}"
    )
    assert job.name == "nmt_k80-7"
    assert job.outputs == ("placed/nmt_k80-7", "dump/nmt_k80-7.npz")
    assert {"--output_dir=placed/nmt_k80-7", "--no_split=x{3}"} <= set(job.words)
    assert not any("--name" in word for word in job.words)


def test_limits_of_a_line_go_before_those_of_the_batch(read):
    common = limits_of(60.0, 1 << 30, 0)
    jobs = read("a.pb\nb.pb --time_limit_seconds=5 --memory_limit=2MiB --num_gpus=2\n", common)
    assert [job.limits for job in jobs] == [common, limits_of(5.0, 2 << 20, 2)]
    assert jobs[1].name == "b" and jobs[1].words == ("b.pb",)


def test_a_bad_line_is_a_job_that_cannot_run_and_the_others_are_read(read):
    jobs = read(
        "a.pb --buget_seconds=3\nb.pb --output_dir={nam}\nc.pb 'open\ninspect a b\n"
        "d.pb --flagfile=/nowhere\ne.pb\ne.pb --output=x\ne.pb --memory_limit=much\n"
    )
    assert [job.name for job in jobs] == [
        "line-1", "line-2", "line-3", "line-4", "line-5", "e", "line-7", "line-8",
    ]  # fmt: skip
    wanted = ["budget_seconds'?", "filling in `--output_dir={nam}`: there is nothing called {nam} "
              "here; did you mean 'name'?; wanted {name}, {model} or a flag of the command",
              "No closing quotation", "found 2 arguments", "'/nowhere' can't be opened", "",
              "no flag --output", "wanted a positive size"]  # fmt: skip
    for job, words in zip(jobs, wanted, strict=True):
        assert words in job.error if words else job.error == ""


def test_two_jobs_never_share_a_name_or_an_output(read):
    jobs = read("a.pb\nb/a.keras\nc.pb --output_dir=x\nd.pb --output_dir=./x\n")
    assert "line 1 has the same name 'a'; give one of them --name=…" in jobs[1].error
    assert jobs[2].error == "" and "line 3 writes" in jobs[3].error


def test_a_long_name_is_cut_and_told_apart_by_a_digest(read):
    jobs = read(f"a.pb --pin={'x' * 90}=1\na.pb --pin={'x' * 90}=2\n")
    assert len({job.name for job in jobs}) == 2
    assert all(len(job.name) == 89 and job.error == "" for job in jobs)


def test_the_fingerprint_changes_with_what_comes_out_not_with_limits_or_places_in_the_file(
    read, tmp_path
):
    flags = tmp_path / "f"
    flags.write_text("--seed=1\n")
    (first,) = read("a.pb --flagfile=f")
    (same,) = read("\n# moved\na.pb --flagfile=f --time_limit_seconds=3")
    flags.write_text("--seed=2\n")
    (changed,) = read("a.pb --flagfile=f")
    assert first.fingerprint == same.fingerprint != changed.fingerprint
    assert first.name == same.name == changed.name == "a-f"


@pytest.mark.parametrize(("text", "found"), [("# nothing\n", "found none"), (None, "No such file")])
def test_no_jobs_are_bad_input(read, tmp_path, text, found):
    with pytest.raises(JobsError, match=found):
        if text is None:
            JobFile("nowhere.txt", "out", NO_LIMITS).read()
        read(text)


def test_limits_of_the_batch():
    def limits(*words):
        return job_limits(parse("batch", ["jobs.txt", *words])[1])

    assert limits() == limits_of(None, None, 0)
    given = limits("--time_limit_seconds=2", "--memory_limit=1GiB", "--num_gpus=3")
    assert given == limits_of(2.0, 1 << 30, 3)
    with pytest.raises(UsageError, match="reading the flags: --memory_limit is 'x'"):
        limits("--memory_limit=x")
