"""Simulating and measuring in turn: what real runs teach the simulator, and what it tries then."""
