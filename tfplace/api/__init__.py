"""The commands as Python functions; `import tfplace` offers them, imported when they are used."""
