"""Trained runs as policies to use: from Python, and exported for other tools."""
