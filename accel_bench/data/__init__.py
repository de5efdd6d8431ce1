"""Small data sets that ship with a Python package, as arrays of tokens; nothing is downloaded."""
