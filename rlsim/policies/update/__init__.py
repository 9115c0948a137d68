"""What happens to running work when weights change?"""
