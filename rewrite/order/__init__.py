"""Control edges within devices that say which of two ops starts first (the contract, section 10).

A node that waits for others only because of an order names them in an attribute: so its edges are
told from the model's own, and can be taken out again.
"""
