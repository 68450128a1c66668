"""Looks at 200 hostile files, each in a forked process, and says what they cost.

    python -m tests.hostile_files [--seed=0] [--only=TEXT]

Each must end by itself within 10 s of CPU time and 1 GiB, with status 0 or 2, without a traceback,
and with nothing written but below TMPDIR. Prints a line for each that does not, and a sum.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

NUM_FILES, SECONDS, BYTES = 200, 10.0, 1 << 30
Made = tuple[str, Path, list[str]]
"""Its name, the file, and the words of the command that reads it."""


def main() -> None:
    """Makes the files and looks at each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3")
    import keras  # noqa: F401 - so that forked processes have it
    import tensorflow as tf  # noqa: F401

    import tfplace.commands.inspect
    import tfplace.report.inspection  # noqa: F401

    folder = Path(tempfile.mkdtemp())
    num_bad, worst_seconds, worst_bytes, count = 0, 0.0, 0, 0
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if not (pid := os.fork()):  # TensorFlow's threads, once they run, are not forked
        made = _files(folder / "made", random.Random(arguments.seed))
        rows = [(name, str(path), words) for name, path, words in made]
        (folder / "list.json").write_text(json.dumps(rows))
        os._exit(0)
    os.waitpid(pid, 0)
    for name, path, words in json.loads((folder / "list.json").read_text()):
        if arguments.only not in name or count == NUM_FILES:
            continue
        count += 1
        status, seconds, held, said = _looked_at(path, words, folder / "work")
        worst_seconds, worst_bytes = max(worst_seconds, seconds), max(worst_bytes, held)
        if status not in (0, 2) or seconds > SECONDS or held > BYTES or "Traceback" in said:
            num_bad += 1
            print(f"{name}: {status}, {seconds:.1f} s, {held >> 20} MiB: {said[-300:]}", flush=True)
    print(
        f"{count} files, {num_bad} not as wanted; at most {worst_seconds:.1f} s of CPU and "
        f"{worst_bytes >> 20} MiB, {base >> 20} of which TensorFlow's import takes"
    )
    shutil.rmtree(folder)
    sys.exit(1 if num_bad else 0)


