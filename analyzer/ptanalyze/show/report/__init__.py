"""One HTML page about captures, for people: it is self-contained and reads whole without scripts.

What is on it comes from analysis and capture/check; here it is put into words, tables and figures.
"""
