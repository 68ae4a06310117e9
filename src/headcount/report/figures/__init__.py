"""The figures of a study, one file each; a function gives a figure, or the reason for none."""
