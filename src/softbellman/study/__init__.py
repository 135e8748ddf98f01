"""Studies on disk: what was asked for, what each run left, groups under way."""
