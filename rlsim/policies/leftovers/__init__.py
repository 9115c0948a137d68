"""What becomes of stale, surplus and unfinished work?"""
