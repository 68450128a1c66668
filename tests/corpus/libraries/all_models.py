"""Imports the modules of the libraries' models, so that they are in the table."""

from tests.corpus.libraries import hugging_face, keras_libraries, steps  # noqa: F401
from tests.corpus.libraries.entry import LIBRARIES

__all__ = ["LIBRARIES"]
