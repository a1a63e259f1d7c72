"""Policies beside those of the four papers: WASP, shadow paging, Hydra in both dimensions of a VM."""
