"""One module per command: flags in, an exit status out; the work is done elsewhere."""
