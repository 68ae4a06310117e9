"""The demo: the main job on a real encoder and a task that headcount writes itself, offline."""
