"""Where work that is independent of each other runs: processes of this host, or of Ray's nodes."""
