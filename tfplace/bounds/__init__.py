"""Step times that no placement can beat: bounds by relaxation, and the optimum of small graphs."""
