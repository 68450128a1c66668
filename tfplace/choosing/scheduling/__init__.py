"""When ops start: an order for a placed problem, as control edges within devices (contract, 10)."""
