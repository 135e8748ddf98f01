"""Analysis: scores of many runs, intervals, curves, choices of a parameter, findings."""
