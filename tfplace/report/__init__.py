"""What is said of a run: one value, as text, HTML and files."""
