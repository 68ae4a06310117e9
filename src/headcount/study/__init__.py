"""Many runs: methods × numbers of heads × seeds, done once each, and their results."""
