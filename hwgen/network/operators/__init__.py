"""Operators of models as statements: one entry of the table each."""