def _looked_at(path: str, words: list[str], work: Path) -> tuple[int | str, float, int, str]:
    """Status, seconds of CPU, bytes held, and what was said."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "tmp").mkdir(parents=True)
    (work / "home").mkdir()
    told = work / "said"
    pid = os.fork()
    if not pid:
        os.chdir(work / "home")
        os.environ.update(TMPDIR=str(work / "tmp"), HOME=str(work / "home"))
        tempfile.tempdir = None
        with told.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        from tfplace.cli import main as tfplace_main

        try:
            status = tfplace_main([*words, path])
        except SystemExit as end:
            status = int(end.code or 0)
        sys.stdout.flush()
        os._exit(int(status or 0))
    end = time.monotonic() + 6 * SECONDS
    while True:
        done, code, used = os.wait4(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    status = os.waitstatus_to_exitcode(code)
    left = [str(each.relative_to(work)) for each in (work / "home").rglob("*") if each.is_file()]
    # TensorFlow imports Keras, which writes these.
    left = [each for each in left if not each.startswith(("home/.cache", "home/.keras"))]
    said = told.read_text(errors="replace")
    return (
        status if not left else f"wrote {left}",
        used.ru_utime + used.ru_stime,
        used.ru_maxrss * 1024,
        said,
    )


def _files(folder: Path, rng: random.Random) -> Iterator[Made]:
    """The files, one at a time; those of structure first, then damaged ones."""
    folder.mkdir(parents=True)
    honest = dict(_honest(folder))
    for make in (_graphs, _keras_files, _others):
        yield from make(folder, honest)
    for number in range(NUM_FILES):
        name = rng.choice(sorted(honest))
        path = _damaged(honest[name], folder / f"damaged_{number}", rng)
        yield f"{name} damaged {number}", path, _words(name, honest)


def _words(name: str, honest: dict[str, Path]) -> list[str]:
    if name == "feed.npz":
        return ["inspect", str(honest["model.pb"]), "--feed"]
    if name == "placement.json":
        return ["simulate", str(honest["model.pb"]), "--cluster=k80x2", "--placement"]
    if name == "cluster.json":
        return ["devices", "--cluster"]
    return ["inspect"]


def _honest(folder: Path) -> Iterator[tuple[str, Path]]:
    import h5py  # noqa: F401
    import keras
    import tensorflow as tf
    import tf_keras

    from graphs import zoo
    from graphs.clusters.cluster_file import cluster_to_json
    from graphs.clusters.named_clusters import named

    graph = zoo.build("rnnlm", size="tiny")
    for name in ("model.pb", "model.pbtxt", "saved_model"):
        zoo.write(graph, str(folder / name))
        yield name, folder / name
    layers = [keras.Input([4]), keras.layers.Dense(3), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    model.save(folder / "model.keras")
    old = tf_keras.Sequential([tf_keras.Input([4]), tf_keras.layers.Dense(3)])
    old.compile("adam", "mse")
    old.save(folder / "model.h5")
    names = [
        each.name
        for each in tf.compat.v1.GraphDef.FromString((folder / "model.pb").read_bytes()).node
    ]
    np.savez(folder / "feed.npz", **{"tokens:0": np.zeros([4, 2], np.int32)})
    placed = dict.fromkeys(names[:50], "/device:GPU:0")
    (folder / "placement.json").write_text(json.dumps(placed))
    (folder / "cluster.json").write_text(json.dumps(cluster_to_json(named("k80x2"))))
    for name in ("model.keras", "model.h5", "feed.npz", "placement.json", "cluster.json"):
        yield name, folder / name


def _damaged(path: Path, copy: Path, rng: random.Random) -> Path:
    """A copy that is cut, or has bytes changed, doubled or left out."""
    copy = copy.with_suffix(path.suffix)
    if path.is_dir():
        shutil.copytree(path, copy)
        files = sorted(each for each in copy.rglob("*") if each.is_file())
        target = rng.choice(files)
    else:
        shutil.copy(path, copy)
        target = copy
    content = bytearray(target.read_bytes())
    start = rng.randrange(max(len(content), 1))
    stop = min(len(content), start + rng.choice([1, 1, 4, 64, 1 << 20]))
    way = rng.randrange(4)
    if way == 0:
        del content[start:]
    elif way == 1:
        content[start:stop] = rng.randbytes(stop - start)
    elif way == 2:
        content[start:start] = content[start:stop]
    else:
        del content[start:stop]
    target.write_bytes(bytes(content))
    return copy


def _graph(build: Callable[[], object]) -> bytes:
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        build()
    return bytes(graph.as_graph_def().SerializeToString())


def _graphs(folder: Path, honest: dict[str, Path]) -> Iterator[Made]:
    """GraphDefs of few bytes that ask for much."""
    import tensorflow as tf

    v1 = tf.compat.v1

    def written(name: str, graph_def: object) -> Made:
        path = folder / f"{name}.pb"
        path.write_bytes(graph_def.SerializeToString())  # type: ignore[attr-defined]
        return name, path, ["inspect"]

    def sized(op: str, large: int) -> object:
        """x is reshaped by the first two numbers of what an op makes of a large one."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [None, 4], name="x")
            count = v1.placeholder(tf.int32, [], name="count")
            made = {
                "fill": lambda: tf.raw_ops.Fill(dims=[count], value=2),
                "range": lambda: tf.range(count),
                "tile": lambda: tf.tile([1, 2], [count]),
                "broadcast": lambda: tf.reshape(tf.ones([2, 1], tf.int32) + tf.range(count), [-1]),
                "pad": lambda: tf.pad([2, 2], [[0, count]]),
                "one_hot": lambda: tf.reshape(tf.one_hot([0, 0], count, dtype=tf.int32), [-1]),
                "linspace": lambda: tf.cast(tf.linspace(2.0, 3.0, count), tf.int32),
                "scatter": lambda: tf.scatter_nd([[0]], [2], [count]),
                "repeat": lambda: tf.repeat([2, 2], count),
                "concat": lambda: tf.concat([tf.fill([count], 2)] * 4, 0),
                "cumsum": lambda: tf.cumsum(tf.fill([count], 1)),
                "eye": lambda: tf.reshape(tf.linalg.eye(count, dtype=tf.int32), [-1]),
                "bitcast": lambda: tf.bitcast(tf.fill([count], tf.constant(2, tf.int32)), tf.int32),
                "strings": lambda: tf.strings.length(tf.fill([count], "ab")),
                "unique": lambda: tf.unique(tf.range(count))[0] + 2,
            }[op]()
            tf.identity(tf.reshape(x, made[:2]), name="y")
        graph_def = graph.as_graph_def()
        for node in graph_def.node:
            if node.name == "count":
                node.op = "Const"
                del node.attr["shape"]
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(large, tf.int32))
        return graph_def

    for op in (
        "fill range tile broadcast pad one_hot linspace scatter repeat concat cumsum eye "
        "bitcast strings unique"
    ).split():
        yield written(f"{op} of a billion", sized(op, 10**9 if op != "eye" else 10**5))
    for kind in ("splat", "dims", "negative"):
        graph_def = v1.GraphDef()
        node = graph_def.node.add(name="y", op="Const")
        node.attr["dtype"].type = 1
        tensor = node.attr["value"].tensor
        tensor.dtype = 1
        for size in {"splat": [1 << 33], "dims": [1 << 40] * 8, "negative": [-5]}[kind]:
            tensor.tensor_shape.dim.add(size=size)
        tensor.float_val.append(1.0)
        yield written(f"constant {kind}", graph_def)
    for depth in (40, 3_000):
        graph_def = v1.GraphDef()
        for level in range(depth):
            function = graph_def.library.function.add()
            function.signature.name = f"f{level}"
            for call in range(2):
                target = f"f{(level + 1) % depth}"
                function.node_def.add(name=f"c{call}", op=target)
        graph_def.node.add(name="y", op="f0")
        yield written(f"{depth} functions that call each other", graph_def)
    graph_def = v1.GraphDef()
    graph_def.node.add(name="x", op="Placeholder").attr["dtype"].type = 1
    unpacked = graph_def.node.add(name="y", op="Unpack", input=["x"])
    unpacked.attr["T"].type = 1
    unpacked.attr["num"].i = 10**9
    yield written("a billion outputs", graph_def)
    graph_def = v1.GraphDef()
    for number in range(3_000):
        graph_def.node.add(name=f"n{number}", op="Identity", input=[f"n{(number + 1) % 3_000}"])
    yield written("a circle", graph_def)
    for name, op, entries in (
        ("no such op", "NoSuchOp", {}),
        ("no attributes", "Conv2D", {}),
        ("empty name", "NoOp", {"name": ""}),
        ("long name", "NoOp", {"name": "a" * 1_000_000}),
        ("odd name", "NoOp", {"name": "../../etc/passwd\n\x1b[31m"}),
        ("a device", "NoOp", {"device": "/job:" + "x" * 10_000 + "/device:GPU:99999999999"}),
    ):
        graph_def = v1.GraphDef()
        graph_def.node.add(**{"name": "y", "op": op, **entries})
        yield written(name, graph_def)
    for name, content in (
        ("no bytes", b""),
        ("zeros", bytes(1 << 20)),
        ("long varints", b"\xff" * 10_000),
        ("deep groups", b"\x0b" * 100_000),
        ("a large length", b"\x0a\xff\xff\xff\xff\x07"),
        ("text", b"node { name: 'a' op: 'NoOp' " * 10_000),
    ):
        for ending in (".pb", ".pbtxt", ".meta"):
            path = folder / f"{name}{ending}"
            path.write_bytes(content)
            yield f"{name}{ending}", path, ["inspect"]


