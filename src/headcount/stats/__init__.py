"""Tests of whether a difference is more than chance, and how numbers are written."""
