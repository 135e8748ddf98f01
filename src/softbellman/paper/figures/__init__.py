"""The paper's figures and tables: views of results, drawn and tabulated."""
