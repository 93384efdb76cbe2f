"""The paper's experiment on tables: which step, and which parameters, each stopping metric would choose."""
