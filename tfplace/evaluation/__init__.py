"""What a placement is worth: predicted by the simulator, or measured."""
