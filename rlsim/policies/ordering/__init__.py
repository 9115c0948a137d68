"""In which order do waiting calls run, and when is a running one put back in line?"""