def _keras_files(folder: Path, honest: dict[str, Path]) -> Iterator[Made]:
    """Configurations of few bytes that make much, or are none."""

    def written(name: str, change: Callable[[dict], object]) -> Made:  # type: ignore[type-arg]
        path = folder / f"{name}.keras"
        with zipfile.ZipFile(honest["model.keras"]) as old, zipfile.ZipFile(path, "w") as new:
            for member in old.namelist():
                content = old.read(member)
                if member == "config.json":
                    config = json.loads(content)
                    changed = change(config)
                    content = json.dumps(config if changed is None else changed).encode()
                new.writestr(member, content)
        return name, path, ["inspect"]

    def setting(**values: object) -> Callable[[dict], object]:  # type: ignore[type-arg]
        def change(config: dict) -> None:  # type: ignore[type-arg]
            config["config"]["layers"][1]["config"].update(values)

        return change

    def of_class(name: str, **values: object) -> Callable[[dict], object]:  # type: ignore[type-arg]
        def change(config: dict) -> None:  # type: ignore[type-arg]
            first = config["config"]["layers"][1]
            first.update(class_name=name, config={"name": "odd", **values})

        return change

    for name, change in {
        "ten billion units": setting(units=10**10),
        "minus units": setting(units=-1),
        "units of text": setting(units="x"),
        "many units": setting(units=10**8),
        "a billion words": of_class("Embedding", input_dim=10**9, output_dim=1000),
        "many filters": of_class("Conv2D", filters=10**8, kernel_size=1000),
        "many heads": of_class("MultiHeadAttention", num_heads=10**6, key_dim=10**6),
        "wide lstm": of_class("LSTM", units=10**6),
        "repeated": of_class("RepeatVector", n=10**10),
        "padded": of_class("ZeroPadding1D", padding=10**10),
        "one-hot": of_class("CategoryEncoding", num_tokens=10**10, output_mode="one_hot"),
        "hashed": of_class("Hashing", num_bins=10**12),
        "a lambda": of_class(
            "Lambda", function={"class_name": "function", "config": "system", "module": "os"}
        ),
        "a constant": setting(
            kernel_initializer={
                "class_name": "Constant",
                "module": "keras.initializers",
                "config": {"value": 1e400},
            }
        ),
        "an orthogonal one": setting(units=30_000, kernel_initializer="orthogonal"),
        "not a dictionary": lambda config: [1, 2],
        "no layers": lambda config: {**config, "config": {"name": "a", "layers": []}},
        "a number of layers": lambda config: {**config, "config": {"name": "a", "layers": 7}},
        "a wide input": lambda config: config["config"]["layers"][0]["config"].update(
            batch_shape=[None, 10**12]
        ),
        "an input without end": lambda config: config["config"]["layers"][0]["config"].update(
            batch_shape=[10**9] * 50
        ),
        "a long loss": lambda config: config["compile_config"].update(loss="x" * 10**6),
        "an optimizer of os": lambda config: config["compile_config"].update(
            optimizer={"module": "os", "class_name": "system", "config": {"name": "touch x"}}
        ),
    }.items():
        yield written(name, change)
    for name, text in (("deep", "[" * 100_000 + "]" * 100_000), ("nan", '{"a": NaN}'), ("no", "")):
        path = folder / f"{name} text.keras"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", text)
        yield f"{name} text.keras", path, ["inspect"]
    path = folder / "bomb.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", b" " * (1 << 28))
    yield "bomb.keras", path, ["inspect"]
    path = folder / "climbing.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../../climbed", "x")
        archive.writestr("config.json", "{}")
    yield "climbing.keras", path, ["inspect"]


