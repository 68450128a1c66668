"""Figures for the page `order.md`, made again by `python -m tests.order`."""
