"""Plausible bugs of the product, and the runner that shows which tests notice them: ``make mutants``."""
