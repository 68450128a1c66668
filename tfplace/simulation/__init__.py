"""What a placement is predicted to take: the simulator of the contract's section 6."""
