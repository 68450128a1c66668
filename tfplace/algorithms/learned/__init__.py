"""The five published learned systems: ColocRL, HDP, Spotlight, Post, Placeto."""
