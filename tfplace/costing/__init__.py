"""What ops cost on devices that are present: traced, mapped to the user's graph, and kept."""
