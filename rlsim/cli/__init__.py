"""The command line: every command parses its options, calls the library and prints the result."""
