"""What a device keeps, and what it computes again: placements made to fit (the contract, 10)."""
