"""Names, options and their errors."""

import subprocess
import sys
from pathlib import Path

import pytest

from graphs.errors import UsageError
from graphs.zoo import NAMES, catalogue, options, parse


def test_names_are_those_of_the_specification() -> None:
    assert (
        *("rnnlm", "nmt", "inception_v3", "cifar10", "resnet152", "resnet50", "nasnet"),
        *("transformer", "dlrm", "moe", "resnet50_v1", "vgg16", "alexnet"),
    ) == NAMES


def test_parse_gives_name_and_options() -> None:
    assert parse("nmt:num_layers=4,batch_size=32") == ("nmt", {"num_layers": 4, "batch_size": 32})
    assert parse("rnnlm") == ("rnnlm", {})
    assert parse("moe:size=tiny") == ("moe", {"size": "tiny"})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nmtt", "did you mean 'nmt'?"),
        ("nmt:num_layer=4", "did you mean 'num_layers'?"),
        ("cifar10:zzz=4", "known are size, batch_size, image_size, num_classes, width_divisor"),
        ("nmt:num_layers", "wanted OPTION=VALUE"),
        ("nmt:num_layers=0", "wanted a positive integer"),
        ("nmt:num_layers=-2", "wanted a positive integer"),
        ("nmt:num_layers=two", "found 'two', wanted a positive integer"),
        ("transformer:num_layers=100000000000000000000", "at most 1,000"),
        ("rnnlm:batch_size=" + "9" * 5000, "at most 2,147,483,647"),
        ("resnet50:vocab_size=3", "as in resnet50:batch_size=32"),
        ("nmt:size=huge", "wanted one of published, tiny"),
    ],
)
def test_parse_says_what_is_wrong(spec: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(spec)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_both_sizes_have_the_same_options(name: str) -> None:
    assert options(name).keys() == options(name, "tiny").keys()
    assert options(name)["size"] == "published"
    assert options(name, "tiny")["size"] == "tiny"


def test_chosen_options_override_the_size() -> None:
    assert catalogue.resolve("rnnlm", "tiny", {"num_layers": 4}) == {
        "batch_size": 4,
        "num_layers": 4,
        "hidden_size": 8,
        "num_steps": 3,
        "vocab_size": 20,
    }
    assert catalogue.resolve("resnet50", "tiny", {})["depth"] == 50


def test_names_come_without_tensorflow() -> None:
    program = "import sys, graphs.zoo; sys.exit('tensorflow' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, check=False).returncode == 0
