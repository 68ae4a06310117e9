"""Measure models side by side: their time, memory, cache and operations."""
