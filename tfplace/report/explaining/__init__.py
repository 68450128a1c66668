"""Why a step takes as long as it does: who waits for whom, what is heavy, what sits where."""
