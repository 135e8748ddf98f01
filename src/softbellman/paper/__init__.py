"""The paper's figures and tables, each a view of results."""
