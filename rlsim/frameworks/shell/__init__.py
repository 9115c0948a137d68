"""Shell scripts read without running them: what their variables, branches and launch commands come to."""
