"""report.html: what stands in it, that nothing in it is foreign, and that a browser shows it."""

import dataclasses
import html.parser
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from tests.builders import Machine, Op, build_problem, random_problem, two_towers
from tests.tfplace.report.made_up import made_up
from tfplace.choosing.baselines import Baseline
from tfplace.choosing.device_counts import OnDevices
from tfplace.report.explaining.parallelism import parallelism_facts, parallelism_of
from tfplace.report.html import timeline_data as data_module
from tfplace.report.html.curve import best_so_far
from tfplace.report.html.elements import NUM_COLOURS
from tfplace.report.html.page import html_report
from tfplace.report.html.timeline_data import NUM_TICKS, timeline_data

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\"&\u2028"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
NODE = shutil.which("node")
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(html.parser.HTMLParser):
    """Elements, their attributes, and whether all that is opened is closed in order."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(text)


@pytest.fixture(scope="module")
def towers():
    machine = Machine(3, latency=0.25, bandwidth=4.0, memory=[10**9, 20, 10**6])
    return made_up(two_towers(machine=machine), [1, 2] * 4 + [1])


def test_the_page_says_what_was_found(towers):
    page = Page(html_report(*towers))
    words = re.sub(r"\s+", " ", " ".join(page.words))
    assert not page.open
    for sentence in (
        "model is twice as fast",
        "within 100 %",
        "can't run: model lacks memory",
        "GPU:0 computes 91 % of the step; it waits 9 % for transfers from GPU:1.",
        "for the last 27 % it has nothing left to do",
        "annealing, 6 trials",
        "post, 5 trials",
        "tfplace optimize model",
        "tfplace.load('/tmp/model')",
        "analytic, 50 % of the ops priced",
        "1.50x over given (95 % interval",
    ):
        assert sentence in words, sentence


def test_a_cpu_beside_gpus_is_named_where_it_is_the_best_single_device(towers):
    report, *rest = towers
    words = {}
    for name in ("/device:CPU:0", "/device:GPU:0"):
        peaks = {"/device:CPU:0": 0, "/device:GPU:0": 0, name: 7}
        single = Baseline(2.0 * report.best.step_seconds, True, "", peaks)
        found = dataclasses.replace(report, baselines={**report.baselines, "single": single})
        words[name] = " ".join(Page(html_report(found, *rest)).words)
    assert "as fast as one CPU, predicted" in words["/device:CPU:0"]
    assert "as fast as one device, predicted" in words["/device:GPU:0"]


def test_the_page_needs_nothing_from_elsewhere(towers):
    content = html_report(*towers)
    page = Page(content)
    assert not {"link", "img", "iframe", "object", "base", "form"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert not {"src", "href", "action"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"https?://|@import|url\(", content)
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv"))
    assert "default-src 'none'" in policy


def test_text_from_a_model_stays_text():
    ops = [Op(f"{HOSTILE}/a", type=HOSTILE), Op(f"b{HOSTILE}", inputs=(f"{HOSTILE}/a:0",))]
    problem = build_problem(ops, Machine(bandwidth=10.0))
    content = html_report(*made_up(problem, [0, 1], HOSTILE))
    page = Page(content)
    assert not page.open
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert not any(tag == "img" for tag, _ in page.tags)
    data = re.search(r"<script type='application/json' id='timeline-data'>(.*?)</script>", content)
    assert "<" not in data[1] and "&" not in data[1]
    assert json.loads(data[1])["types"] == sorted([HOSTILE, "Op"])
    assert HOSTILE in " ".join(page.words).replace("\n", " ")


def test_the_schedules_data_is_the_schedule():
    ops = [Op("s/a", 2.0), Op("s/b", 0.0, ("s/a:0",), type="NoOp"), Op("c", 2.0, ("s/b:0",))]
    problem = build_problem(ops, Machine(2, latency=1.0, bandwidth=float("inf")))
    _, explained = made_up(problem, [0, 0, 1])
    data, tick = timeline_data(explained), NUM_TICKS // 5
    assert [(row["label"], row["kind"], row["device"]) for row in data["rows"]] == [
        ("CPU:0", "device", 0),
        ("GPU:0", "device", 1),
        ("CPU:0 → GPU:0", "link", 0),
    ]
    assert data["scopes"] == ["s/", ""]
    assert data["ops"] == {
        "row": [0, 1],
        "start": [0, 3 * tick],
        "end": [2 * tick, 5 * tick],
        "name": [[0, "a"], [1, "c"]],
        "type": [0, 0],
        "cause": [0, -1],  # c waited for the transfer
    }
    assert data["transfers"] == {
        "row": [2], "start": [2 * tick], "end": [3 * tick], "made": [2 * tick],
        "name": [[0, "b:0"]], "bytes": [0], "cause": [-1],  # an op of no time is not drawn
    }  # fmt: skip
    assert sorted(data["waits"]) == [
        [0, 2 * tick, 5 * tick, "nothing", -1, 0],
        [1, 0, 2 * tick, "op", 0, 1],
        [1, 2 * tick, 3 * tick, "transfer", 0, -1],
    ]
    assert data["runs"] == [] and data["seconds"] == 5.0


def test_a_large_graph_keeps_its_longest_ops_and_the_page_stays_small(monkeypatch):
    monkeypatch.setattr(data_module, "MAX_OPS", 100)
    monkeypatch.setattr(data_module, "MAX_TRANSFERS", 50)
    rng = np.random.default_rng(0)
    ops = [
        Op(f"{'scope' * 8}{n % 7}/{'x' * (5000 if n == 3 else 5)}{n}", float(rng.uniform(0.5, 2)),
           (f"{'scope' * 8}{(n - 1) % 7}/{'x' * (5000 if n == 4 else 5)}{n - 1}:0",) if n else ())
        for n in range(2000)
    ]  # fmt: skip
    problem = build_problem(ops, Machine(4, bandwidth=1000.0))
    placement = [n * 4 // 2000 if n % 9 else n % 4 for n in range(2000)]
    report, explained = made_up(problem, placement)
    data = timeline_data(explained)
    num_transfers = len(explained.schedule.transfers.tensor)
    assert len(data["ops"]["row"]) == 100 and len(data["transfers"]["row"]) == 50
    is_link = [data["rows"][run[0]]["kind"] == "link" for run in data["runs"]]
    counts = np.array([run[3] for run in data["runs"]])
    assert counts[~np.array(is_link)].sum() == 1900
    assert counts[np.array(is_link)].sum() == num_transfers - 50
    shortest = min(np.subtract(data["ops"]["end"], data["ops"]["start"]))
    assert shortest * explained.schedule.makespan / NUM_TICKS > 1.8
    assert len(html_report(report, explained)) < 400_000


@pytest.mark.parametrize("seed", range(6))
def test_any_schedule_makes_a_page(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 30)
    placement = rng.integers(0, problem.num_devices, problem.num_ops).tolist()
    report, explained = made_up(problem, placement)
    assert not Page(html_report(report, explained)).open
    data = timeline_data(explained)
    for row, start, end in zip(*(data["ops"][k] for k in ("row", "start", "end")), strict=True):
        assert data["rows"][row]["kind"] == "device" and 0 <= start <= end <= NUM_TICKS


def test_a_step_on_the_cpu_alone_is_not_on_no_device(towers):
    report, explained = towers
    report = dataclasses.replace(report, by_devices=(OnDevices(1, 8.0, 0, 0),))
    assert "<td>the CPU alone</td>" in re.sub("<td[^>]*>", "<td>", html_report(report, explained))


def test_a_search_that_found_nothing_better_has_no_curve():
    assert "found nothing better" in best_so_far({"history": [(0, 0.1, 2.0)]}, None)
    never = {"history": [(0, 0.1, None), (9, 1.0, None)], "stages": []}
    assert "found nothing better" in best_so_far(never, 1.0)


@pytest.mark.skipif(NODE is None, reason="no Node.js here: apt-get install nodejs")
def test_the_pages_script_is_javascript(towers, tmp_path):
    (script,) = re.findall(r"<script>(.*?)</script>", html_report(*towers), re.S)
    (tmp_path / "page.js").write_text(script)
    subprocess.run([NODE, "--check", str(tmp_path / "page.js")], check=True, timeout=60)


def test_every_class_has_a_style_and_every_style_is_used(towers):
    content = html_report(*towers)
    style, script = (
        re.search(rf"<{tag}>(.*?)</{tag}>", content, re.S)[1] for tag in ("style", "script")
    )
    used = {
        name for _, attributes in Page(content).tags for name in attributes.get("class", "").split()
    }
    styled = set(re.findall(r"\.([a-z][\w-]*)(?=[^{}]*\{)", style))
    # What this report doesn't have: more devices, other verdicts, full memory, a memory plan, ops
    # on a CPU.
    others = {f"d{colour}" for colour in range(NUM_COLOURS)}
    others |= {"kept_single", "kept_given", "op", "limit", "before", "over", "words"}
    assert styled - used <= others
    assert used - styled <= {"placed"} | others
    ids = set(re.findall(r'byId\("([^"]+)"\)', script))
    assert ids == {"timeline", "timeline-told", "timeline-data", "copy", "command"}
    assert ids <= {attributes.get("id") for _, attributes in Page(content).tags}


KEYS = "ArrowDown ArrowDown n w Enter + - ArrowLeft ArrowRight 0 p Escape".split()
PROBE = """<script>
const canvas = document.getElementById("timeline"), told = document.getElementById("timeline-told");
const seen = [];
const press = (target, key) => target.dispatchEvent(
  new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
canvas.focus();
for (const key of KEYS) { press(canvas, key); seen.push(told.textContent); }
document.querySelector("[data-do=next]").click();
const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
const wide = document.documentElement.scrollWidth > innerWidth;
document.body.dataset.probe = JSON.stringify(
  { seen, colours: new Set(new Uint32Array(pixels.buffer)).size, wide, dark: getComputedStyle(
    document.body).backgroundColor });
</script></body>"""


def probed(content, tmp_path, keys, width=1280, scheme="1"):
    """What a browser makes of a page while these keys are pressed."""
    file = tmp_path / "report.html"
    file.write_text(content.replace("</body>", PROBE.replace("KEYS", json.dumps(keys))))
    done = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
            f"--blink-settings=preferredColorScheme={scheme}", "--virtual-time-budget=2000",
            f"--screenshot={tmp_path / 'shot.png'}", "--dump-dom", file.as_uri(),
        ],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    answer: dict = json.loads(html.unescape(re.search(r'data-probe="(.*?)"', done.stdout)[1]))
    return answer


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "1"), (412, "0")])
def test_a_browser_shows_it_and_the_keyboard_moves_in_it(towers, tmp_path, width, scheme):
    probe = probed(html_report(*towers), tmp_path, KEYS, width, scheme)
    seen = probe["seen"]
    assert seen[0].startswith("GPU:0") or "on GPU:0" in seen[0]
    assert "on GPU:1" in seen[1] or seen[1].startswith("GPU:1")
    assert all(seen) and probe["colours"] > 20 and not probe["wide"]
    assert probe["dark"] == {"1": "rgb(252, 252, 251)", "0": "rgb(20, 21, 24)"}[scheme]


@pytest.fixture(scope="module")
def shards():
    """The page of a split step: two shards of a product on two devices, their sum on the first."""
    ops = [Op("cut", 0.1, outputs=(4, 4))]
    ops += [Op(f"in/product/shard_{m}", 2.0, (f"cut:{m}",), (8,)) for m in range(2)]
    ops.append(Op("sum", 1.0, ("in/product/shard_0:0", "in/product/shard_1:0"), outputs=()))
    report, explained = made_up(build_problem(ops, Machine(3)), [1, 1, 2, 1])
    split = {
        "shards": 2, "axes": {"x": 0}, "batch": 8, "any_batch": False, "sharded_ops": 1,
        "weights": [],
        "whole_ops": 2, "sums": 1, "joins": 0, "cuts": 1, "whole_because": [],
        "below_ops": 0, "below_flops_share": 0.0,
    }  # fmt: skip
    placed = explained.placed
    found = parallelism_of(placed.problem, placed.device_of_op)
    kind = parallelism_facts(found, placed.problem)
    return dataclasses.replace(report, split=split, parallelism=kind), explained


def test_a_split_step_shows_its_shards(shards):
    page = Page(html_report(*shards))
    words = re.sub(r"\s+", " ", " ".join(page.words))
    assert "Data parallel over 2 GPUs." in words
    assert "a batch of 8 into 2 shards of 4: axis 0 of x" in words
    assert "/device:GPU:1 39 %" in words
    assert "shard 0 shard 1 whole" in words
    assert page_button(page, "colour")
    content = timeline_data(shards[1])
    assert content["shards"] == 2 and content["ops"]["shard"] == [-1, 0, 1, -1]


def page_button(page, action):
    return next(attrs for tag, attrs in page.tags if attrs.get("data-do") == action)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")
def test_a_browser_tells_of_shards_and_changes_their_colours(shards, tmp_path):
    seen = probed(html_report(*shards), tmp_path, ["ArrowDown", "p", "p", "p", "c", "c"])["seen"]
    assert "of shard 0 (the first is 0) on GPU:0" in " ".join(seen)
