"""Captures of synthetic workloads: page tables and trace by an explicit model of allocation."""
