"""Measures of the layers and heads of a trained transformer, from what it computed."""
