"""Imports the modules of the corpus, so that their models are in the table."""

from tests.corpus import (  # noqa: F401
    control_flow,
    keras_models,
    serving_testdata,
    tables_and_strings,
    tensorflow1,
    tensorflow2,
    tensorflow_testdata,
)
from tests.corpus.entry import CORPUS

__all__ = ["CORPUS"]
