"""The input of policies: an address space, its walks, and the steps of its memory manager."""
