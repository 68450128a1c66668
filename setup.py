"""Packaging of tfplace: `pip install .`, or `pip install .[test]` for what `make test` needs."""

from pathlib import Path

from setuptools import find_packages, setup

version: dict[str, str] = {}
exec(Path(__file__).with_name("tfplace").joinpath("version.py").read_text(), version)

setup(
    name="tfplace",
    version=version["__version__"],
    description="Decides which op of a TensorFlow graph runs on which device",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(
        include=["graphs", "graphs.*", "rewrite", "rewrite.*", "tfplace", "tfplace.*"]
    ),
    package_data={
        "tfplace": ["py.typed", "*.txt"],
        "tfplace.commands": ["*.json"],
        "tfplace.docs": [
            "*.md",
            "decisions/*.md",
            "benchmarks/*.md",
            "benchmarks/results/*.json",
            "benchmarks/results/gpu_data/*",
            "pictures/*.png",
        ],
        "tfplace.report": ["*.txt"],
        "tfplace.report.html": ["page.css", "page.js"],
        "tfplace.algorithms.learned.training": ["*.json"],
        "tfplace.algorithms.learned.policies": ["shipped/*.npz", "shipped/README.md"],
        "graphs": ["py.typed", "*.txt"],
        "graphs.loading": ["*.txt"],
        "graphs.clusters": ["*.json"],
        "graphs.pricing": ["*.json", "*.txt"],
        "graphs.zoo": ["*.json"],
        "rewrite": ["py.typed"],
        "rewrite.split.rules": ["*.txt"],
    },
    install_requires=[
        "tensorflow>=2.21,<2.22",  # graphs, Grappler's costs, execution
        "tf-keras>=2.21,<2.22",  # the policies' layers; legacy .h5 models
        "numpy>=2.0",  # the op graph's arrays
        "absl-py>=2.1",  # flags, --flagfile
        "protobuf>=6.31",  # GraphDef, SavedModel
        "numba>=0.61",  # the simulator and the annealer, compiled
        "scipy>=1.14",  # sparse graphs; HiGHS for the linear programs
        "pymetis>=2023.1",  # balanced minimum cuts
        "rich>=13",  # tables and progress on terminals
        "matplotlib>=3.9",  # pictures of bench and fidelity
        "h5py>=3.11",  # sniffing .h5 models
        "psutil>=6",  # memory and CPU time of process trees and of the machine
    ],
    extras_require={
        "test": [
            "pytest>=8",
            "pytest-xdist>=3.6",
            "hypothesis>=6",
            "ruff>=0.9",
            "mypy>=1.14",
            "types-psutil>=6",
            "tensorboard>=2.19",
        ],
        "ray": ["ray>=2.40"],  # batch and bench on several machines
        "tensorboard": ["tensorboard>=2.19"],  # to look at --logdir, and its hyper-parameters
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.22"],
    },
    entry_points={"console_scripts": ["tfplace = tfplace.cli:run"]},
)
