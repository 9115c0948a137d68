"""When may the trainer start, and on what?"""
