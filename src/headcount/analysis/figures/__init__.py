"""Figures of the analyses, one file each."""
