"""Benchmark training graphs (SPEC section 8)."""
