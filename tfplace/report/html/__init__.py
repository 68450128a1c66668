"""report.html: one file for a person; it needs no network and no mouse, and can be dark."""
