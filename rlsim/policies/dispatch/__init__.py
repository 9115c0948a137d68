"""Which replica serves the next call of a sample?"""