def _others(folder: Path, honest: dict[str, Path]) -> Iterator[Made]:
    """Feeds, placements, clusters, and what is no file at all."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}
    )
    pickled = io.BytesIO()
    np.save(pickled, np.array([{"a": 1}], object), allow_pickle=True)
    for name, content in (
        ("huge", buffer.getvalue()),
        ("pickled", pickled.getvalue()),
        ("cut", buffer.getvalue()[:20]),
    ):
        path = folder / f"{name}.npz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tokens:0.npy", content)
        yield f"{name}.npz", path, _words("feed.npz", honest)
    for name, text in (
        ("deep", "[" * 100_000),
        ("a list", "[]"),
        ("a number", "1e999"),
        ("text", '"a"'),
        ("nothing", ""),
        ("numbers", '{"a": 1}'),
        ("not utf-8", "\udcff"),
        ("many", json.dumps({f"op_{i}": "/device:GPU:0" for i in range(100_000)})),
    ):
        for kind in ("placement.json", "cluster.json"):
            path = folder / f"{name} {kind}"
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
            yield f"{name} {kind}", path, _words(kind, honest)
    with contextlib.suppress(OSError):
        os.mkfifo(folder / "fifo.pb")
        yield "a fifo", folder / "fifo.pb", ["inspect"]
    for name, target in (("device.pb", "/dev/zero"), ("self.pb", "self.pb"), ("gone.pb", "none")):
        (folder / name).symlink_to(target)
        yield f"a link {name}", folder / name, ["inspect"]
    (folder / "empty").mkdir()
    yield "an empty folder", folder / "empty", ["inspect"]
    for member in ("saved_model.pb", "variables/variables.index", "variables/variables.data-00000"):
        copy = folder / f"without {member.replace('/', ' ')}"
        shutil.copytree(honest["saved_model"], copy)
        for path in copy.glob(f"{member}*"):
            path.unlink()
            path.symlink_to("/dev/zero")
        yield copy.name, copy, ["inspect"]


if __name__ == "__main__":
    main()
