"""Mitosis (ASPLOS 2020), figure by figure."""

FIGURES = {}
