"""The same for every batch size: what holds at one size only is found, and refused if need be."""
