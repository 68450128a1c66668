"""A step that holds less at once: what is computed early and read late is computed again."""
