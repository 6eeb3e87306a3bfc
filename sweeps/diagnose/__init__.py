"""`sweeps diagnose`: verdicts on anybody's training logs."""
