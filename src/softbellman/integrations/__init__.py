"""Operators inside other libraries, one module each; loads none of them."""
