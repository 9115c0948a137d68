"""What holds a run back, what would help, and users' questions whose answers are known."""
