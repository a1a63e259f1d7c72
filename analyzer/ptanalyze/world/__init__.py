"""What a policy is tried on: an address space, its walks, and what its memory manager did."""
