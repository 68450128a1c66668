"""The venvs of the libraries: each made once, over the packages that tfplace itself runs with."""

import subprocess
import sysconfig
import venv
from pathlib import Path

ROOT = Path("~/.cache/tfplace_libraries").expanduser()
_HTTP = ["requests", "charset-normalizer", "idna", "urllib3", "certifi"]
_PROBABILITY = ["tensorflow-probability", "dm-tree", "cloudpickle", "decorator", "attrs"]
REQUIREMENTS = {
    "transformers": [
        "transformers==4.57.1", "tokenizers==0.22.1", "huggingface_hub<1", "safetensors", "regex",
        "pyyaml", "filelock", "fsspec", "tqdm", "packaging", *_HTTP,
    ],
    "keras_hub": [
        "keras-hub", "regex", "kagglehub", "kagglesdk", "tqdm", "pyyaml", "packaging",
        "python-dateutil", "tensorflow-text", "tokenizers", "huggingface_hub<1", "filelock",
        "fsspec", *_HTTP,
    ],
    "models": [
        "tf-models-official", "tensorflow-model-optimization", "gin-config", "dm-tree", "pyyaml",
        "attrs", "pandas", "python-dateutil", "pytz", "tensorflow-hub", "sentencepiece", "pillow",
        "psutil", "immutabledict", "tqdm", "opencv-python-headless", "matplotlib",
        "tensorflow-datasets", "tensorflow-metadata", "dill", "promise", "toml", "simple-parsing",
        "docstring-parser", "etils", "importlib-resources", "zipp", "fsspec", "array-record",
        "pyarrow", *_HTTP,
    ],
    "recommenders": ["tensorflow-recommenders"],
    "kecam": ["keras-cv-attention-models", "ftfy", "regex", "tqdm", "pillow", "wcwidth"],
    "deepctr": ["deepctr", *_HTTP],
    "gpflow": [
        "gpflow", "check-shapes", "multipledispatch", "lark", "Deprecated", "wrapt", "tabulate",
        "dropstackframe", "setuptools<80", *_PROBABILITY,
    ],
    "larq": ["larq", "terminaltables"],
    "spektral": [
        "spektral", "networkx", "lxml", "joblib", "pandas", "python-dateutil", "pytz", "tqdm",
        "scikit-learn", "threadpoolctl", "cloudpickle", *_HTTP,
    ],
    "probability": _PROBABILITY,
    "agents": ["tf-agents", "gin-config", "gym", "gym-notices", "pillow", "pygame", *_PROBABILITY],
    "optimization": ["tensorflow-model-optimization", "dm-tree", "attrs"],
    "unet_collection": ["keras-unet-collection"],
    "more": ["keras-tcn", "dm-sonnet", "ncps", "csbdeep", "tabulate", "tqdm", *_PROBABILITY],
}  # fmt: skip
"""{library: what is installed for it}; all is named, since they ask for other TensorFlows."""
KERAS_3 = ("keras_hub",)


def python_of(library: str) -> str:
    """The Python of a library's venv, which is made if it isn't there."""
    folder = ROOT / library
    python = folder / "bin/python"
    done = folder / "installed.txt"
    wanted = "\n".join(REQUIREMENTS[library])
    if done.exists() and done.read_text() == wanted:
        return str(python)
    if not python.exists():
        venv.create(folder, symlinks=True, with_pip=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "tensorflow.pth").write_text(sysconfig.get_paths()["purelib"])
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*install, *REQUIREMENTS[library]], check=True)
    done.write_text(wanted)
    return str(python)
