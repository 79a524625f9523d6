"""The numbers of a run as each part of the product shows them, read from what a person or a program
sees of it.
"""
