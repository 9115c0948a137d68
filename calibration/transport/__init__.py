"""Weight paths measured on this machine."""
