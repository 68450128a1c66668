"""The documents, which are shipped with the package, and what rewrites their tables."""
