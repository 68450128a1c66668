"""report.html: one file for a person, which needs no network, no mouse and no light."""
