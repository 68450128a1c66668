"""Tables and pictures of the documents, made by hand: `python -m tests.tables.NAME`."""
