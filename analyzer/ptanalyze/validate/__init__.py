"""Published figures beside this package's: a file per paper, a function per figure."""
