"""A page table to look around in, in a notebook."""
