"""Each distinct op, run whole and in parts."""
