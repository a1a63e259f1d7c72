"""Captures of workloads that nobody ran: page tables and trace by an explicit model of allocation."""
