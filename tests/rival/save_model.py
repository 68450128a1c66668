"""`python -m tests.rival.save_model NAME PATH`: writes the SavedModel that tfplace is given."""

from __future__ import annotations

import sys

from tests.rival.models import MODELS
from tests.rival.steps import save

if __name__ == "__main__":
    save(MODELS[sys.argv[1]], sys.argv[2])
